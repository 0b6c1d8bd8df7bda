"""POST /api/runs: which requests start a run, and which are refused (execution-modes, appendix D)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration import conferring, served
from tests.integration import project as projects

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9]{6}")


async def post(service: served.Served, body: Any, **headers: str) -> httpx.Response:
    """Request a run."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await service.http.post("/api/runs", json=body, headers=named)


async def test_a_run_is_accepted(service: served.Served) -> None:
    """A run is answered with 201, exactly its id and status, and its address; its folder is on disk by then."""
    answer = await post(service, {"recipe_id": "quick"})
    accepted = answer.json()

    assert answer.status_code == 201
    assert set(accepted) == {"run_id", "status"}
    assert accepted["status"] == "running"
    assert RUN_ID.fullmatch(accepted["run_id"])
    assert answer.headers["location"] == f"/api/runs/{accepted['run_id']}"
    assert (service.project.data / "runs" / accepted["run_id"] / "start.json").is_file()


async def test_the_answer_of_a_start_has_every_given_field(service: served.Served, tmp_path: Path) -> None:
    """The answer of the run contains its description, arguments, session, labels, priority and workspace."""
    body = {
        "recipe_id": "draft",
        "description": "Draft the bridge",
        "args": {"scene_path": "SCN-the-bridge.md"},
        "session_id": "sess_mine",
        "session_plan_task_id": 7,
        "working_dir": "Story/Scenes",
        "labels": {"book": "one", "part/1": ""},
        "priority": -5,
    }
    shown = await service.show((await post(service, body)).json()["run_id"])

    assert shown["task"] == {
        "description": "Draft the bridge",
        "session_plan_task_id": 7,
        "initial_args": {"scene_path": "SCN-the-bridge.md", "words": 500},
    }
    assert (shown["session_id"], shown["labels"], shown["priority"]) == ("sess_mine", body["labels"], -5)
    assert shown["working_dir"] == str((tmp_path / "project" / "Story" / "Scenes").resolve())


async def test_omitted_fields_of_a_start_have_defaults(service: served.Served) -> None:
    """By default, the description is the recipe's label, the session is new and the workspace is the project."""
    shown = await service.show(await service.start("quick"))

    assert shown["task"]["description"] == "Look around"
    assert shown["session_id"].startswith("sess_")
    assert shown["working_dir"] == str(service.project.root.resolve())
    assert (shown["labels"], shown["priority"], shown["parent_run_id"]) == ({}, 0, None)


async def test_the_router_chooses_by_the_description(service: served.Served) -> None:
    """With only a description, the recipe whose pattern fits runs with the arguments that the text names."""
    answer = await post(service, {"description": "please sketch scene one in Story/Scenes/SCN-the-arrival.md"})
    shown = await service.show(answer.json()["run_id"])

    assert answer.status_code == 201
    assert shown["recipe_id"] == "draft"
    assert shown["task"]["initial_args"]["scene_path"] == "Story/Scenes/SCN-the-arrival.md"


async def test_given_arguments_win_over_those_in_the_text(service: served.Served) -> None:
    """An argument in the body overrides the one that the router found."""
    description = "sketch scene one in Story/Scenes/SCN-the-arrival.md"
    given = {"scene_path": "Story/Scenes/SCN-the-bridge.md"}
    answer = await post(service, {"description": description, "args": given})
    shown = await service.show(answer.json()["run_id"])

    assert shown["task"]["initial_args"]["scene_path"] == given["scene_path"]


async def test_an_unroutable_description_is_refused(service: served.Served) -> None:
    """A description that fits no recipe is answered with 422 and the reason."""
    answer = await post(service, {"description": "fix the plumbing"})

    assert answer.status_code == 422
    assert answer.json()["code"] == "unroutable"
    assert "draft (sketch scene)" in answer.json()["detail"]
    assert {"recipe_id": "quick", "task_patterns": ["look around"]} in answer.json()["facts"]["recipes"]
    assert answer.json()["facts"]["reason"]


