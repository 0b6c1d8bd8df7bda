"""Forks: runs that begin with the steps of another run in any state, and previews of forks and resumes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app import errors
from app.cli import again, folder_client
from app.cli.client import Access
from app.services import fork_requests
from tests.integration import project as projects
from tests.integration import served
from tests.integration.project import Project
from tests.integration.test_waiting_pages import WHY, blocks

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
BRIDGE = {"scene_path": "Story/Scenes/SCN-the-bridge.md"}


async def forked(service: served.Served, run_id: str, **body: Any) -> dict[str, Any]:
    """Fork a run, wait for the end of the new run, and return the answer and the run."""
    answer = await service.http.post(f"/api/runs/{run_id}/fork", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/runs/{answer.json()['run_id']}"
    return dict(answer.json()) | {"shown": await service.until(answer.json()["run_id"], "done", "failed")}


async def previewed(service: served.Served, run_id: str, order: str, **body: Any) -> dict[str, Any]:
    """Return the preview of an order."""
    answer = await service.http.post(f"/api/runs/{run_id}/preview", json={"order": order} | body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def lines(service: served.Served, run_id: str) -> list[dict[str, Any]]:
    """Return a run's journal."""
    return list((await service.http.get(f"/api/runs/{run_id}/steps")).json())


def files(project: Project) -> dict[str, bytes]:
    """Return every file of all run folders."""
    folder = project.data / "runs"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_done_run_is_forked_from_a_step_with_another_prompt(project: Project) -> None:
    """Earlier steps are taken over at no cost, the step uses the new prompt, and receipts are those of the source."""
    project.say("*", text="The lantern was dark.", usage={"input_tokens": 5, "output_tokens": 7})
    async with served.in_process(project) as service:
        source = await service.run("draft", args=ARRIVAL, labels={"book": "one"})
        before = await lines(service, source["run_id"])
        found = await forked(
            service,
            source["run_id"],
            **{"from": "draft", "prompt": "Say it in the present tense.", "labels": {"take": "2"}},
        )
        after = await lines(service, found["run_id"])
        report = (await service.http.get(f"/api/runs/{found['run_id']}/verification")).json()
        logs = (await service.http.get(f"/api/runs/{found['run_id']}/logs/draft.1.prompt.md")).text
        start = json.loads((project.data / "runs" / found["run_id"] / "start.json").read_text())
        receipts = (await service.http.get(f"/api/audit/receipts?run_id={found['run_id']}")).json()
        kept = [line["key"] for line in before if line["key"] != "draft"][: found["taken_over"]]

    assert found["forked_from"] == source["run_id"]
    assert found["shown"]["status"] == "done"
    assert found["shown"]["labels"] == {"book": "one", "take": "2"}
    assert [line["key"] for line in after] == [line["key"] for line in before]
    assert [line["key"] for line in after if line.get("taken_over")] == kept != []
    assert [line["receipt_id"] for line in after if line.get("taken_over")] == [
        line["receipt_id"] for line in before if line["key"] in kept
    ]
    assert [step["key"] for step in found["shown"]["steps"] if step.get("taken_over")] == kept
    assert all(line["usage"] is None for line in after if line.get("taken_over"))
    assert "Say it in the present tense." in logs
    assert receipts == []
    assert report["ok"], report
    assert (start["forked_from"], start["id_root"], start["up_to"]) == (source["run_id"],) * 2 + (found["taken_over"],)
    assert len(start["source_hash"]) == 64


