"""Kills with the engine on Temporal: workers that die or sleep, and a server that has lost its database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap, clock, errors  # noqa: E402
from app.dialects import registry  # noqa: E402
from app.domain import limits, operations, plain, records, states  # noqa: E402
from app.engine import ports, probes, run_equipment  # noqa: E402
from app.services import gate_inbox, gates  # noqa: E402
from app.temporal import engine, replayed_runs, slices, steps, worker  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration.test_temporal_engine import ASKING, SERVE, Scene, chosen  # noqa: E402

pytestmark = pytest.mark.slow

STEPS = """
schema: "1.7"
name: once
description: once
version: "1.0.0"
steps:
  - {id: first, type: bash, command: "echo x >> first"}
  - {id: second, type: bash, command: "echo $$ >> second; while [ ! -e go ]; do sleep 0.05; done; echo over"}
  - {id: third, type: bash, command: "echo z >> third"}
"""


class Workers:
    """Workers as processes."""

    def __init__(self, project: projects.Project, address: str) -> None:
        self._project = project
        self._command = [sys.executable, "-m", "app", "worker", "--temporal", address]
        self._command += ["--project", str(project.root)]
        self.running: list[subprocess.Popen[str]] = []

    async def begin(self) -> subprocess.Popen[str]:
        """Start a worker, and wait until it is ready."""
        environ = os.environ | {"HOME": str(self._project.root / "nobody"), "PYTHONPATH": str(Path.cwd())}
        log = (self._project.root / f"worker{len(self.running)}.log").open("w")
        begun = subprocess.Popen(  # noqa: ASYNC220 - starting a process takes a millisecond
            self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ
        )
        self.running.append(begun)
        assert begun.stdout is not None
        line = await asyncio.to_thread(begun.stdout.readline)
        assert line.startswith("worker: ready"), line
        return begun

    def kill_all(self) -> None:
        """Kill the remaining workers."""
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[temporal_server.DevServer]:
    """Run a server of the test's own."""
    folder = tmp_path / "server"
    folder.mkdir()
    running = temporal_server.DevServer(folder)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def project(tmp_path: Path) -> projects.Project:
    """Create a project."""
    made = projects.Project(tmp_path / "project")
    made.write(".control-room/recipes/amplifier/once.yaml", STEPS)
    stages = [dict(stage) for stage in ASKING["stages"]]
    stages[0] |= {"steps": [{"id": "a", "type": "bash", "command": "echo x >> first"}]}
    made.write(".control-room/recipes/amplifier/asking.yaml", json.dumps({**ASKING, "stages": stages}))
    return made


@pytest.fixture
def workers(project: projects.Project, server: temporal_server.DevServer) -> Iterator[Workers]:
    """Return the workers, and kill them at the end."""
    made = Workers(project, server.address)
    yield made
    made.kill_all()


@pytest.fixture
async def scene(project: projects.Project, server: temporal_server.DevServer) -> AsyncIterator[Scene]:
    """Serve a project, without a worker."""
    await temporal_server.connected(server.address)
    async with bootstrap.build(chosen(project, server.address), SERVE) as service:
        yield Scene(service, project, await Client.connect(server.address))


async def test_another_worker_continues_a_killed_workers_run(scene: Scene, workers: Workers):
    """Recorded steps are not repeated; the step in flight is performed again as its next attempt, in time."""
    first = await workers.begin()
    run_id = await scene.start("once")
    await scene.there("second")
    await workers.begin()
    first.kill()
    await scene.there("second", lines=2)
    scene.project.write("go", "")
    assert await scene.ended(run_id) is states.RunState.DONE

    lines = (await scene.service.store.read(run_id)).records
    assert [(line.key, line.attempt) for line in lines] == [("first", 1), ("second", 2), ("third", 1)]
    assert (await scene.there("first"), await scene.there("third")) == ("x\n", "z\n")
    assert (await scene.service.maintenance.verify(run_id))["ok"]