async def test_every_missing_argument_is_named(service: served.Served) -> None:
    """Missing arguments are refused with 400, all of them at once."""
    answer = await post(service, {"recipe_id": "picky"})

    assert answer.status_code == 400
    assert answer.json()["code"] == "args_invalid"
    assert answer.json()["facts"]["missing"] == ["scene_path", "other_path"]
    assert {flaw["path"] for flaw in answer.json()["flaws"]} == {"$.args.scene_path", "$.args.other_path"}


async def test_an_undeclared_argument_is_refused(service: served.Served) -> None:
    """An argument that the recipe does not declare is refused with the nearest name."""
    answer = await post(service, {"recipe_id": "draft", "args": {"scene_path": "a.md", "word": 3}})

    assert answer.status_code == 400
    assert answer.json()["flaws"] == [
        {
            "path": "$.args.word",
            "code": "undeclared_arg",
            "message": "the recipe has no argument 'word'; did you mean words?",
        }
    ]


async def test_an_argument_of_the_wrong_type_is_refused(service: served.Served) -> None:
    """An argument that does not fit its schema is refused with its path."""
    answer = await post(service, {"recipe_id": "draft", "args": {"scene_path": 7, "words": 0}})

    assert answer.status_code == 400
    assert {flaw["path"] for flaw in answer.json()["flaws"]} == {"$.args.scene_path", "$.args.words"}


async def test_an_unknown_recipe_is_refused_with_the_nearest(service: served.Served) -> None:
    """An unknown recipe is answered with 400 and the most similar names."""
    answer = await post(service, {"recipe_id": "drafts"})

    assert answer.status_code == 400
    assert answer.json()["code"] == "unknown_recipe"
    assert answer.json()["facts"]["nearest"][0] == "draft"
    assert answer.json()["detail"].startswith("there is no recipe 'drafts'; did you mean draft")


async def test_a_file_in_place_of_a_recipe_is_refused_as_one(service: served.Served) -> None:
    """A path instead of a recipe id is refused with a hint to give the id."""
    answer = await post(service, {"recipe_id": ".control-room/recipes/draft.json"})

    assert answer.status_code == 400
    assert answer.json()["detail"].endswith("; give the id of a recipe, not its file")


async def test_a_broken_recipe_keeps_no_other_from_running(service: served.Served) -> None:
    """A recipe file with a syntax error is listed with its fault and refused; every other recipe works."""
    service.project.write(".control-room/recipes/broken.json", '{\n  "recipe_id": "broken"\n  "label": 1\n}')
    listed = {entry["recipe_id"]: entry for entry in (await service.http.get("/api/recipes")).json()}
    refused = await post(service, {"recipe_id": "broken"})
    ended = await service.run("quick")

    assert listed["broken"]["valid"] is False
    assert listed["broken"]["flaws"][0]["line"] == 3
    assert (refused.status_code, refused.json()["code"]) == (400, "recipe_invalid")
    assert refused.json()["flaws"][0]["line"] == 3
    assert ended["status"] == "done"


async def test_a_changed_recipe_is_used_at_once(service: served.Served) -> None:
    """A new run uses the edited recipe at once, while a run that began before keeps the earlier one."""
    service.project.say("draft", hang=True)
    before = await service.start("unguarded")
    await service.until(before, step="draft")
    service.project.add_recipe(projects.unguarded() | {"label": "Write on and on"})
    after = await service.start("unguarded")
    described = [(await service.show(run_id))["task"]["description"] for run_id in (before, after)]

    assert described == ["Write on", "Write on and on"]


