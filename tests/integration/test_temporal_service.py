"""A service on Temporal over HTTP: answers about runs that other processes execute."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap  # noqa: E402
from app.engine import stores  # noqa: E402
from app.services import budgets, output_times  # noqa: E402
from app.temporal import live_reports, messages, replayed_runs, server_watch, slices, steps, worker  # noqa: E402
from app.worker import shared_ledger  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration import served  # noqa: E402
from tests.integration.test_budgets import USAGE, spent_once  # noqa: E402
from tests.integration.test_temporal_engine import ASKING, WORK, chosen  # noqa: E402

COUNTING = [{"id": f"s{number}", "type": "bash", "command": f"echo {number} >> count"} for number in range(10)]


@pytest.fixture
def project(tmp_path: Path) -> projects.Project:
    """Create a project with recipes for this engine."""
    made = projects.Project(tmp_path / "project")
    counting = {"schema": "1.7", "name": "counting", "description": "Counts", "version": "1.0.0", "steps": COUNTING}
    made.write(".control-room/recipes/amplifier/counting.yaml", json.dumps(counting))
    made.write(".control-room/recipes/amplifier/asking.yaml", json.dumps(ASKING))
    return made


@pytest.fixture
async def service(project: projects.Project, temporal: temporal_server.DevServer) -> AsyncIterator[served.Served]:
    """Serve a project, with one worker."""
    async with serving(project, temporal) as service:
        yield service


@contextlib.asynccontextmanager
async def serving(project: projects.Project, temporal: temporal_server.DevServer) -> AsyncIterator[served.Served]:
    """Serve a project during the block, with one worker."""
    await temporal_server.connected(temporal.address)
    async with (
        served.in_process(project, engine="temporal", temporal=temporal.address) as service,
        bootstrap.build(chosen(project, temporal.address), WORK),
    ):
        yield service


async def test_a_run_at_a_gate_is_shown_as_waiting(service: served.Served) -> None:
    """Detail, list and gates show that the run waits, also in long polls; its answer lets it continue to its end."""
    run_id = await service.start("asking")
    shown = await service.until(run_id, "waiting")
    listed = await only_item(service, "/api/runs?status=waiting")
    gate = await only_item(service, "/api/gates")

    assert (listed["run_id"], gate["run_id"], gate["options"]) == (run_id, run_id, ["approve", "deny"])
    assert shown["steps"][-1]["key"] == gate["key"]
    answer = await service.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
    assert answer.status_code == 200
    assert (await service.until(run_id, "done"))["error"] is None
    assert (await service.http.get("/api/gates")).json() == []


HELD = [
    {"id": "held", "type": "bash", "command": "touch begun; while [ ! -e go ]; do sleep 0.05; done"},
    {"id": "next", "type": "bash", "command": "echo next"},
]


async def begin_held(project: projects.Project, service: served.Served) -> str:
    """Start a run, and wait until its command, which ends once the file `go` exists, is at work."""
    whole = {"schema": "1.7", "name": "held", "description": "Waits", "version": "1.0.0", "steps": HELD}
    project.write(".control-room/recipes/amplifier/held.yaml", json.dumps(whole))
    run_id = await service.start("held")

    async def begun() -> bool:
        return (project.root / "begun").exists()

    await temporal_server.until(begun)
    return run_id


def state(shown: dict[str, Any]) -> tuple[Any, ...]:
    """Return the state of a shown run with its reason, and the keys and states of its steps."""
    return shown["status"], shown["reason"], [(step["key"], step["status"]) for step in shown["steps"]]


async def test_a_run_that_pauses_is_running_while_its_step_is_at_work(
    project: projects.Project, service: served.Served
) -> None:
    """The order, the run and its explanation say that it pauses; it is paused once the step has ended."""
    run_id = await begin_held(project, service)
    ordered = (await service.http.post(f"/api/runs/{run_id}/pause")).json()
    pausing = await service.show(run_id)
    why = (await service.http.get(f"/api/runs/{run_id}/why")).json()
    project.write("go", "")
    paused = await service.until(run_id, "paused")

    assert (ordered["status"], ordered["reason"]) == ("running", "pausing")
    assert state(pausing) == ("running", "pausing", [("held", "running")])
    assert [cause["kind"] for cause in why["chain"]] == ["pausing", "agent"]
    assert state(paused) == ("paused", "paused_by_person", [("held", "done")])


async def test_a_run_that_is_interrupted_by_its_pause_is_shown_as_paused(
    project: projects.Project, service: served.Served
) -> None:
    """Its interrupted step has no line, and is not shown as being performed."""
    run_id = await begin_held(project, service)
    await service.http.post(f"/api/runs/{run_id}/pause", json={"interrupt": True})
    assert state(await service.until(run_id, "paused")) == ("paused", "paused_by_person", [])


@pytest.mark.slow
async def test_orders_while_the_server_is_away_are_shown(project: projects.Project, tmp_path: Path) -> None:
    """A run shows the cancel that is durable; explanations name the server, and no worker that could help."""
    own = temporal_server.DevServer(tmp_path)
    own.start()
    try:
        async with serving(project, own) as service:
            run_id = await begin_held(project, service)
            own.stop()
            ordered = (await service.http.post(f"/api/runs/{run_id}/cancel")).json()
            shown = await service.show(run_id)
            why = (await service.http.get(f"/api/runs/{run_id}/why")).json()
            new = (await service.http.get(f"/api/runs/{await service.start('held')}/why")).json()
            own.start()
            await service.until(run_id, "cancelled")
    finally:
        own.stop()

    assert (ordered["status"], ordered["reason"]) == ("running", "cancelling")
    assert (shown["status"], shown["reason"]) == ("running", "cancelling")
    away = "its worker cannot be asked: the Temporal server does not answer: "
    assert why["sentence"].startswith(f"It is being cancelled; Step held: {away}")
    assert [(cause["kind"], cause.get("act")) for cause in why["chain"]] == [("cancelling", None), ("no_worker", None)]
    assert new["sentence"].startswith(f"Step held: {away}")


async def test_a_server_that_is_away_is_shown(
    project: projects.Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is away the service is ready, and readiness, metrics and statistics say since when; the log once."""
    monkeypatch.setattr(server_watch, "CHECK_SECONDS", 0.05)
    own = temporal_server.DevServer(tmp_path)
    own.start()

    async def until_shown(service: served.Served, *, is_away: bool) -> list[str | None]:
        async def is_shown() -> bool:
            return ("temporal_away_since" in (await service.http.get("/readyz")).json()) is is_away

        await temporal_server.until(is_shown)
        ready = await service.http.get("/readyz")
        service_state = (await service.http.get("/api/stats?since=2026-01-01T00:00:00Z")).json()["service"]
        shown = [each.get("temporal_away_since") for each in (ready.json(), service_state)]
        assert ready.status_code == 200
        assert f'control_room_up{{what="temporal"}} {int(not is_away)}.0' in (await service.http.get("/metrics")).text
        return shown

    try:
        async with serving(project, own) as service:
            first = await until_shown(service, is_away=False)
            own.stop()
            away = await until_shown(service, is_away=True)
            own.start()
            back = await until_shown(service, is_away=False)
    finally:
        own.stop()

    logged = [line for line in caplog.messages if line.startswith("the Temporal server") and "roster" not in line]
    assert (first, back) == ([None, None], [None, None])
    assert away[0] is not None
    assert sum("orders are accepted" in line for line in logged) == 1