async def test_a_fork_writes_a_file_of_its_own(project: Project) -> None:
    """An output file named by its run does not block forks: each writes its own, and the source keeps its file."""
    recipe = projects.draft("kept")
    recipe["outputs"] = [{"slot": "edited_draft", "path": "Drafts/{{task.run_id}}.md"}]
    recipe["dod"] = [{"check": "file_exists", "path": {"$ref": "task.outputs.edited_draft"}}]
    project.write(".control-room/recipes/kept.json", json.dumps(recipe))
    project.say("polish", text="The first words.")
    async with served.in_process(project) as service:
        source = await service.run("kept", args=ARRIVAL)
        forks = []
        for number in ("second", "third"):
            project.say("polish", text=f"The {number} words.")
            forks.append(await forked(service, source["run_id"], **{"from": "polish"}))
            forks.append(await forked(service, forks[-1]["run_id"], **{"from": "polish"}))
    found = {path.stem: path.read_text() for path in (project.root / "Drafts").iterdir()}

    assert {fork["shown"]["status"] for fork in forks} == {"done"}
    assert found == {source["run_id"]: "The first words."} | {
        fork["run_id"]: f"The {number} words."
        for fork, number in zip(forks, ("second", "second", "third", "third"), strict=True)
    }


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_resumed_run_replaces_its_own_file_alone(project: Project, is_changed: bool) -> None:
    """A resume from an earlier step replaces the file that the run wrote, but not one that a person has changed."""
    recipe = projects.draft("kept")
    recipe["outputs"] = [{"slot": "edited_draft", "path": "Drafts/it.md"}]
    recipe["dod"] = [{"check": "file_exists", "path": "wanted.md"}]
    project.write(".control-room/recipes/kept.json", json.dumps(recipe))
    project.say("polish", text="The first words.")
    async with served.in_process(project) as service:
        run = await service.run("kept", args=ARRIVAL)
        project.say("polish", text="The second words.")
        project.write("wanted.md", "It is there.")
        if is_changed:
            project.write("Drafts/it.md", "A person's words.")
        resumed = await service.http.post(f"/api/runs/{run['run_id']}/resume", json={"from": "polish"})
        shown = await service.until(run["run_id"], "done", "failed")

    assert (run["error"]["code"], resumed.status_code) == ("dod_failed", 200)
    assert (shown["error"] or {}).get("code") == ("file_exists" if is_changed else None)
    kept = "A person's words." if is_changed else "The second words."
    assert (project.root / "Drafts" / "it.md").read_text() == kept


async def test_changed_arguments_repeat_only_steps_that_differ(project: Project) -> None:
    """With changed arguments, the driver performs the first step that differs and all later ones."""
    async with served.in_process(project) as service:
        source = await service.run("draft", args=ARRIVAL)
        same = await forked(service, source["run_id"])
        other = await forked(service, source["run_id"], args=BRIDGE)
        again = await forked(service, same["run_id"], **{"from": "draft"})
        preview = await previewed(service, source["run_id"], "fork", args=BRIDGE)
        executed = [line["key"] for line in await lines(service, other["run_id"]) if not line.get("taken_over")]

    assert same["taken_over"] == len(source["steps"])
    assert same["shown"]["status"] == "done"
    assert same["shown"]["usage"]["input_tokens"] == 0
    assert [step["key"] for step in preview["steps"] if step["action"] != "taken_over"] == executed
    assert "something else" in next(step["why"] for step in preview["steps"] if step["action"] == "again")
    assert again["shown"]["status"] == "done"


async def test_a_fork_preview_names_each_step_and_writes_no_file(project: Project) -> None:
    """A preview names each step with its reason, calls, cost and effect on files, and writes no file."""
    project.say("draft", error={"code": "agent_failed", "message": "No."})
    async with served.in_process(project) as service:
        failed = await service.run("draft", args=ARRIVAL)
        before = files(project)
        resume = await previewed(service, failed["run_id"], "resume")
        fork = await previewed(service, failed["run_id"], "fork")
        wrong = await previewed(service, failed["run_id"], "resume", **{"from": "nowhere"})
        done = await previewed(service, (await service.run("quick"))["run_id"], "resume")
        project.say("draft", text="The lantern was dark.")
        assert {name: text for name, text in files(project).items() if name in before} == before
        resumed = await service.http.post(f"/api/runs/{failed['run_id']}/resume")
        ended = await service.until(failed["run_id"], "done", "failed")

    keys = [step["key"] for step in failed["steps"]]
    again = [step["key"] for step in resume["steps"] if step["action"] == "again"]

    assert failed["status"] == "failed"
    assert resume["ok"]
    assert again == ["draft"]
    assert [step["key"] for step in resume["steps"] if step["action"] == "kept"] == [
        key for key in keys if key != "draft"
    ]
    assert {step["action"] for step in fork["steps"]} == {"taken_over", "again"}
    assert all(step["why"] for step in (*resume["steps"], *fork["steps"]))
    assert resume["calls_at_most"] is None or resume["calls_at_most"] >= 1
    assert "not restored" in fork["workspace_note"]
    assert (wrong["ok"], wrong["problems"][0]["code"]) == (False, "unknown_step")
    assert (done["ok"], done["problems"][0]["code"]) == (False, "wrong_state")
    assert (resumed.status_code, ended["status"]) == (200, "done")


