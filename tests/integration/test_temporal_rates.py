"""Rate limits of backends on Temporal: workers with one store, in folders or on Postgres, keep them in common."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Client  # noqa: E402

from app import bootstrap, clock  # noqa: E402
from app.domain import states  # noqa: E402
from tests import postgres_server  # noqa: E402
from tests.agent_programs.fake_model import replies  # noqa: E402
from tests.agent_programs.fake_model.asked import Asked  # noqa: E402
from tests.agent_programs.fake_model.server import FakeModel  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration.test_temporal_engine import SERVE, WORK, Scene  # noqa: E402
from tests.integration.test_temporal_machines import Machines  # noqa: E402

PAUSE_SECONDS = 6  # Value of `Retry-After` in the model's 429.


class Model:
    """A model behind HTTP that answers on request, and records when it was called."""

    def __init__(self) -> None:
        self.answer: Callable[[], replies.Answer] = lambda: replies.Reply(text=projects.REPLY)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked_at: list[float] = []
        self.under_way = 0
        self.most = 0
        self._guard = threading.Lock()

    def __call__(self, _: Asked) -> replies.Answer:
        """Answer."""
        with self._guard:
            self.asked_at.append(clock.SystemClock().monotonic())
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.may_answer.wait(120)
        with self._guard:
            self.under_way -= 1
        return self.answer()


class Rates:
    """A project whose model behind HTTP has limits, its service, and its workers."""

    def __init__(self, machines: Machines, url: str) -> None:
        self.machines = machines
        self.model = Model()
        self._more = {"CONTROL_ROOM_WORKSPACES": "shared", "CONTROL_ROOM_MAX_RUNNING": "1"}
        if not url:
            self._more |= {"CONTROL_ROOM_DATA_DIRECTORY": ".control-room", "CONTROL_ROOM_STORE_URL": ""}
        self.is_in_folders = not url

    def limit(self, model: FakeModel, **limits: int) -> None:
        """Set the model to the one at this address, with these limits."""
        file = self.machines.project.data / "agents.json"
        roster = json.loads(file.read_text())
        names = dict.fromkeys(("haiku", "sonnet", "opus"), "fake-model")
        roster["backends"]["said"] = {"type": "openai", "base_url": f"{model.address}/v1", "models": names, **limits}
        file.write_text(json.dumps(roster))

    def chosen(self, machine: str = "") -> Any:
        """Return the settings of a machine."""
        return self.machines.chosen("" if self.is_in_folders else machine, workspaces="shared")

    async def work(self, machine: str) -> Any:
        """Start a worker that performs one step at a time."""
        return await self.machines.work(machine, **self._more)


@pytest.fixture(params=["folders", "postgres"])
def rates(
    request: pytest.FixtureRequest,
    tmp_path: Any,
    temporal: temporal_server.DevServer,
    postgres: postgres_server.Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Rates]:
    """Create a project on a store, and kill its workers at the end."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = postgres.new_database(request.node.nodeid) if request.param == "postgres" else ""
    machines = Machines(projects.Project(tmp_path / "project"), temporal.address, url)
    yield Rates(machines, url)
    machines.kill_all()


@asynccontextmanager
async def _scene(rates: Rates) -> AsyncIterator[Scene]:
    await temporal_server.connected(rates.machines.address)
    async with bootstrap.build(rates.chosen(), SERVE) as service:
        yield Scene(service, rates.machines.project, await Client.connect(rates.machines.address))


async def _begun(scene: Scene, run_id: str) -> None:
    """Wait until a worker begins the prompt of a run."""

    async def shows() -> bool:
        return "draft" in (await scene.service.store.read(run_id)).decisions.highest_attempt

    await temporal_server.until(shows)


@pytest.mark.slow
async def test_prompts_of_all_workers_are_under_way_one_at_a_time(rates: Rates):
    """While one worker's prompt is under way another's waits, but not for ever if that worker is killed."""
    said = rates.model
    with FakeModel(said) as model:
        rates.limit(model, max_parallel=1)
        async with _scene(rates) as scene:
            first = await rates.work("a")
            said.may_answer.clear()
            runs = [await scene.start("unguarded")]
            await temporal_server.until(lambda: _is(len(said.asked_at) == 1))
            await rates.work("b")
            runs.append(await scene.start("unguarded"))
            await _begun(scene, runs[1])
            # The model does not learn of a worker's death, so the prompt must not count as under way.
            first.kill()
            said.may_answer.set()
            await temporal_server.until(lambda: _is(said.under_way == 0))
            ended = [await scene.ended(run_id, seconds=120) for run_id in runs]

    assert ended == [states.RunState.DONE] * 2
    assert said.most == 1
    assert len(said.asked_at) == 3


@pytest.mark.slow
async def test_a_rate_limit_seen_by_one_worker_holds_the_others(rates: Rates):
    """After a 429 another worker calls the model only after its `Retry-After`, even if the first worker was killed."""
    said = rates.model
    headers = {"retry-after": str(PAUSE_SECONDS), "x-should-retry": "false"}
    said.answer = lambda: replies.Fault(status=429, headers=headers)
    with FakeModel(said) as model:
        rates.limit(model)
        async with _scene(rates) as scene:
            first = await rates.work("a")
            assert await scene.ended(await scene.start("unguarded"), seconds=200) is states.RunState.FAILED
            first.kill()
            said.answer = lambda: replies.Reply(text=projects.REPLY)
            async with bootstrap.build(rates.chosen("b"), WORK):
                ended = await scene.ended(await scene.start("unguarded"), seconds=200)

    assert ended is states.RunState.DONE
    assert len(said.asked_at) == 2
    assert said.asked_at[1] - said.asked_at[0] >= PAUSE_SECONDS - 1


async def _is(found: bool) -> bool:
    return found
