"""Why a run does not move: for each state and kind of wait, one correct sentence and the chain behind it."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

import pytest

from app import clock, errors
from app.cli import explaining, folder_client, root, use_cases
from app.cli.client import Access
from app.services import requests
from app.storage import data_directory
from tests.integration import asking, served
from tests.integration.held import DELAY_SECONDS, Held
from tests.integration.project import REPLY, Project
from tests.integration.read_faults import ReadFaults

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


async def why(service: served.Served, run_id: str) -> dict[str, Any]:
    """Return why a run does not move."""
    answer = await service.http.get(f"/api/runs/{run_id}/why")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def until_explained(service: served.Served, run_id: str, words: str) -> dict[str, Any]:
    """Poll until the chain contains these words."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            told = await why(service, run_id)
            if any(words in link["text"] for link in told["chain"]):
                return told
            await asyncio.sleep(0.01)


def kinds(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Return runs and kinds of the chain."""
    return [(link["run_id"], link["kind"]) for link in told["chain"]]


async def test_a_grandchild_at_a_gate(project: Project) -> None:
    """The chain leads through child and grandchild to the question, with the command that answers the question."""
    asking.add(project, "top", {"child": "go", "recipe_id": "middle"})
    asking.add(project, "middle", {"child": "on", "recipe_id": "ship"})
    asking.add(project, "ship", *asking.SHIP)
    async with asking.in_process(project) as service:
        top = await service.start("top")
        await until_explained(service, top, "asks: Ship it?")
        run_ids = {row["recipe_id"]: row["run_id"] for row in (await service.http.get("/api/runs")).json()}
        gate = await service.asks(run_ids["ship"])
        told = await why(service, top)

        assert told["sentence"] == f"It waits for run {run_ids['ship']}: Step ship asks: Ship it? (approve or deny)."
        assert kinds(told) == [
            (top, "child_run"),
            (run_ids["middle"], "child_run"),
            (run_ids["ship"], "gate"),
        ]
        assert told["chain"][-1]["since"] == gate["asked_at"]
        assert told["chain"][-1]["act"] == f"control-room gates answer {gate['gate_id']} approve"

        await service.answer(gate, "approve")
        await service.until(top, "done")
        assert (await why(service, top))["sentence"] == "It is done."


async def test_a_workspace_that_another_run_holds(project: Project) -> None:
    """A run that needs a workspace alone names the run in it, and why that run does not move."""
    asking.add(project, "ship", *asking.SHIP)
    async with asking.in_process(project) as service:
        holder = await service.start("ship", exclusive_workspace=True)
        await service.until(holder, "waiting")
        kept_out = await service.start("ship", exclusive_workspace=True)
        told = await why(service, kept_out)

        assert kinds(told) == [(kept_out, "workspace_busy"), (holder, "gate")]
        assert f"held by run {holder}" in told["chain"][0]["text"]


async def test_a_place_in_the_queue(project: Project, held: Held) -> None:
    """The explanation of a queued run names its place, the length of the queue, and the running runs."""
    project.say("draft", text=REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project, max_running=1) as service:
        first = await service.start("draft", args=ARRIVAL)
        await service.until(first, step="draft")
        await service.start("quick")
        last = await service.start("quick")
        sooner = await service.start("quick", priority=5)
        told, ahead = await why(service, last), await why(service, sooner)
        held.release()
        await service.until(last, "done")

    assert told["sentence"] == f"It is number 3 of 3 in the queue; 1 run executes at a time, now {first}."
    assert ahead["sentence"].startswith("It is number 1 of 3 in the queue")


async def test_an_agent_at_work_and_a_prompt_behind_it(project: Project, held: Held) -> None:
    """A working agent is named with its backend; the explanation of a waiting prompt names its place in the queue."""
    project.say("*", text=REPLY, delay_seconds=DELAY_SECONDS)
    conversation = "5a6ab3a0-3f3e-4ab1-8ad4-7a2f0c1d2e3f"
    asking.add(
        project,
        "both",
        {"gather": {"a": [{"speak": "a", "session": conversation}], "b": [{"speak": "b", "session": conversation}]}},
    )
    async with asking.in_process(project) as service:
        run_id = await service.start("both")
        await service.until(run_id, step="a")
        told = await until_explained(service, run_id, "backend_queue")
        held.release()

    assert kinds(told) == [(run_id, "agent"), (run_id, "more")]
    assert "agent writer-1 (backend said) has been at work for" in told["sentence"]
    assert "(backend_queue)" in told["chain"][1]["text"]


async def test_a_prompt_behind_the_limit_of_its_backend(project: Project, held: Held) -> None:
    """The explanation names the setting that makes a prompt wait, with its value."""
    project.say("*", text=REPLY, delay_seconds=DELAY_SECONDS)
    agents = json.loads((project.data / "agents.json").read_text())
    agents["backends"]["said"] = {**agents["backends"]["said"], "max_parallel": 1}
    project.write(".control-room/agents.json", json.dumps(agents))
    asking.add(project, "both", {"gather": {"a": [{"speak": "a"}], "b": [{"speak": "b"}]}})
    async with asking.in_process(project) as service:
        run_id = await service.start("both")
        told = await until_explained(service, run_id, "backend_queue")
        shown = await service.show(run_id)
        held.release()

    queued = [step["queued"] for step in shown["steps"] if "queued" in step]
    assert kinds(told) == [(run_id, "agent"), (run_id, "more")]
    assert queued == [{"place": 1, "of": 1, "backend": "said", "limit": "max_parallel: 1"}]


async def test_a_run_below_belongs_to_the_step_that_waits_for_it(project: Project, held: Held) -> None:
    """An agent at work explains a run although another step waits for a run; each waiting step names its own run."""
    project.say("a", text=REPLY, delay_seconds=DELAY_SECONDS)
    kids: dict[str, Any] = {name: [{"child": name, "recipe_id": "ship"}] for name in ("k", "l")}
    asking.add(project, "ship", *asking.SHIP)
    asking.add(project, "both", {"gather": {"a": [{"speak": "a"}], "k": kids["k"]}})
    asking.add(project, "twins", {"gather": kids})
    async with asking.in_process(project) as service:
        both, twins = await service.start("both"), await service.start("twins")
        for run_id in (both, twins):
            await until_explained(service, run_id, "(child_run)")
        told = await until_explained(service, both, "has been at work")
        first = (await until_explained(service, twins, "asks: Ship it?"))["chain"]
        await service.answer(await service.asks(first[-1]["run_id"]), "approve")
        second = (await until_explained(service, twins, "Step l waits for a run of ship: "))["chain"]
        below = [row["run_id"] for row in (await service.http.get(f"/api/runs?parent_run_id={twins}")).json()]
        held.release()

    assert kinds(told) == [(both, "agent"), (both, "more")]
    assert [cause["key"] for cause in (first[0], second[0])] == ["k", "l"]
    assert {first[-1]["run_id"], second[-1]["run_id"]} == {*below}
    assert len(below) == 2


async def test_a_call_behind_the_call_of_another_run(project: Project, held: Held) -> None:
    """Within a budget of tokens a call names the run whose call it waits for, and the remedy if that one waits, too.

    A run that names its parent does not wait.
    """
    project.say("draft", text=REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project) as service:
        await service.http.put("/api/budgets/all", json={"limits": {"tokens": 1_000_000}})
        first = await service.start("draft", args=ARRIVAL)
        await service.until(first, step="draft")
        told = await until_explained(service, late := await service.start("draft", args=ARRIVAL), "until")
        below = await service.start("draft", args=ARRIVAL, parent_run_id=first)
        await until_explained(service, below, "has been at work")
        held.release()
        for run_id in (first, late, below):
            await service.until(run_id, "done")

    assert kinds(told)[:2] == [(late, "budget"), (first, "agent")]
    assert f"Step draft waits until a call of run {first} has ended: within the limit of budget all" in told["sentence"]
    assert f"start it with {first} as its parent" in told["sentence"]
    assert "act" not in told["chain"][0]


async def test_a_silent_agent(project: Project, held: Held) -> None:
    """Detail, metrics, an event and the explanation show that an agent has been silent for long."""
    project.say("draft", text=REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project, stalled_after_seconds=0.2) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        async with asyncio.timeout(served.WAIT_SECONDS):
            while "stalled" not in (shown := await service.show(run_id)):
                await service.http.get(f"/api/runs/{run_id}?wait=5")
            told = await why(service, run_id)
            metrics = (await service.http.get("/metrics")).text
        held.release()
        ended = await service.until(run_id, "done")
    lines = (project.data / "runs" / run_id / "events.jsonl").read_text().splitlines()
    (event,) = [event for event in map(json.loads, lines) if event["type"] == "run.stalled"]

    assert (event["key"], event["data"]["agent_id"]) == ("draft", "writer-1")
    assert shown["stalled"]["key"] == "draft"
    assert shown["stalled"]["silent_seconds"] == event["data"]["silent_seconds"]
    assert kinds(told) == [(run_id, "agent_silent")]
    assert told["sentence"].startswith("Step draft: agent writer-1 (backend said) has been silent for ")
    assert told["chain"][0]["act"] == f"control-room runs pause {run_id} --now"
    assert "control_room_stalled_steps 1.0" in metrics
    assert "stalled" not in ended


async def test_a_time_limit_is_raised(project: Project, held: Held) -> None:
    """A run at its time limit names the limit and the command that raises it; a raise continues the run."""
    project.say("draft", text=REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL, limits={"wall_seconds": 1})
        await service.until(run_id, "paused")
        told = await why(service, run_id)
        raised = await service.http.patch(f"/api/runs/{run_id}/limits", json={"wall_seconds": 3600})
        held.release()
        await service.until(run_id, "done")

    assert kinds(told) == [(run_id, "parked")]
    assert "time_limit" in told["sentence"]
    assert told["chain"][0]["act"] == f"control-room runs limits {run_id} --max-time 2h"
    assert raised.status_code == 200, raised.text


async def test_times_files_and_retries(project: Project) -> None:
    """A timer and a retry show their time, and a wait for files its pattern."""
    asking.add(project, "wait", {"timer": "nap", "seconds": 3000})
    asking.add(project, "files", {"files": "drop", "pattern": "inbox/*.md"})
    missing = {"scene_path": "Story/Scenes/none.md"}
    asking.add(project, "again", {"tool": "look", "name": "prose_analyzer", "args": missing, "retry_seconds": 3000})
    async with asking.in_process(project) as service:
        timer, files, retry = [await service.start(recipe) for recipe in ("wait", "files", "again")]
        await service.until(timer, step="nap")
        await service.until(files, step="drop")
        again = await until_explained(service, retry, "tried again")
        nap, drop = await why(service, timer), await why(service, files)

    assert kinds(nap) == [(timer, "timer")]
    assert nap["chain"][0]["until"] > nap["chain"][0]["since"]
    assert drop["sentence"] == "Step drop waits for a file inbox/*.md."
    assert kinds(again) == [(retry, "retry")]
    assert again["chain"][0]["until"] in again["sentence"]


async def test_pauses_and_endings(project: Project) -> None:
    """A paused, failed, cancelled or denied run explains its end, and the command that continues it."""
    asking.add(project, "ship", *asking.SHIP)
    asking.add(project, "fails", {"check": "look", "path": "none.md"})
    async with asking.in_process(project) as service:
        paused, cancelled, denied = [await service.start("ship") for _ in range(3)]
        for run_id in (paused, cancelled, denied):
            await service.until(run_id, "waiting")
        await service.http.post(f"/api/runs/{paused}/pause")
        await service.until(paused, "paused")
        await service.http.post(f"/api/runs/{cancelled}/cancel")
        await service.answer((await service.gates(run_id=denied))[0], "deny")
        failed = (await service.run("fails"))["run_id"]
        await service.until(denied, "failed")
        await service.until(cancelled, "cancelled")
        told = {run_id: (await why(service, run_id))["chain"][0] for run_id in (paused, cancelled, denied, failed)}

    assert (told[paused]["kind"], told[paused]["act"]) == ("paused", f"control-room runs unpause {paused}")
    assert (told[cancelled]["text"], told[cancelled]["act"]) == (
        "It was cancelled",
        f"control-room runs resume {cancelled}",
    )
    assert "a denial is final" in told[denied]["text"]
    assert "act" not in told[denied]
    assert told[failed]["text"] == "It failed: none.md is missing [missing]"
    assert told[failed]["act"] == f"control-room runs resume {failed}"


async def test_why_names_who_stopped_a_run(project: Project) -> None:
    """A paused or cancelled run names the author of that order."""
    asking.add(project, "ship", *asking.SHIP)
    async with asking.in_process(project) as service:
        paused, cancelled = [await service.start("ship") for _ in range(2)]
        for run_id, order in ((paused, "pause"), (cancelled, "cancel")):
            await service.until(run_id, "waiting")
            await service.http.post(f"/api/runs/{run_id}/{order}", headers={"X-Control-Room-Author": "Bob"})
        told = [(await why(service, run_id))["sentence"] for run_id in (paused, cancelled)]

    assert told == ["Bob (claimed) paused it.", "It was cancelled by Bob (claimed)."]


async def test_a_child_cancelled_with_its_parent(project: Project) -> None:
    """A cancelled child names its parent, and the topmost run to resume; the id of a plan is recognised."""
    asking.add(project, "highest", {"child": "go", "recipe_id": "top"})
    asking.add(project, "top", {"child": "go", "recipe_id": "ship"})
    asking.add(project, "ship", *asking.SHIP)
    async with asking.in_process(project) as service:
        highest = await service.start("highest")
        await until_explained(service, highest, "asks: Ship it?")
        [below] = (await service.http.get(f"/api/runs?parent_run_id={highest}")).json()
        top = below["run_id"]
        await service.http.post(f"/api/runs/{highest}/cancel")
        [child] = (await service.http.get(f"/api/runs?parent_run_id={top}")).json()
        await service.until(child["run_id"], "cancelled")
        await service.until(top, "cancelled")
        told = (await why(service, child["run_id"]))["chain"][0]
        plan = await service.http.get("/api/runs/sp_5h2m9q0x7c/why")

    assert told["text"] == f"It was cancelled, as was run {top}, which started it"
    assert told["act"] == f"control-room runs resume {highest}"
    assert "plans have such ids: control-room plan show sp_5h2m9q0x7c" in plan.json()["detail"]


async def test_a_parked_run(project: Project) -> None:
    """A run of an unknown dialect explains this, and names the command that continues it."""
    asking.add(project, "ship", *asking.SHIP)
    async with asking.in_process(project) as service:
        run_id = await service.start("ship")
        await service.until(run_id, "waiting")
    async with served.in_process(project) as service:
        await service.until(run_id, "paused")
        told = await why(service, run_id)

    assert kinds(told) == [(run_id, "parked")]
    assert told["chain"][0]["text"].startswith("It is parked (unknown_dialect): this version does not know")
    assert told["chain"][0]["act"] == f"control-room runs unpause {run_id}"


async def test_why_names_unreadable_and_damaged_files(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable file is named with the next try, a damaged journal with the command that repairs it."""
    async with served.in_process(project) as service:
        unread, damaged = [(await service.run("quick"))["run_id"] for _ in range(2)]
    faults = ReadFaults(monkeypatch)
    faults.refuse(f"{unread}/start.json")
    journal = project.data / "runs" / damaged / "steps.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"done", b"dome", 1))
    async with served.in_process(project) as service:
        told = [(await why(service, run_id))["chain"][0] for run_id in (unread, damaged)]
        missing = await service.http.get("/api/runs/none/why")

    assert told[0]["kind"] == "unreadable"
    assert told[0]["text"].startswith("start.json cannot be read now (EIO); it is read again at ")
    assert (told[1]["kind"], told[1]["act"]) == ("damaged", f"control-room runs repair {damaged}")
    assert (missing.status_code, missing.json()["code"]) == (404, "run_not_found")


async def test_a_disk_that_takes_nothing(project: Project, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for space reports this, and that it will continue by itself."""
    from app.storage.runs import folder_log

    project.say("draft", text=REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        append, heal = folder_log.FolderLog.append_step, folder_log.FolderLog.heal

        async def refuse(*_: Any) -> None:
            raise errors.StorageFault("No space left on device")

        monkeypatch.setattr(folder_log.FolderLog, "append_step", refuse)
        monkeypatch.setattr(folder_log.FolderLog, "heal", refuse)
        held.release()
        await service.until(run_id, "paused")
        told = await why(service, run_id)
        monkeypatch.setattr(folder_log.FolderLog, "append_step", append)
        monkeypatch.setattr(folder_log.FolderLog, "heal", heal)
        await service.until(run_id, "done")

    assert kinds(told) == [(run_id, "storage")]
    assert "No space left on device; the run continues once it can" in told["sentence"]


async def test_without_a_service_nothing_executes(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line explains from the journals: what waits, that no service runs, and how to start one."""
    recipe = {
        "name": "asking",
        "description": "Ask",
        "version": "1.0.0",
        "schema": "1.7",
        "stages": [
            {
                "name": "first",
                "steps": [{"id": "begin", "type": "bash", "command": "echo begun"}],
                "approval": {"required": True, "prompt": "Go on?"},
            }
        ],
    }
    project.write(".control-room/recipes/amplifier/asking.yaml", json.dumps(recipe))
    project.say("draft", hang=True)
    async with asking.in_process(project, stop_grace_seconds=0) as service:
        gate = await service.asks(run_id := await service.start("asking"))
        running = await service.start("draft", args=ARRIVAL)
        await service.until(running, step="draft")
        shown = await why(service, run_id)
        killed = shutil.copytree(project.root, project.root.parent / "killed", symlinks=True)
    before = {path: path.read_bytes() for path in (project.data / "runs").rglob("*") if path.is_file()}
    place = ["--project", str(project.root)]

    assert await asyncio.to_thread(root.execute, ["runs", "why", run_id, "--json", *place]) == 0
    local = json.loads(capsys.readouterr().out)
    assert await asyncio.to_thread(root.execute, ["runs", "why", running, *place]) == 0
    text = capsys.readouterr().out
    assert await asyncio.to_thread(root.execute, ["runs", "why", running, "--project", str(killed)]) == 0
    left = capsys.readouterr().out
    directory = data_directory.DataDirectory(killed / ".control-room", clock=clock.SystemClock(), ids=clock.RandomIds())
    held = directory.lock_engine(shared=True)
    assert await asyncio.to_thread(root.execute, ["runs", "why", running, "--project", str(killed)]) == 0
    by_workers = capsys.readouterr().out
    assert await asyncio.to_thread(root.execute, ["runs", "show", running, "--json", "--project", str(killed)]) == 0
    at_work = [step["key"] for step in json.loads(capsys.readouterr().out)["steps"] if step["status"] == "running"]
    assert await asyncio.to_thread(root.execute, ["runs", "list", "--project", str(killed)]) == 0
    capsys.readouterr()
    held.release()
    held = directory.lock_engine(shared=False)
    assert await asyncio.to_thread(root.execute, ["runs", "why", running, "--project", str(killed)]) == 0
    by_no_worker = capsys.readouterr().out
    held.release()
    states = {}
    for each in (run_id, running):
        assert await asyncio.to_thread(root.execute, ["runs", "show", each, "--json", *place]) == 0
        detail = json.loads(capsys.readouterr().out)
        states[each] = detail["status"], [step["key"] for step in detail["steps"] if step["status"] == "running"]

    assert states == {run_id: ("waiting", [gate["key"]]), running: ("running", [])}
    assert local == shown
    assert local["chain"][0]["act"] == f"control-room gates answer {gate['gate_id']} approve"
    assert "Nothing executes it, because no service runs; Step draft is next." in text
    assert "Step draft was under way when its process ended." in left
    assert at_work == ["draft"]
    assert by_no_worker == left
    assert "Nothing executes it" not in by_workers
    assert "Workers on Temporal execute it, and no service runs, which would accept orders" in by_workers
    assert "control-room serve --engine temporal" in by_workers
    assert "control-room serve" in text
    assert {path: path.read_bytes() for path in (project.data / "runs").rglob("*") if path.is_file()} == before


async def test_the_folder_shows_the_steps_at_which_a_service_works(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command in the folder shows an open step like the service that performs it."""
    project.say("draft", hang=True)
    place = ["--project", str(project.root)]
    async with served.in_process(project, stop_grace_seconds=0) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
        graph = (await service.http.get(f"/api/runs/{run_id}/graph")).json()
        assert await asyncio.to_thread(root.execute, ["runs", "graph", run_id, "--json", *place]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert await asyncio.to_thread(root.execute, ["runs", "show", run_id, "--json", *place]) == 0
        shown = json.loads(capsys.readouterr().out)["steps"][-1]

    assert seen == graph
    assert [node["status"] for node in graph["nodes"] if node["id"] == "draft"] == ["running"]
    assert (shown["key"], shown["status"]) == ("draft", "running")


async def test_the_command_asks_a_server(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """With --server, the command prints the answer of the service."""
    with served.in_a_thread(project) as address:

        def ask(*arguments: str) -> int:
            return root.execute([*arguments, "--server", address])

        assert await asyncio.to_thread(ask, "run", "quick") == 0
        run_id = capsys.readouterr().out.split()[1]
        assert await asyncio.to_thread(ask, "runs", "why", run_id) == 0

    assert capsys.readouterr().out.startswith("It is done.")


async def test_a_command_that_stops_before_it_begins(project: Project) -> None:
    """A run whose command was stopped before it began has a cause, in that command as well."""
    async with folder_client.connect(served.chosen(project), Access.START) as folder:
        await folder.application.engine.stop(0)
        started = await folder.call(use_cases.start_run, requests.StartRequest(recipe_id="draft", args=ARRIVAL))
        told = await folder.call(explaining.explain_run, started["run_id"])

    assert [link["kind"] for link in told["chain"]] == ["queued"]
    assert told["sentence"] == "Its command has not begun with it."
