"""Agent recipes over HTTP: the bundled catalogue, a project's own recipes, shared steps, and runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration import served
from tests.integration.held import DELAY_SECONDS, Held
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import AGAIN, FIX, OTHER_SAID, recipe, says

OWN = ".control-room/recipes/agent_recipes"
SAID = {"args": {"backend": "said"}}
HOLD = FIX | {"onOutcome": FIX["onOutcome"] | {"complete": recipe_harness.OTHER}}


def _write(project: Project, name: str, content: Any) -> Path:
    return project.write(f"{OWN}/{name}", json.dumps(content))


async def _entry(service: served.Served, recipe_id: str) -> dict[str, Any]:
    listed = (await service.http.get("/api/recipes")).json()
    return next(dict(entry) for entry in listed if entry["recipe_id"] == recipe_id)


async def _flaws(service: served.Served, recipe_id: str) -> list[tuple[str, str]]:
    return [(flaw["path"], flaw["code"]) for flaw in (await _entry(service, recipe_id))["flaws"]]


async def test_the_catalogue_is_listed(service: served.Served) -> None:
    """All eight recipes are valid, each with the common arguments and its own."""
    listed = {entry["recipe_id"]: entry for entry in (await service.http.get("/api/recipes")).json()}
    names = {path.stem for path in recipe_harness.CATALOGUE.glob("*.json")}
    shown = (await service.http.get("/api/recipes/rebase")).json()

    assert len(names) == 8
    assert names <= set(listed)
    assert all(listed[name]["valid"] and listed[name]["dialect"] == "agent_recipes" for name in names)
    assert {"backend", "main_branch"} <= set(shown["args_schema"]["properties"])
    assert [node["id"] for node in shown["graph"]["nodes"]][1:5] == ["rebase", "review", "fix", "complete"]


async def test_a_run_over_http(service: served.Served) -> None:
    """A bundled recipe runs in the project's workspace, and its machine, slots, steps, cost and ending are shown."""
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
    service.project.say("code-review", text=says("issues-found"), usage=usage)
    service.project.say("code-review#2", text=says("no-issues"), usage=usage)
    service.project.say("fix", text=says("complete"))
    service.project.say("commit", text=says("committed"))
    shown = await service.run("review-and-commit", **SAID)
    steps = (await service.http.get(f"/api/runs/{shown['run_id']}/steps")).json()
    slot = (await service.http.get(f"/api/runs/{shown['run_id']}/cache/fix")).json()

    assert (shown["status"], shown["ending"]["reason"]) == ("done", "changes-committed")
    assert [step["key"] for step in shown["steps"]] == ["code-review", "fix", "code-review#2", "commit"]
    assert (shown["machine"]["stepCount"], shown["machine"]["costUsd"], shown["usage"]["cost_usd"]) == (4, 0.5, 0.5)
    assert [step["visit"] for step in steps] == [1, 1, 2, 1]
    assert {step["agent_session_id"] for step in steps} == {shown["machine"]["sessionId"]}
    assert slot["text"] == says("complete")


async def test_an_agent_with_tools_is_executing(project: Project) -> None:
    """An agent that may use its own tools has the state `executing`, not `processing`."""
    coder = {"id": "said", "archetype": "coder", "tier": "t3", "backend": "said", "role": "Code."}
    backends = {"said": {"type": "scripted", "file": "replies.json"}}
    project.write(".control-room/agents.json", json.dumps({"agents": [coder], "backends": backends}))
    project.say("code-review", hang=True)
    async with served.in_process(project) as service:
        run_id = await service.start("review-and-commit", **SAID)
        await service.until(run_id, step="code-review")
        agents = {agent["id"]: agent for agent in (await service.http.get("/api/agents")).json()}
        await service.http.post(f"/api/runs/{run_id}/cancel")

    assert (agents["said"]["state"], agents["said"]["key"]) == ("executing", "code-review")