async def test_a_running_run_is_forked(project: Project) -> None:
    """A running source continues undisturbed, and the fork performs the steps that the source has not finished."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        source = await service.start("draft", args=ARRIVAL)
        await service.until(source, step="draft")
        answer = (await service.http.post(f"/api/runs/{source}/fork", json={})).json()
        fork = await service.until(answer["run_id"], step="draft")
        both = [(await service.show(run_id))["status"] for run_id in (source, answer["run_id"])]
        for run_id in (source, answer["run_id"]):
            await service.http.post(f"/api/runs/{run_id}/cancel")

    assert answer["next"] == ["draft"]
    assert answer["taken_over"] == len(fork["steps"]) - 1 > 0
    assert both == ["running", "running"]


@pytest.mark.parametrize("policy", ["queue", "cancel_running", "cancel_waiting", "reject"])
async def test_a_fork_waits_for_its_concurrency_key(project: Project, policy: str) -> None:
    """A fork with its source's concurrency key waits until the source has ended, or is refused, and cancels no run."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    key = {"key": "press", "limit": 1, "policy": policy}
    async with served.in_process(project) as service:
        source = (await service.http.post("/api/runs", json={"recipe_id": "publish", "concurrency": key})).json()
        await service.until(source["run_id"], "waiting")
        answer = await service.http.post(f"/api/runs/{source['run_id']}/fork", json={})
        if policy == "reject":
            assert (answer.status_code, answer.json()["code"]) == (409, "concurrency_limit")
            return
        why = (await service.http.get(f"/api/runs/{answer.json()['run_id']}/why")).json()
        shown = (await service.http.get(f"/api/runs/{source['run_id']}")).json()
        await service.http.post(f"/api/runs/{source['run_id']}/cancel")
        fork = await service.until(answer.json()["run_id"], "waiting")

    assert [link["kind"] for link in why["chain"]] == ["concurrency", "gate"]
    assert shown["status"] == "waiting"
    assert fork["forked_from"] == source["run_id"]