@pytest.mark.parametrize(
    ("working_dir", "code"),
    [
        ("..", "working_dir_refused"),
        ("/etc", "working_dir_refused"),
        (".control-room", "working_dir_refused"),
        ("Story/none", "working_dir_missing"),
        ("Story/Scenes/SCN-the-arrival.md", "working_dir_missing"),
    ],
)
async def test_a_workspace_outside_is_refused(service: served.Served, working_dir: str, code: str) -> None:
    """A workspace outside the project and the allowed roots is refused."""
    answer = await post(service, {"recipe_id": "quick", "working_dir": working_dir})

    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_a_further_root_is_allowed(project: projects.Project, tmp_path: Path) -> None:
    """A folder inside an allowed root is a workspace, and its tools work there."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "SCN-one.md").write_text(projects.SCENE)
    async with served.in_process(project, allowed_roots=(tmp_path / "other",)) as service:
        ended = await service.run("quick", working_dir=str(tmp_path / "other"), description="arrival")

    assert ended["status"] == "done"
    assert ended["working_dir"] == str((tmp_path / "other").resolve())


async def test_the_same_key_and_body_find_the_same_run(service: served.Served) -> None:
    """A repeated request with its key is answered with 200 and its run, whatever the state of the run."""
    body = {"recipe_id": "quick", "args": {}}
    first = await post(service, body, Idempotency_Key="k-1")
    await service.until(first.json()["run_id"], "done")
    again = await post(service, {"args": {}, "recipe_id": "quick"}, Idempotency_Key="k-1")
    listed = (await service.http.get("/api/runs")).json()

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"run_id": first.json()["run_id"], "status": "done"}
    assert again.headers["location"] == first.headers["location"]
    assert len(listed) == 1


async def test_a_repetition_is_found_after_its_recipe_has_gone(service: served.Served) -> None:
    """A repetition finds its run even if the recipe no longer exists."""
    first = await post(service, {"recipe_id": "quick"}, Idempotency_Key="k-2")
    (service.project.data / "recipes" / "quick.json").unlink()
    again = await post(service, {"recipe_id": "quick"}, Idempotency_Key="k-2")

    assert (again.status_code, again.json()["run_id"]) == (200, first.json()["run_id"])


async def test_the_same_key_with_another_body_is_refused(service: served.Served) -> None:
    """A key that was used for another request is answered with 409 and the run of that request."""
    first = await post(service, {"recipe_id": "quick"}, Idempotency_Key="k-3")
    other = await post(service, {"recipe_id": "quick", "priority": 1}, Idempotency_Key="k-3")

    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert other.json()["facts"]["run_id"] == first.json()["run_id"]


@pytest.mark.parametrize("key", ["", " ", "k" * 256, "t\tb"])
async def test_a_key_of_the_wrong_form_is_refused(service: served.Served, key: str) -> None:
    """An idempotency key is 1 to 255 printable characters."""
    answer = await post(service, {"recipe_id": "quick"}, Idempotency_Key=key)

    assert answer.status_code == 400
    assert "idempotency-key" in answer.json()["flaws"][0]["path"].lower()


async def test_an_exclusive_run_is_refused_while_another_is_unfinished(service: served.Served) -> None:
    """With `exclusive`, an unfinished run of the recipe is a 409 that names it; after its end, the start succeeds."""
    service.project.say("draft", hang=True)
    first = await service.start("unguarded")
    refused = await post(service, {"recipe_id": "unguarded", "exclusive": True})
    other = await post(service, {"recipe_id": "quick", "exclusive": True})
    await service.http.post(f"/api/runs/{first}/cancel")
    await service.until(first, "cancelled")
    allowed = await post(service, {"recipe_id": "unguarded", "exclusive": True})

    assert (refused.status_code, refused.json()["code"]) == (409, "recipe_busy")
    assert refused.json()["facts"]["run_id"] == first
    assert (other.status_code, allowed.status_code) == (201, 201)


async def test_a_run_without_a_slot_is_pending(project: projects.Project) -> None:
    """When no capacity is free, a new run is answered `pending`, and runs once some is free."""
    project.say("draft", hang=True)
    async with served.in_process(project, max_running=1) as service:
        first = await service.start("unguarded")
        await service.until(first, step="draft")
        second = await post(service, {"recipe_id": "quick"})
        shown = await service.show(second.json()["run_id"])
        await service.http.post(f"/api/runs/{first}/cancel")
        ended = await service.until(second.json()["run_id"], "done")

    assert second.json()["status"] == shown["status"] == "pending"
    assert ended["status"] == "done"


async def test_a_run_can_name_its_parent(service: served.Served) -> None:
    """A run with a parent belongs to the parent's session and is listed as its child, down to a limited depth."""
    chain = [await service.start("quick", session_id="sess_one")]
    for _ in range(3):
        chain.append(await service.start("quick", parent_run_id=chain[-1]))
    too_deep = await post(service, {"recipe_id": "quick", "parent_run_id": chain[-1]})
    unknown = await post(service, {"recipe_id": "quick", "parent_run_id": "nobody"})
    shown = await service.show(chain[3])
    children = (await service.http.get("/api/runs", params={"parent_run_id": chain[0]})).json()

    assert (shown["parent_run_id"], shown["session_id"]) == (chain[2], "sess_one")
    assert [child["run_id"] for child in children] == [chain[1]]
    assert (too_deep.status_code, too_deep.json()["code"]) == (400, "depth_exceeded")
    assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown_parent")