async def test_arguments_are_checked_at_the_start(service: served.Served) -> None:
    """Missing, undeclared and invalid arguments are refused before a step runs."""
    wrong = [
        ("document-design", {}),
        ("retrospective", {}),
        ("rebase", {"main_branch": "--force"}),
        ("review-and-commit", {"model": "gpt-4"}),
        ("review-and-commit", {"max_steps": 0}),
        ("review-and-commit", {"agent_session_id": "--dangerous"}),
        ("review-and-commit", {"subject": "x"}),
    ]
    answers = [await service.http.post("/api/runs", json={"recipe_id": name, "args": args}) for name, args in wrong]

    assert [answer.status_code for answer in answers] == [400] * len(wrong)


async def test_a_run_holds_its_workspace_alone(service: served.Served) -> None:
    """The next run in a workspace waits and names the holder, unless it is started to share the workspace."""
    service.project.say("review-hold", hang=True)
    service.project.say("*", text=OTHER_SAID)
    _write(service.project, "ours.json", recipe(id="ours", initialStep="review-hold", steps={"review-hold": HOLD}))
    holder = await service.start("ours", **SAID)
    await service.until(holder, step="review-hold")
    waiting = await service.start("review-and-commit", **SAID)
    sharing = await service.run("review-and-commit", share_workspace=True, **SAID)
    other = await service.run("quick", description="arrival")
    shown = await service.show(waiting)
    both = {"recipe_id": "ours", "exclusive_workspace": True, "share_workspace": True}
    refused = await service.http.post("/api/runs", json=both | SAID)
    await service.http.post(f"/api/runs/{holder}/cancel")
    done = await service.until(waiting, "done")

    assert (sharing["status"], other["status"]) == ("done", "done")
    assert (shown["status"], shown["reason"], shown["holder"]) == ("pending", "workspace_busy", holder)
    assert refused.status_code == 400
    assert done["ending"]["reason"] == "user-provided-other"


async def test_a_run_without_an_outcome_fails_with_the_malformed_line(service: served.Served) -> None:
    """A run fails if its agent reports no outcome even when asked again; the error contains the malformed line."""
    service.project.say("*", text="{bad}")
    shown = await service.run("review-and-commit", **SAID)

    assert (shown["status"], shown["ending"]["reason"]) == ("failed", "orchestration-error")
    assert shown["error"]["detail"]["malformedJson"] == "{bad}"


async def test_a_resume_with_a_higher_limit(service: served.Served) -> None:
    """A run that a guardrail ended continues after a resume with a higher limit, and repeats no step."""
    service.project.say("code-review", text=says("no-issues"))
    service.project.say("commit", text=says("committed"))
    shown = await service.run("review-and-commit", args=SAID["args"] | {"max_steps": 1})
    answer = await service.http.post(f"/api/runs/{shown['run_id']}/resume", json={"args": {"max_steps": 2}})
    done = await service.until(shown["run_id"], "done")

    assert (shown["ending"]["reason"], answer.status_code) == ("max-total-steps", 200)
    assert [(step["key"], step["attempt"]) for step in done["steps"]] == [("code-review", 1), ("commit", 1)]


async def test_a_restarted_service_continues_the_conversation(tmp_path: Path) -> None:
    """A run that a stopped service leaves continues in the next one after its last step, in the same conversation."""
    project = Project(tmp_path)
    project.say("code-review", text=says("no-issues"))
    project.say("commit", hang=True)
    async with served.in_process(project) as service:
        run_id = await service.start("review-and-commit", **SAID)
        before = await service.until(run_id, step="commit")
    project.say("commit", text=says("committed"))
    async with served.in_process(project) as service:
        after = await service.until(run_id, "done")

    assert [(step["key"], step["attempt"]) for step in after["steps"]] == [("code-review", 1), ("commit", 2)]
    assert after["machine"]["sessionId"] == before["machine"]["sessionId"]