async def test_a_fork_in_the_process_of_a_command_waits_for_no_key(project: Project) -> None:
    """In a command's process, a fork is refused if its paused source has its key: no service would start it later."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    async with served.in_process(project) as service:
        asked = {"recipe_id": "publish", "concurrency": {"key": "press"}}
        source = (await service.http.post("/api/runs", json=asked)).json()["run_id"]
        await service.until(source, "waiting")
    async with folder_client.connect(served.chosen(project), Access.CHANGE) as folder:
        with pytest.raises(errors.Conflict) as refused:
            await folder.call(again.fork_run, source, fork_requests.ForkRequest())

    assert (refused.value.code, refused.value.detail["run_id"]) == ("concurrency_limit", source)


async def test_a_large_output_is_copied_and_outlives_its_source(project: Project) -> None:
    """A fork has its own blobs: it is valid and readable after the source is deleted."""
    project.say("draft", text=" ".join(f"Kael passed lantern number {n}." for n in range(4000)))
    async with served.in_process(project) as service:
        source = await service.run("draft", args=ARRIVAL)
        found = await forked(service, source["run_id"])
        before = await service.http.get(f"/api/runs/{source['run_id']}/cache/draft")
        await service.http.delete(f"/api/runs/{source['run_id']}")
        report = (await service.http.get(f"/api/runs/{found['run_id']}/verification")).json()
        after = await service.http.get(f"/api/runs/{found['run_id']}/cache/draft")

    assert len(before.text) > 64 * 1024
    assert after.text == before.text
    assert report["ok"]


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"from": "nowhere"}, "unknown_step", "$.from"),
        ({"from": 99}, "unknown_step", "$.from"),
        ({"from": -1}, "request_invalid", "$.from"),
        ({"prompt": "x"}, "request_invalid", "$.prompt"),
        ({"from": "discover", "prompt": "x"}, "request_invalid", "$.prompt"),
        ({"from": "draft", "agent": "nobody"}, "request_invalid", "$.agent"),
        ({"args": {"scene_path": 4}}, "args_invalid", "$.args.scene_path"),
        ({"labels": {"a b": "x"}}, "request_invalid", "$.labels"),
        ({"form": "draft"}, "request_invalid", "$.form"),
    ],
)
async def test_bad_forks_are_refused_with_their_place(
    service: served.Served, body: dict[str, Any], code: str, path: str | None
) -> None:
    """Invalid forks are refused with their place and create no run, as a preview reports."""
    source = (await service.run("draft", args=ARRIVAL))["run_id"]
    answer = await service.http.post(f"/api/runs/{source}/fork", json=body)
    rows = (await service.http.get("/api/runs")).json()

    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert path is None or answer.json()["flaws"][0]["path"].startswith(path)
    assert [row["run_id"] for row in rows] == [source]


async def test_a_repeated_fork_is_the_same_run(service: served.Served) -> None:
    """Repeated requests with one key create one run, even at the same time; another request with the key is refused."""
    source = (await service.run("draft", args=ARRIVAL))["run_id"]
    path, headers = f"/api/runs/{source}/fork", {"Idempotency-Key": "once"}
    both = await asyncio.gather(*(service.http.post(path, json={"from": "draft"}, headers=headers) for _ in range(2)))
    third = await service.http.post(path, json={"from": "draft"}, headers=headers)
    other = await service.http.post(path, json={}, headers=headers)
    rows = (await service.http.get("/api/runs")).json()

    assert sorted(answer.status_code for answer in both) == [200, 201]
    assert {answer.json()["run_id"] for answer in (*both, third)} == {rows[0]["run_id"]}
    assert (third.status_code, third.json()["forked_from"], "existed" in third.json()) == (200, source, False)
    assert third.json()["taken_over"] == both[0].json()["taken_over"] == both[1].json()["taken_over"]
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert len(rows) == 2


async def test_another_agent_is_asked(project: Project) -> None:
    """The step calls the agent that the fork names, with its role; the other steps keep their agents."""
    async with served.in_process(project) as service:
        source = await service.run("draft", args=ARRIVAL)
        found = await forked(service, source["run_id"], **{"from": "draft", "agent": "editor-1"})
        asked = {line["key"]: line.get("agent_id") for line in await lines(service, found["run_id"])}

    assert found["shown"]["status"] == "done", found["shown"]["error"]
    assert asked["draft"] == "editor-1"


async def test_limits_of_the_run_bound_a_preview(project: Project) -> None:
    """A preview allows a fork the whole limit, and a resume the rest of it."""
    project.say("discover", error={"code": "agent_failed", "message": "No."})
    project.say("polish", error={"code": "agent_failed", "message": "No."})
    usage = {"input_tokens": 5, "output_tokens": 7, "cost_usd": 0.5}
    project.say("draft", text="The lantern was dark.", usage=usage)
    async with served.in_process(project) as service:
        failed = await service.run("draft", args=ARRIVAL, limits={"cost_usd": 2.0, "calls": 10})
        resume = await previewed(service, failed["run_id"], "resume")
        fork = await previewed(service, failed["run_id"], "fork")

    assert failed["status"] == "failed"
    assert (resume["cost_usd_at_most"], fork["cost_usd_at_most"]) == (1.5, 2.0)
    assert 1 <= resume["calls_at_most"] <= 8
    assert fork["paid_before"]["cost_usd"] is None
    assert (resume["note"], fork["note"]) == (None, None)
