"""The crash laboratory of a cluster: each member is killed, or frozen and woken, while steps are in flight."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap, errors  # noqa: E402
from app.domain import states  # noqa: E402
from app.processes import process_tree  # noqa: E402
from app.temporal import worker  # noqa: E402
from tests import postgres_server  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration.test_temporal_engine import SERVE, Scene  # noqa: E402
from tests.integration.test_temporal_machines import Machines  # noqa: E402

pytestmark = pytest.mark.slow

RUNS = 3
NAMES = [f"s{number}" for number in range(5)]
IN_FLIGHT = "s2"
STEPS = [{"id": name, "type": "bash", "command": f"echo $CONTROL_ROOM_RUN_ID >> {name}"} for name in NAMES]
STEPS[2]["command"] += "; while [ ! -e go ]; do sleep 0.05; done; echo over >> over"
SHARED = {"CONTROL_ROOM_WORKSPACES": "shared"}


class Cluster:
    """A Temporal server, a Postgres, a service and two workers as processes, and a service that observes them."""

    def __init__(
        self, machines: Machines, server: temporal_server.DevServer, postgres: postgres_server.Postgres
    ) -> None:
        self.machines = machines
        self._server = server
        self._postgres = postgres
        self._members: dict[str, subprocess.Popen[str]] = {}
        self.signalled: set[int] = set()

    async def start(self, name: str) -> None:
        """Start or restart a member."""
        match name:
            case "temporal":
                self._server.start()
                await temporal_server.connected(self._server.address)
            case "postgres":
                self._postgres.start()
                await asyncio.to_thread(self._postgres.wait)
            case "service":
                self._members[name] = await self.machines.serve(name, **SHARED)
            case _:
                self._members[name] = await self.machines.work(name, **SHARED)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a member, except those that perform steps."""
        if name in self._members:
            self.signalled = {self._members[name].pid}
        elif name == "temporal":
            self.signalled = {self._server.pid}
        else:
            first = self._postgres.pid
            self.signalled = {first, *process_tree.descendants(process_tree.table(), [first])}
        for pid in self.signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def gone(self) -> None:
        """Wait until the processes that received the last signal have ended."""

        async def are_gone() -> bool:
            return all(process_tree.process(pid) is None for pid in self.signalled)

        await temporal_server.until(are_gone)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Start a cluster."""
    folder = tmp_path / "server"
    folder.mkdir()
    server, project = temporal_server.DevServer(folder), projects.Project(tmp_path / "project")
    whole = {"schema": "1.7", "name": "steps", "description": "Steps", "version": "1.0.0", "steps": STEPS}
    project.write(".control-room/recipes/amplifier/steps.yaml", json.dumps(whole))
    with postgres_server.running() as postgres:
        made = Cluster(Machines(project, server.address, postgres.new_database("victims")), server, postgres)
        try:
            for name in ("temporal", "service", "a", "b"):
                await made.start(name)
            yield made
        finally:
            made.machines.kill_all()
            server.stop()


@pytest.mark.parametrize("victim", ["a", "service", "temporal", "postgres"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_every_run_is_done_with_each_step_recorded_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, victim: str, number: signal.Signals
):
    """Every run is done with each step recorded once; only a step in flight may have begun twice."""
    # A frozen worker takes the tasks that it polled for, and keeps each until its time-out.
    monkeypatch.setattr(worker, "TASK_TIMEOUT", timedelta(seconds=5))
    project = cluster.machines.project
    async with bootstrap.build(cluster.machines.chosen(workspaces="shared"), SERVE) as service:
        scene = Scene(service, project, await Client.connect(cluster.machines.address))
        started = [await scene.start("steps") for _ in range(RUNS)]
        await scene.there(IN_FLIGHT, lines=RUNS)
        cluster.send(victim, number)
        project.write("go", "")
        if victim in ("a", "service"):
            # Other members continue the runs; a frozen one wakes when its lease has expired.
            await _are_done(scene, started)
        else:
            await scene.there("over", lines=RUNS)
        if number is signal.SIGSTOP:
            cluster.send(victim, signal.SIGCONT)
        else:
            await cluster.gone()
            await cluster.start(victim)
        await _are_done(scene, started)

        for name in NAMES:
            found = scene.text(name).split()
            times = [found.count(run_id) for run_id in started]
            most = 2 if name == IN_FLIGHT and victim in ("a", "temporal") else 1
            assert all(1 <= each <= most for each in times), (name, times)
        for run_id in started:
            lines = (await service.store.read(run_id)).records
            assert [line.key for line in lines] == NAMES
            assert (await service.maintenance.verify(run_id))["ok"]


async def _are_done(scene: Scene, started: list[str]) -> None:
    async def are() -> bool:
        try:
            rows = [await scene.service.store.summary(run_id) for run_id in started]
        except errors.StorageFault:
            return False
        return {row.status for row in rows} == {states.RunState.DONE}

    await temporal_server.until(are, seconds=180)