async def test_a_project_shares_steps(service: served.Served) -> None:
    """A project's recipe uses steps of its own and of bundled shared files; its own file takes precedence."""
    own = {
        "fix": {
            **FIX,
            "prompt": "Mend it our way.",
            "onOutcome": FIX["onOutcome"] | {"complete": {"nextStep": "code-review"}},
        }
    }
    _write(service.project, "shared/ours.json", own)
    bundled = "shared/review-commit-steps.json"
    steps = {"$include": bundled, "fix": {"$ref": "shared/ours.json#/fix"}}
    _write(service.project, "ours.json", recipe(id="ours", initialStep="code-review", steps=steps))
    shown = (await service.http.get("/api/recipes/ours")).json()
    _write(service.project, bundled, {**own, "code-review": recipe_harness.REVIEW, "commit": recipe_harness.COMMIT})
    shadowed = (await service.http.get("/api/recipes/ours")).json()
    untouched = (await service.http.get("/api/recipes/review-and-commit")).json()

    assert shown["valid"], shown["flaws"]
    assert shown["document"]["steps"]["fix"]["prompt"] == "Mend it our way."
    assert shown["document"]["steps"]["commit"]["prompt"].startswith("Commit the changes")
    assert shadowed["document"]["steps"]["commit"]["prompt"] == "Commit it."
    assert untouched["document"]["steps"]["commit"]["prompt"].startswith("Commit the changes")


async def test_a_shared_file_is_read_again_when_it_changes(service: served.Served) -> None:
    """Recipes follow their shared files when these are repaired, broken, removed and restored."""
    steps = {**recipe_harness.RECIPE["steps"], "fix": {"$ref": "shared/fix.json#/fix"}}
    _write(service.project, "ours.json", recipe(id="ours", steps=steps))
    seen = [await _flaws(service, "ours")]
    shared = _write(service.project, "shared/fix.json", {"fix": FIX})
    seen.append(await _flaws(service, "ours"))
    shared.write_text("{")
    seen.append(await _flaws(service, "ours"))
    shared.unlink()
    seen.append(await _flaws(service, "ours"))
    _write(service.project, "shared/fix.json", {"fix": {**FIX, "prompt": "Anew."}})
    shown = (await service.http.get("/api/recipes/ours")).json()

    unusable = [("$.steps.fix.$ref", "unusable_file")]
    assert seen == [unusable, [], unusable, unusable]
    assert shown["document"]["steps"]["fix"]["prompt"] == "Anew."


@pytest.mark.parametrize("kind", ["link", "folder", "dangling", "large", "binary", "pipe"])
async def test_shared_files_are_files_of_the_folder(service: served.Served, kind: str, tmp_path: Path) -> None:
    """Only a text file of moderate size in the folder is read, and not a link to outside."""
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"fix": FIX, "secret": {"prompt": "hunter2"}}))
    target = service.project.root / OWN / "shared" / "fix.json"
    target.parent.mkdir(parents=True)
    match kind:
        case "link":
            target.symlink_to(outside)
        case "folder":
            target.mkdir()
        case "dangling":
            target.symlink_to(tmp_path / "nowhere")
        case "large":
            target.write_text(" " * 1_100_000)
        case "binary":
            target.write_bytes(b"\xff\xfe")
        case "pipe":
            os.mkfifo(target)
    steps = {**recipe_harness.RECIPE["steps"], "fix": {"$ref": "shared/fix.json#/fix"}}
    _write(service.project, "ours.json", recipe(id="ours", steps=steps))
    entry = await _entry(service, "ours")

    assert [(flaw["path"], flaw["code"]) for flaw in entry["flaws"]] == [("$.steps.fix.$ref", "unusable_file")]
    assert "hunter2" not in json.dumps(entry)


async def test_every_fault_of_a_composed_recipe_is_reported_once(service: served.Served) -> None:
    """The faults of an include are reported together with the other faults, each once."""
    steps = {**recipe_harness.RECIPE["steps"], "fix": {"$ref": "shared/absent.json#/fix"}}
    _write(service.project, "ours.json", recipe(id="ours", steps=steps, model="huge", initialStep="start"))

    assert set(await _flaws(service, "ours")) == {
        ("$.steps.fix.$ref", "unusable_file"),
        ("$.model", "invalid_value"),
        ("$.initialStep", "unknown_step"),
    }