async def test_a_recipe_may_be_brought_along_where_allowed(project: projects.Project) -> None:
    """A request may contain its own recipe, as an object or as text, only if a setting allows it."""
    whole = projects.quick("brought")
    async with served.in_process(project) as service:
        refused = await post(service, {"recipe": whole})
    async with served.in_process(project, inline_recipes=True) as service:
        ended = [
            await service.until((await post(service, {"recipe": recipe})).json()["run_id"], "done")
            for recipe in (whole, json.dumps(whole))
        ]
        broken = await post(service, {"recipe": {"recipe_id": "brought"}})
        listed = [entry["recipe_id"] for entry in (await service.http.get("/api/recipes")).json()]

    assert (refused.status_code, refused.json()["code"]) == (400, "inline_recipes_off")
    assert [shown["recipe_id"] for shown in ended] == ["brought", "brought"]
    assert (broken.status_code, broken.json()["code"]) == (400, "recipe_invalid")
    assert "brought" not in listed


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/api/runs", {"recipe_id": "quick"}),
        ("/api/conferences", {"message": "Why?", "allowed_tools": []}),
        ("/api/sessions", {"tasks": [{"description": "look around"}]}),
    ],
)
async def test_a_run_of_another_project_asks(project: projects.Project, address: str, body: dict[str, Any]) -> None:
    """A request with a number of runs above may come from another project, and counts as that deep."""
    conferring.prepare(project)
    parent = {"parent_run_id": "20260210T143000Z-abc123"}
    async with served.in_process(project) as service:
        answers = {
            above: await service.http.post(address, json=body | parent | {"runs_above": above})
            for above in (2, 4, -1, 1_001, True, "2", None)
        }
        unknown = await service.http.post(address, json=body | parent)

    made = answers[2].json()
    kept = f"runs/{made['run_id']}/start.json" if "run_id" in made else f"sessions/{made['session_id']}/plan.json"
    facts = json.loads((project.data / kept).read_text(encoding="utf-8"))

    assert (answers[2].status_code, facts.get("depth", facts.get("runs_above"))) == (201, 2)
    assert [(answer.status_code, answer.json()["code"]) for answer in (answers[4], answers[None], unknown)] == [
        (400, "depth_exceeded"),
        (400, "unknown_parent"),
        (400, "unknown_parent"),
    ]
    for above in (-1, 1_001, True, "2"):
        assert (answers[above].status_code, answers[above].json()["flaws"][0]["path"]) == (400, "$.runs_above")
