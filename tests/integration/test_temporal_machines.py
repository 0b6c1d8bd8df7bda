"""Several machines: services and workers with separate data directories on one store and one Temporal server."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap, clock, errors, settings  # noqa: E402
from app.bootstrap import leading  # noqa: E402
from app.domain import states  # noqa: E402
from app.engine import stores  # noqa: E402
from app.services import gate_inbox, gates  # noqa: E402
from app.temporal import worker  # noqa: E402
from tests import ports, postgres_server  # noqa: E402
from tests.agent_programs.fake_model import replies  # noqa: E402
from tests.agent_programs.fake_model.server import FakeModel  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration import served  # noqa: E402
from tests.integration.test_temporal_engine import ASKING, SERVE, WORK, Scene  # noqa: E402
from tests.integration.test_temporal_service import only_item  # noqa: E402

ONCE = [
    {"id": "first", "type": "bash", "command": "echo $WORKER >> first"},
    {"id": "second", "type": "bash", "command": "echo $WORKER >> second; while [ ! -e go ]; do sleep 0.05; done"},
    {"id": "third", "type": "bash", "command": "echo $WORKER >> third"},
]
_NUMBERS = itertools.count()
PARENT = [{"id": "child", "type": "recipe", "recipe": "waiting", "timeout": 120}]


@pytest.fixture
def databases(postgres: postgres_server.Postgres) -> Callable[[], str]:
    """Return a function that creates an empty database and returns its address."""
    return lambda: postgres.new_database(f"machines {next(_NUMBERS)}")


class Machines:
    """Machines with the project at the same path, each with its own data directory."""

    def __init__(self, project: projects.Project, address: str, url: str) -> None:
        self.project = project
        self.address = address
        self.url = url
        self.running: list[subprocess.Popen[str]] = []
        self.ports: dict[int, int] = {}
        """Ports of services, by process."""

    def given(self, machine: str = "", **more: Any) -> dict[str, Any]:
        """Return the settings of a machine that differ from the defaults, and copy the project's recipes to it."""
        self._equip(machine)
        data = {"data": Path(f".machine-{machine}")} if machine else {}
        return {"engine": "temporal", "temporal": self.address, "store_url": self.url, **data, **more}

    def chosen(self, machine: str = "", **more: Any) -> settings.Settings:
        """Return the settings of a machine."""
        return served.chosen(self.project, **self.given(machine, **more))

    async def work(self, machine: str, **more: str) -> subprocess.Popen[str]:
        """Start a worker as a process on a machine, and wait until it is ready."""
        return await self._begin(machine, "worker: ready", "worker", **more)

    async def serve(self, machine: str, **more: str) -> subprocess.Popen[str]:
        """Start a service as a process on a machine, and wait until it is ready."""
        port = ports.free_port()
        command = ("serve", "--engine", "temporal", "--port", str(port))
        begun = await self._begin(machine, "Control Room", *command, **more)
        self.ports[begun.pid] = port
        return begun

    async def ask(self, machine: str, *command: str) -> str:
        """Return the output of a command that only reads, as JSON, on a machine."""
        whole = [sys.executable, "-m", "app", *command, "--json"]
        asked = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
        return str((await asyncio.to_thread(asked, whole, env=self._environ(machine))).stdout)

    def _environ(self, machine: str) -> dict[str, str]:
        return os.environ | {
            "HOME": str(self.project.root / "nobody"),
            "PYTHONPATH": str(Path.cwd()),
            "WORKER": machine,
            "CONTROL_ROOM_DATA_DIRECTORY": f".machine-{machine}",
            "CONTROL_ROOM_STORE_URL": self.url,
            "CONTROL_ROOM_PROJECT": str(self.project.root),
        }

    async def _begin(self, machine: str, ready: str, *command: str, **more: str) -> subprocess.Popen[str]:
        self._equip(machine)
        environ = self._environ(machine) | more
        log = (self.project.root / f"{machine}.log").open("a")
        whole = [sys.executable, "-m", "app", *command, "--temporal", self.address]
        begun = subprocess.Popen(  # noqa: ASYNC220 - starting a process takes a millisecond
            whole, stdout=subprocess.PIPE, stderr=log, text=True, env=environ
        )
        self.running.append(begun)
        assert begun.stdout is not None
        line = await asyncio.to_thread(begun.stdout.readline)
        assert line.startswith(ready), line
        return begun

    def kill_all(self) -> None:
        """Kill the remaining processes."""
        for process in self.running:
            process.kill()
            process.wait()

    def _equip(self, machine: str) -> None:
        # Workers start children, and need the recipes for that.
        data = self.project.root / f".machine-{machine}"
        if machine:
            for folder in ("recipes", "prompts"):
                shutil.copytree(self.project.data / folder, data / folder, dirs_exist_ok=True)
            for file in ("agents.json", "replies.json"):
                shutil.copy(self.project.data / file, data)