async def test_a_worker_that_slept_too_long_writes_no_line(
    scene: Scene, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    """A worker that wakes after another has taken over its step writes no line."""
    # A frozen worker takes the tasks that it polled for, and keeps each until its time-out.
    monkeypatch.setattr(worker, "TASK_TIMEOUT", timedelta(seconds=5))
    sleeper = await workers.begin()
    run_id = await scene.start("once")
    await scene.there("second")
    os.kill(sleeper.pid, signal.SIGSTOP)
    await workers.begin()
    await scene.there("second", lines=2)
    scene.project.write("go", "")
    assert await scene.ended(run_id, seconds=100) is states.RunState.DONE
    os.kill(sleeper.pid, signal.SIGCONT)
    sleeper.terminate()
    assert await asyncio.to_thread(sleeper.wait, 30) == 0

    lines = (await scene.service.store.read(run_id)).records
    assert [(line.key, line.attempt) for line in lines] == [("first", 1), ("second", 2), ("third", 1)]
    assert (await scene.service.maintenance.verify(run_id))["ok"]


async def test_a_server_that_lost_its_database_loses_no_run(
    scene: Scene, workers: Workers, server: temporal_server.DevServer
):
    """A lost workflow begins again from the journal, repeats no step, and accepts the answer of its gate."""
    await workers.begin()
    run_id = await scene.start("asking")
    await scene.until(run_id, states.RunState.WAITING)
    server.wipe()
    server.start()
    await temporal_server.connected(server.address)
    [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
    await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
    assert await scene.ended(run_id) is states.RunState.DONE

    assert await scene.there("first") == "x\n"
    assert await scene.keys(run_id) == ["a", "approval:one", "b"]


async def test_a_call_counts_once_whose_worker_was_killed(scene: Scene, workers: Workers):
    """A reserved call without a line counts as reserved, and the run parks at its limit."""
    usage = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}
    scene.project.say("*", text=projects.REPLY, usage=usage, delay_seconds=3600)
    first = await workers.begin()
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    run_id = await scene.start("draft", args=args, limits=limits.RunLimits(calls=2))

    async def is_reserved() -> bool:
        return bool((await scene.service.store.read(run_id)).decisions.reserved)

    await temporal_server.until(is_reserved)
    first.kill()
    scene.project.say("*", text=projects.REPLY, usage=usage)
    await workers.begin()
    await scene.until(run_id, states.RunState.PAUSED)
    paused = await scene.service.store.read(run_id)
    raised = await scene.service.budgets.limit(run_id, {"calls": 3})
    assert await scene.ended(run_id) is states.RunState.DONE

    asked = [(line.key, line.attempt) for line in paused.records if line.line.get("agent_id")]
    assert (asked, paused.decisions.paused) == ([("draft", 2)], "budget_exhausted")
    error = paused.decisions.pause_error
    assert error is not None
    assert (error["key"], error["detail"]["used"]["calls"]) == ("polish", 2)
    assert raised.budget.left.calls == 1
    spent = await scene.service.engine.spending.counted(run_id, limits.RunLimits(calls=3))  # type: ignore[union-attr]
    assert (spent.used.calls, spent.used.cost_usd) == (3, 0.5)


async def test_active_time_counts_over_a_killed_worker_and_a_lost_server(
    scene: Scene, workers: Workers, server: temporal_server.DevServer
):
    """Attempts without a line count as active time until the next one; a lower limit interrupts the newest attempt."""
    first = await workers.begin()
    run_id = await scene.start("once", limits=limits.RunLimits(active_seconds=3600))
    await scene.there("second")
    await workers.begin()
    first.kill()
    await scene.there("second", lines=2)
    server.wipe()
    server.start()
    await temporal_server.connected(server.address)
    await scene.there("second", lines=3)
    begun = [clock.instant(one.at) for one in (await scene.service.store.read(run_id)).decisions.attempts["second"]]
    await scene.service.budgets.limit(run_id, {"active_seconds": 1})
    await scene.until(run_id, states.RunState.PAUSED)
    decided = (await scene.service.store.read(run_id)).decisions
    scene.project.write("go", "")
    await scene.service.budgets.limit(run_id, {"active_seconds": None})
    assert await scene.ended(run_id) is states.RunState.DONE

    assert (decided.paused, len(begun)) == ("time_limit", 3)
    used = decided.pause_error["detail"]["used_seconds"]  # type: ignore[index]
    recorded = (await scene.service.store.read(run_id)).records[0]
    began, ended, paused = (
        clock.instant(str(at)) for at in (recorded.started_at, recorded.completed_at, decided.paused_at)
    )
    assert (begun[1] - begun[0]).total_seconds() <= used <= (paused - began).total_seconds()
    assert used == pytest.approx(decided.cut_seconds + (ended - began).total_seconds(), abs=0.01)


async def test_an_order_whose_signal_was_lost_reaches_its_run(
    project: projects.Project, workers: Workers, server: temporal_server.DevServer, monkeypatch: pytest.MonkeyPatch
):
    """If a service is killed after it has written a cancel, the next service sends the signal."""
    await temporal_server.connected(server.address)
    await workers.begin()
    signals = engine.TemporalEngine._signal

    async def lose(self: engine.TemporalEngine, run_id: str, signal: str, arguments: list[Any]) -> None:
        if signal != "cancel":
            await signals(self, run_id, signal, arguments)

    client = await Client.connect(server.address)
    async with bootstrap.build(chosen(project, server.address), SERVE) as service:
        scene = Scene(service, project, client)
        run_id = await scene.start("asking")
        await scene.until(run_id, states.RunState.WAITING)
        monkeypatch.setattr(engine.TemporalEngine, "_signal", lose)
        await service.engine.cancel(run_id)
        assert not states.RunState((await service.store.summary(run_id)).status).finished

    async with bootstrap.build(chosen(project, server.address), SERVE) as service:
        assert await Scene(service, project, client).ended(run_id) is states.RunState.CANCELLED


class Waking:
    """A performer that finishes the first attempt on request, and every other one at once."""

    def __init__(self) -> None:
        self.sleeps = asyncio.Event()
        self.wakes = asyncio.Event()

    async def perform(self, call: ports.Call) -> records.Result:
        """Return the number of the attempt."""
        if call.attempt == 1:
            self.sleeps.set()
            await self.wakes.wait()
        return records.Result(output=f"try {call.attempt}")


async def test_the_line_of_a_newer_try_is_the_record(scene: Scene):
    """The result of an earlier attempt that ends after a newer one is refused, and kept as a blob."""
    run_id, waking = await scene.start("once"), Waking()
    contents = slices.Contents(scene.service.store)
    tools = run_equipment.Equipment(
        performers={operations.Command.kind: waking},
        clock=clock.SystemClock(),
        masker=plain.Masker(),
        probes=probes.NoProbes(),
    )
    given = {"drivers": registry.DIALECTS, "equipment": tools, "contents": contents}
    here, there = (steps.Steps(store=scene.service.store, **given) for _ in range(2))  # type: ignore[arg-type]
    order = await here.key_order(run_id, "first", "step")
    early = asyncio.create_task(here.perform(order))
    await waking.sleeps.wait()
    await there.perform(order)
    waking.wakes.set()
    with pytest.raises(replayed_runs.Superseded):
        await early

    [line] = (await scene.service.store.read(run_id)).records
    assert (line.attempt, line.output) == (2, "try 2")
    control = (scene.project.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
    [late] = [found for found in map(json.loads, control) if found["kind"] == "late"]
    kept = await scene.service.store.read_blob(run_id, records.BlobRef.from_json(late["blob"]))
    assert (late["key"], late["attempt"], kept["output"]) == ("first", 1, "try 1")


class Away:
    """A store that refuses access a few times on request."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.refusals: list[errors.ControlRoomError | errors.StorageFault] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self, run_id: str) -> Any:
        """Open a run, or raise the next refusal."""
        if self.refusals:
            raise self.refusals.pop()
        return await self._store.open(run_id)


class Hurried(clock.SystemClock):
    """A clock that does not wait."""

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run first."""
        await asyncio.sleep(0)


async def test_a_result_waits_until_the_store_is_back(scene: Scene):
    """The result of a performed step is recorded once the store answers, and the step is not performed again."""
    run_id, store = await scene.start("once"), Away(scene.service.store)
    performed: list[int] = []

    class Paid:
        async def perform(self, call: ports.Call) -> records.Result:
            """Make the store unreachable when the result is ready."""
            performed.append(call.attempt)
            store.refusals = [errors.StorageFault("away"), errors.Unreadable("away"), errors.StorageFault("away")]
            return records.Result(output="paid")

    tools = run_equipment.Equipment(
        performers={operations.Command.kind: Paid()},
        clock=Hurried(),
        masker=plain.Masker(),
        probes=probes.NoProbes(),
    )
    working = steps.Steps(
        store=cast(Any, store), drivers=registry.DIALECTS, equipment=tools, contents=slices.Contents(cast(Any, store))
    )
    await working.perform(await working.key_order(run_id, "first", "step"))

    [line] = (await scene.service.store.read(run_id)).records
    assert (performed, line.attempt, line.output, store.refusals) == ([1], 1, "paid", [])