@pytest.mark.slow
async def test_a_step_of_another_process_shows_when_it_had_output(
    project: projects.Project, service: served.Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run and list show the time of a step's last output, and output alone does not end a poll of the run."""
    monkeypatch.setattr(output_times, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(live_reports, "READ_SECONDS", 0.0)
    monkeypatch.setattr(live_reports, "REPORT_SECONDS", 0.05)
    command = "echo said; while [ ! -e go ]; do sleep 0.05; done"
    talking = {"schema": "1.7", "name": "talking", "description": "Talks", "version": "1.0.0"}
    steps_of = [{"id": "talk", "type": "bash", "command": command}]
    project.write(".control-room/recipes/amplifier/talking.yaml", json.dumps(talking | {"steps": steps_of}))
    run_id = await service.start("talking")
    shown: dict[str, Any] = {}

    async def has_output() -> bool:
        for step in (await service.show(run_id))["steps"]:
            shown.update(step)
        return shown.get("output_at") is not None

    await temporal_server.until(has_output)
    again = (await service.show(run_id))["steps"][-1]
    listed: dict[str, Any] = {}

    async def is_listed() -> bool:
        listed.update((await service.http.get("/api/runs")).json()[0]["live_step"] or {})
        return listed.get("output_at") is not None

    await temporal_server.until(is_listed)
    project.write("go", "")
    done = await service.until(run_id, "done")

    assert shown["output_at"] >= shown["started_at"][:19]
    assert again["output_at"] >= shown["started_at"][:19]
    assert "output_at" not in done["steps"][-1]
    assert (listed["key"], listed["step_id"]) == ("talk", "talk")
    assert shown["started_at"][:19] <= listed["output_at"]
    assert (await service.http.get("/api/runs")).json()[0]["live_step"] is None


async def only_item(service: served.Served, address: str) -> dict[str, Any]:
    """Wait until a list has an item, since rows follow the journal, and return its only item."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found[:] = (await service.http.get(address)).json()
        return len(found) == 1

    await temporal_server.until(is_there)
    return found[0]


@pytest.mark.slow
async def test_a_superseded_try_that_nothing_follows_is_repeated(
    service: served.Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lost the run while it recorded a step writes no line, and the step is performed again."""
    perform = steps.Steps.perform
    refused: list[str] = []

    async def supersede_once(self: steps.Steps, order: messages.StepOrder, *more: Any) -> slices.Slice:
        if order.key == "s3" and not refused:
            refused.append(order.key)
            raise replayed_runs.Superseded
        return await perform(self, order, *more)

    monkeypatch.setattr(steps.Steps, "perform", supersede_once)
    run_id = await service.start("counting")
    shown = await service.until(run_id, "done", "failed")

    assert shown["status"] == "done"
    assert refused == ["s3"]


@pytest.mark.slow
async def test_labels_of_a_run_at_a_gate_can_be_changed(service: served.Served) -> None:
    """The run keeps waiting and shows its new labels."""
    run_id = await service.start("asking")
    await service.until(run_id, "waiting")
    marked = await service.http.patch(f"/api/runs/{run_id}", json={"labels": {"team": "blue"}})

    assert marked.status_code == 200, marked.text
    shown = await service.show(run_id)
    assert (shown["labels"], shown["status"]) == ({"team": "blue"}, "waiting")
    assert (await service.http.post(f"/api/runs/{run_id}/cancel")).status_code == 200
    await service.until(run_id, "cancelled")


@pytest.mark.slow
async def test_a_long_run_continues_in_further_workflows(
    service: served.Served,
    temporal: temporal_server.DevServer,
    project: projects.Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each workflow performs a limited number of steps, each step is performed once, and all histories replay."""
    monkeypatch.setattr(messages, "STEPS_OF_A_HISTORY", 4)
    begun: list[str] = []
    original = replayed_runs.replay_run

    async def counted(log: stores.RunLog, *given: Any, **more: Any) -> replayed_runs.ReplayedRun:
        begun.append(log.loaded.start.run_id)
        return await original(log, *given, **more)

    monkeypatch.setattr(replayed_runs, "replay_run", counted)
    run_id = await service.start("counting")
    shown = await service.until(run_id, "done", "failed")
    client = await Client.connect(temporal.address)
    workflow_id = messages.workflow_id(run_id)
    found = [each async for each in client.list_workflows(f"WorkflowId = '{workflow_id}'")]

    assert shown["status"] == "done"
    assert (project.root / "count").read_text().split() == [str(number) for number in range(10)]
    assert len(found) == 3
    # Once after each `taken`, and not for each step.
    assert len(begun) <= 3
    async with bootstrap.build(chosen(project, temporal.address), bootstrap.OpenMode(look_only=True)) as reader:
        replayer = worker.replayer(slices.Contents(reader.store))
        for each in found:
            await replayer.replay_workflow(
                await client.get_workflow_handle(workflow_id, run_id=each.run_id).fetch_history()
            )


@pytest.mark.slow
async def test_an_order_is_answered_while_the_server_is_away(project: projects.Project, tmp_path: Path) -> None:
    """A cancel is durable at once, and reaches the run when the server is back."""
    away = temporal_server.DevServer(tmp_path)
    away.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(away.stop)
        await temporal_server.connected(away.address)
        service = await stack.enter_async_context(served.in_process(project, engine="temporal", temporal=away.address))
        await stack.enter_async_context(bootstrap.build(chosen(project, away.address), WORK))
        run_id = await service.start("asking")
        await service.until(run_id, "waiting")
        away.stop()
        cancelled = await service.http.post(f"/api/runs/{run_id}/cancel")
        control: Any = [
            json.loads(line)["kind"]
            for line in (project.root / f".control-room/runs/{run_id}/control.jsonl").read_text().splitlines()
        ]
        away.start()
        assert cancelled.status_code == 200, cancelled.text
        assert control[-1] == "cancel_requested"
        await service.until(run_id, "cancelled")


@pytest.mark.slow
async def test_workers_over_folders_spend_a_budget_once(
    project: projects.Project,
    temporal: temporal_server.DevServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs on two workers keep within the calls of a budget, and continue once the budget is raised."""
    monkeypatch.setattr(budgets, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.0)
    project.say("*", text="Kael stepped off the last ferry and saw that the lantern was dark.", usage=USAGE)
    await temporal_server.connected(temporal.address)
    async with served.in_process(project, engine="temporal", temporal=temporal.address) as service:
        # Workers read changed budgets within seconds; these know the budget when they start.
        await service.http.put("/api/budgets/drafts", json={"recipe_id": "draft", "limits": {"calls": 2}})
        async with (
            bootstrap.build(chosen(project, temporal.address), WORK),
            bootstrap.build(chosen(project, temporal.address), WORK),
        ):
            await spent_once(service, service, calls=2)