@pytest.fixture
def machines(tmp_path: Path, temporal: temporal_server.DevServer, databases: Callable[[], str]) -> Iterator[Machines]:
    """Create a project, and kill its workers at the end."""
    project = projects.Project(tmp_path / "project")
    for name, steps in (("once", ONCE), ("waiting", ONCE), ("parent", PARENT)):
        whole = {"schema": "1.7", "name": name, "description": name, "version": "1.0.0", "steps": steps}
        project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
    project.write(".control-room/recipes/amplifier/asking.yaml", json.dumps(ASKING))
    made = Machines(project, temporal.address, databases())
    yield made
    made.kill_all()


@pytest.fixture
async def scene(machines: Machines) -> AsyncIterator[Scene]:
    """Serve the project on a machine without a worker."""
    await temporal_server.connected(machines.address)
    async with bootstrap.build(machines.chosen(), SERVE) as service:
        yield Scene(service, machines.project, await Client.connect(machines.address))


async def test_a_run_is_executed_by_a_worker_of_another_machine(scene: Scene, machines: Machines):
    """Service and worker share only store and server; the run ends, and is placed on the worker's machine."""
    async with bootstrap.build(machines.chosen("a"), WORK):
        run_id = await scene.start("asking")
        await scene.until(run_id, states.RunState.WAITING)
        [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
        await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
        assert await scene.ended(run_id) is states.RunState.DONE

    loaded = await scene.service.store.read(run_id)
    assert loaded.decisions.placed == (machines.project.root / ".machine-a/data_directory_id").read_text().strip()
    assert (await scene.service.maintenance.verify(run_id))["ok"]


@pytest.mark.slow
async def test_a_model_behind_http_is_asked_from_any_machine(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Prompts go to the worker that serves the model, which may lack the workspace; other steps remain with the run."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    await temporal_server.connected(machines.address)
    with FakeModel(lambda _: replies.Reply(text=projects.REPLY)) as model:
        file = machines.project.data / "agents.json"
        roster = json.loads(file.read_text())
        roster["backends"]["said"] = {
            "type": "openai",
            "base_url": f"{model.address}/v1",
            "models": dict.fromkeys(("haiku", "sonnet", "opus"), "fake-model"),
        }
        file.write_text(json.dumps(roster))
        async with bootstrap.build(machines.chosen(), SERVE) as service:
            scene = Scene(service, machines.project, await Client.connect(machines.address))
            await machines.work("a", CONTROL_ROOM_SERVE="tools,commands")
            far = tmp_path / "elsewhere"
            shutil.copytree(machines.project.data, far / ".machine-b")
            asking = await machines.work("b", CONTROL_ROOM_PROJECT=str(far), CONTROL_ROOM_SERVE="backend:said")
            args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
            run_id = await scene.start("draft", args=args)
            assert await scene.ended(run_id) is states.RunState.DONE
            loaded, history = await service.store.read(run_id), await scene.history(run_id)

    performed = {each.activity_task_scheduled_event_attributes.task_queue.name for each in history.events}
    started = {each.activity_task_started_event_attributes.identity for each in history.events}
    assert loaded.decisions.placed == (machines.project.root / ".machine-a/data_directory_id").read_text().strip()
    assert any(name.endswith("-steps-backend:said") for name in performed)
    assert any(identity.startswith(f"{asking.pid}@") for identity in started)
    assert len(model.asked) >= 2


def lines_of(loaded: stores.Loaded) -> list[tuple[str, int]]:
    """Return step and attempt of each line."""
    return [(line.key, line.attempt) for line in loaded.records]


@pytest.mark.slow
async def test_a_worker_of_another_machine_takes_over(scene: Scene, machines: Machines):
    """If workers share their workspaces, another one replaces a killed one, and does not repeat recorded steps."""
    shared = {"CONTROL_ROOM_WORKSPACES": "shared"}
    first = await machines.work("a", **shared)
    run_id = await scene.start("once")
    await scene.there("second")
    await machines.work("b", **shared)
    first.kill()
    await scene.there("second", lines=2)
    scene.project.write("go", "")
    assert await scene.ended(run_id) is states.RunState.DONE

    assert lines_of(await scene.service.store.read(run_id)) == [("first", 1), ("second", 2), ("third", 1)]
    assert scene.text("second").split() == ["a", "b"]
    assert (await scene.service.maintenance.verify(run_id))["ok"]


@pytest.mark.slow
async def test_a_worker_that_slept_past_its_lease_keeps_its_result_aside(
    scene: Scene, machines: Machines, monkeypatch: pytest.MonkeyPatch
):
    """The result of a worker whose step another one has performed is kept as a blob, and is not the record."""
    # A frozen worker takes the tasks that it polled for, and keeps each until its time-out.
    monkeypatch.setattr(worker, "TASK_TIMEOUT", timedelta(seconds=5))
    shared = {"CONTROL_ROOM_WORKSPACES": "shared"}
    sleeper = await machines.work("a", **shared)
    run_id = await scene.start("once")
    await scene.there("second")
    os.kill(sleeper.pid, signal.SIGSTOP)
    await machines.work("b", **shared)
    await scene.there("second", lines=2)
    scene.project.write("go", "")
    assert await scene.ended(run_id, seconds=100) is states.RunState.DONE
    os.kill(sleeper.pid, signal.SIGCONT)
    sleeper.terminate()
    assert await asyncio.to_thread(sleeper.wait, 60) == 0

    assert lines_of(await scene.service.store.read(run_id)) == [("first", 1), ("second", 2), ("third", 1)]
    assert scene.text("third").split() == ["b"]
    assert (await scene.service.maintenance.verify(run_id))["ok"]


@pytest.mark.slow
async def test_a_cancel_does_not_wait_for_a_frozen_worker(
    scene: Scene, machines: Machines, monkeypatch: pytest.MonkeyPatch
):
    """The task of the workflow, which the server sends to the frozen worker, does not have to time out first."""
    monkeypatch.setattr(worker, "TASK_TIMEOUT", timedelta(hours=1))
    sleeper = await machines.work("a")
    run_id = await scene.start("once")
    await scene.there("second")
    await machines.work("b")
    os.kill(sleeper.pid, signal.SIGSTOP)
    await scene.service.engine.cancel(run_id)
    assert await scene.ended(run_id, seconds=100) is states.RunState.CANCELLED

    assert (await scene.service.maintenance.verify(run_id))["ok"]


@pytest.mark.slow
async def test_a_run_whose_worker_is_gone_waits_for_it(scene: Scene, machines: Machines):
    """No other worker performs its steps; the run pauses with the reason, and continues once its worker is back."""
    soon = {"CONTROL_ROOM_WORKER_GONE_SECONDS": "3"}
    first = await machines.work("a", **soon)
    run_id = await scene.start("once")
    await scene.there("second")
    await machines.work("b", **soon)
    first.kill()
    await scene.until(run_id, states.RunState.PAUSED)
    paused = (await scene.service.store.read(run_id)).decisions
    shown = json.loads((await scene.service.runs.reader.ready(run_id)).body)
    await machines.work("a", **soon)
    scene.project.write("go", "")
    await scene.service.runs.unpause(run_id)
    assert await scene.ended(run_id) is states.RunState.DONE

    assert paused.paused == "worker_gone"
    told, host = str((paused.pause_error or {}).get("message")), socket.gethostname()
    assert f"unpause {run_id}" in told
    assert f"the worker {paused.placed} on the machine {host}, which has the workspace" in told
    assert shown["placed"] == {"worker": paused.placed, "host": host}
    assert lines_of(await scene.service.store.read(run_id)) == [("first", 1), ("second", 2), ("third", 1)]
    assert {*scene.text("first").split(), *scene.text("second").split(), *scene.text("third").split()} == {"a"}


@pytest.mark.slow
async def test_a_busy_worker_is_not_gone(scene: Scene, machines: Machines):
    """A run waits for the capacity of its worker as long as the worker answers."""
    soon = {"CONTROL_ROOM_WORKER_GONE_SECONDS": "2", "CONTROL_ROOM_MAX_RUNNING": "1"}
    await machines.work("a", **soon)
    first = await scene.start("once")
    await scene.there("second")
    second = await scene.start("once")

    async def has_asked() -> bool:
        # More than once, so that the answer has an effect.
        scheduled = [each.activity_task_scheduled_event_attributes for each in (await scene.history(second)).events]
        return [each.activity_type.name for each in scheduled].count("here") >= 2

    await temporal_server.until(has_asked)
    scene.project.write("go", "")

    assert {await scene.ended(first), await scene.ended(second)} == {states.RunState.DONE}


@pytest.mark.slow
async def test_the_child_of_a_run_is_where_its_parent_is(scene: Scene, machines: Machines):
    """A child runs where its parent's files are, whichever worker has capacity."""
    for machine in "abc":
        await machines.work(machine)
    scene.project.write("go", "")
    parents = [await scene.start("parent") for _ in range(3)]
    assert {await scene.ended(run_id) for run_id in parents} == {states.RunState.DONE}

    for parent in parents:
        placed = (await scene.service.store.read(parent)).decisions.placed
        [child] = await scene.service.store.list_runs(stores.RunQuery(parent_run_id=parent))
        assert placed is not None
        assert (await scene.service.store.read(child.run_id)).decisions.placed == placed


@pytest.mark.slow
async def test_a_command_shows_the_runs_as_workers_have_them(scene: Scene, machines: Machines):
    """On a machine of which only the store is set, a list reads the shared index, and figures name the engine."""
    await machines.work("a")
    run_id = await scene.start("asking")
    await scene.until(run_id, states.RunState.WAITING)
    rows, figures = [json.loads(await machines.ask("b", *words)) for words in (("runs", "list"), ("stats",))]
    why = json.loads(await machines.ask("b", "runs", "why", run_id))

    assert [(row["run_id"], row["status"]) for row in rows] == [(run_id, "waiting")]
    assert (figures["service"]["engine"], why["chain"][0]["kind"]) == ("temporal", "gate")


@pytest.mark.slow
async def test_orders_reach_a_worker_of_another_machine(scene: Scene, machines: Machines):
    """A pause stops the run at the next step, an unpause continues it there, and a cancel ends the process."""
    await machines.work("a")
    run_id = await scene.start("once")
    await scene.there("second")
    await scene.service.runs.pause(run_id)
    scene.project.write("go", "")
    await scene.until(run_id, states.RunState.PAUSED)
    assert lines_of(await scene.service.store.read(run_id)) == [("first", 1), ("second", 1)]
    await scene.service.runs.unpause(run_id)
    assert await scene.ended(run_id) is states.RunState.DONE
    (scene.project.root / "go").unlink()
    other = await scene.start("once")
    await scene.there("second", lines=2)
    await asyncio.gather(*(scene.service.runs.cancel(other) for _ in range(3)), return_exceptions=True)

    assert await scene.ended(other) is states.RunState.CANCELLED
    assert scene.text("third").split() == ["a"]


@pytest.mark.slow
async def test_services_over_one_store_are_one_service(machines: Machines):
    """A run that one service accepts can be followed and ended at the other, and keys are valid at both."""
    await temporal_server.connected(machines.address)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        one, two = [await enter(served.on_a_port(machines.project, **machines.given(name))) for name in ("", "b")]
        await machines.work("a")
        key = {"Idempotency-Key": "one-order"}
        answers = await asyncio.gather(
            *(
                service.http.post("/api/runs", json={"recipe_id": "asking"}, headers=key)
                for service in (one, two, one, two)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
        [run_id] = {answer.json()["run_id"] for answer in answers}
        for service in (one, two):
            await service.until(run_id, "waiting")
        gate = await only_item(two, "/api/gates")
        following = asyncio.create_task(_events(one, run_id))
        assert (await two.http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})).status_code == 200
        assert (await one.until(run_id, "done"))["status"] == "done"
        async with asyncio.timeout(served.WAIT_SECONDS):
            heard = await following
        cancelled = await one.start("asking")
        await two.until(cancelled, "waiting")
        assert (await two.http.post(f"/api/runs/{cancelled}/cancel")).status_code == 200
        await one.until(cancelled, "cancelled")

    assert heard[-1] == "run.ended"
    assert "gate.decided" in heard


async def _events(service: served.Served, run_id: str) -> list[str]:
    found: list[str] = []
    async with service.http.stream("GET", f"/api/runs/{run_id}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                found.append(line.removeprefix("event: "))
            if found and found[-1] == "run.ended":
                break
    return found


@pytest.mark.slow
async def test_one_of_several_services_works_unattended(machines: Machines, monkeypatch: pytest.MonkeyPatch):
    """One service runs the triggers; another one takes over as soon as the first has stopped."""
    await temporal_server.connected(machines.address)
    monkeypatch.setattr(leading, "LOOK_SECONDS", 0.1)
    async with bootstrap.build(machines.chosen("b"), SERVE) as second:
        async with bootstrap.build(machines.chosen(), SERVE) as first:
            await temporal_server.until(_leading(second))
            assert second.store.leads is not None
            assert first.store.leads is not None
            assert (await second.store.leads(), await first.store.leads()) == (True, False)
        assert await second.store.leads()


def _leading(service: bootstrap.Application) -> Callable[[], Awaitable[bool]]:
    async def leads() -> bool:
        assert service.store.leads is not None
        return await service.store.leads()

    return leads


class _Ahead(clock.SystemClock):
    """A clock with a wrong time."""

    def __init__(self, seconds: float) -> None:
        self._by = timedelta(seconds=seconds)

    def now(self) -> datetime:
        """Return a wrong time."""
        return super().now() + self._by


@pytest.mark.parametrize(("seconds", "says"), [(90.0, "ahead of"), (-90.0, "behind")])
async def test_a_machine_whose_clock_is_off_is_refused(machines: Machines, seconds: float, says: str):
    """The message contains the difference, by which timers of runs would be wrong."""
    await temporal_server.connected(machines.address)
    platform = dataclasses.replace(bootstrap.real_platform(os.environ), clock=_Ahead(seconds))
    with pytest.raises(errors.ConfigurationError, match=rf"\d+\.\d s {says}") as refused:
        async with bootstrap.build(machines.chosen(), WORK, platform):
            pass

    assert refused.value.code == "clock_off"


async def test_an_index_that_cannot_be_shared_is_refused_by_name(machines: Machines):
    """An index that services and workers cannot share is refused with its setting."""
    chosen = machines.chosen(database_url="sqlite:///index.db")
    with pytest.raises(errors.ConfigurationError, match="CONTROL_ROOM_DATABASE_URL") as refused:
        async with bootstrap.build(chosen, WORK):
            pass

    assert refused.value.code == "index_not_shared"