async def test_a_text_is_validated_with_the_projects_shared_steps(service: served.Served) -> None:
    """The validation of a text reports the same faults as the catalogue."""
    sound = recipe(id="ours", initialStep="code-review", steps={"$include": "shared/review-commit-steps.json"})
    broken = recipe(id="ours", steps={"$include": "shared/absent.json"})
    answers = [
        (await service.http.post("/api/recipes/validate", json={"recipe": one, "dialect": "agent_recipes"})).json()
        for one in (sound, broken)
    ]

    assert answers[0]["valid"], answers[0]["flaws"]
    assert [flaw["code"] for flaw in answers[1]["flaws"]] == ["unusable_file"]


@pytest.mark.parametrize("change", [{"model": "huge"}, {"onOutcome": AGAIN["onOutcome"]}])
async def test_a_fault_in_a_shared_step_names_its_place(service: served.Served, change: dict[str, Any]) -> None:
    """The catalogue and the validation of a text name the shared file, also of faults against other recipes."""
    again = json.loads(json.dumps({**recipe_harness.COMMIT, **change}).replace('"small"', '"absent"'))
    _write(service.project, "shared/ours.json", {"commit": again})
    steps = {**recipe_harness.RECIPE["steps"], "commit": {"$ref": "shared/ours.json#/commit"}}
    file = _write(service.project, "ours.json", recipe(id="ours", steps=steps))
    request = {"recipe": file.read_text(), "dialect": "agent_recipes"}
    validated = (await service.http.post("/api/recipes/validate", json=request)).json()
    told = [flaw["message"] for flaw in validated["flaws"]]

    assert [flaw["message"] for flaw in (await _entry(service, "ours"))["flaws"]] == told
    assert len(told) == 1
    assert " (in shared/ours.json at $.commit." in told[0]


async def test_a_restart_continues_with_the_frozen_target_recipe(service: served.Served, held: Held) -> None:
    """A restart uses the target recipe as it was at the start of the run, even if its file is removed later."""
    leading = json.loads(json.dumps(AGAIN).replace('"small"', '"second"'))
    first = recipe(id="first", initialStep="commit", steps={"commit": leading})
    second = recipe(
        id="second", initialStep="review", steps={**recipe_harness.RECIPE["steps"], "review": recipe_harness.REVIEW}
    )
    _write(service.project, "first.json", first)
    alone = await _flaws(service, "first")
    path = _write(service.project, "second.json", second)
    service.project.say("commit", text=says("committed"), delay_seconds=DELAY_SECONDS)
    service.project.say("restart1/review", text=OTHER_SAID)
    run_id = await service.start("first", **SAID)
    await service.until(run_id, step="commit")
    path.unlink()
    held.release()
    shown = await service.until(run_id, "done", "failed")

    assert alone == [("$.steps.commit.onOutcome.committed.recipeId", "unknown_recipe")]
    assert shown["ending"]["reason"] == "user-provided-other"
    assert (shown["machine"]["recipeId"], shown["machine"]["restarts"]) == ("second", 1)
    assert await _flaws(service, "first") == alone


async def test_a_changed_target_counts_for_the_next_run(service: served.Served) -> None:
    """Each run freezes the recipes that it may restart as, in their state at its start."""
    leading = json.loads(json.dumps(AGAIN).replace('"small"', '"second"'))
    _write(service.project, "first.json", recipe(id="first", initialStep="commit", steps={"commit": leading}))
    _write(service.project, "second.json", recipe(id="second"))
    service.project.say("commit", text=says("committed"))
    service.project.say("restart1/review", text=OTHER_SAID)
    before = await service.run("first", **SAID)
    _write(service.project, "second.json", recipe_harness.with_step("review", prompt="Look closer.") | {"id": "second"})
    after = await service.run("first", **SAID)
    frozen = [
        json.loads((service.project.data / "runs" / run["run_id"] / "start.json").read_text())["frozen"]["recipes"]
        for run in (before, after)
    ]

    assert [shown["status"] for shown in (before, after)] == ["done", "done"]
    assert [one["second"]["steps"]["review"]["prompt"] for one in frozen] == ["Review it.", "Look closer."]
    assert before["recipe_sha256"] == after["recipe_sha256"]
