"""Shared rates: prompts of several processes together keep the limits of their backend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.agents import rate_limits, shared_rates
from app.agents.configuration import BackendConfig
from app.engine import live_steps
from app.storage import project_file, rate_document
from app.storage.disk import os_disk, worker_threads

NOW = clock.FakeClock().now().timestamp()


class AwayStore(rate_document.RateDocument):
    """The shared document on a disk that the test can make unavailable."""

    is_away = False

    async def alone(self, job: Callable[[], Any]) -> Any:
        """Run a job under the document's lock."""
        if self.is_away:
            raise errors.Unavailable("away")
        return await super().alone(job)


class Process:
    """One of several processes with shared limits."""

    def __init__(self, folder: Path, time: clock.FakeClock, threads: worker_threads.Workers, **limits: int) -> None:
        disk = os_disk.OsDisk(folder)
        self.store = AwayStore(disk, threads, time)
        file = project_file.ProjectFile(disk, "rate_limits.json")
        config = BackendConfig(name="svc", type="openai", **limits)  # type: ignore[arg-type]
        self.limits = rate_limits.RateLimits({"svc": config}, time, file, self.store)
        self.begun: list[int] = []
        self.over: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self) -> None:
        """Send a prompt once it may begin."""
        number = len(self.tasks)
        self.over.append(asyncio.Event())
        self.tasks.append(asyncio.create_task(self._prompt(number)))

    async def _prompt(self, number: int) -> None:
        async with self.limits.of("svc", "m").turn(live_steps.LiveStep()):
            self.begun.append(number)
            await self.over[number].wait()

    async def close(self) -> None:
        """Cancel the prompts that wait or are under way, as a killed process does."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.limits.close()


class Processes:
    """Processes that share a folder and a clock."""

    def __init__(self, folder: Path, threads: worker_threads.Workers) -> None:
        self.folder = folder
        self.time = clock.FakeClock()
        self.threads = threads
        self.all: list[Process] = []

    def begin(self, **limits: int) -> Process:
        """Start a process."""
        self.all.append(Process(self.folder, self.time, self.threads, **limits))
        return self.all[-1]

    async def pass_by(self, seconds: float) -> None:
        """Advance the time in steps, and let every task run after each."""
        for _ in range(int(seconds * 2)):
            self.time.advance(0.5)
            await self.settle()

    async def settle(self) -> None:
        """Let every task run that can."""
        for _ in range(4):
            await asyncio.sleep(0)
            # Earlier jobs of the thread are done after this one.
            await self.threads.run(lambda: None)
            await asyncio.sleep(0)


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    """Return processes, and end them after the test."""
    threads = worker_threads.WorkerThreads(1, "rates")
    made = Processes(tmp_path, threads)
    yield made
    for each in made.all:
        await each.close()
    threads.close()


async def test_so_many_a_minute_of_all_processes(processes: Processes) -> None:
    """Of four prompts of two processes, two begin in each minute."""
    here, there = processes.begin(max_per_minute=2), processes.begin(max_per_minute=2)
    for each in (here, there, here, there):
        each.ask()
        await processes.settle()
    at_first = [here.begun, there.begun] == [[0], [0]]
    await processes.pass_by(59)
    before = len(here.begun + there.begun)
    await processes.pass_by(10)

    assert (at_first, before) == (True, 2)
    assert [here.begun, there.begun] == [[0, 1], [0, 1]]


async def test_so_many_at_a_time_of_all_processes(processes: Processes) -> None:
    """A prompt begins when the one of another process ends, however long that takes."""
    here, there = processes.begin(max_parallel=1), processes.begin(max_parallel=1)
    here.ask()
    await processes.settle()
    there.ask()
    await processes.pass_by(60)
    before = list(there.begun)
    here.over[0].set()
    await processes.settle()
    await processes.pass_by(1)

    assert (here.begun, before, there.begun) == ([0], [], [0])


async def test_a_dead_process_holds_its_places_for_a_term(processes: Processes) -> None:
    """The prompts of a killed process count for fifteen seconds and then delay no other process."""
    dead, other = processes.begin(max_parallel=1), processes.begin(max_parallel=1)
    dead.ask()
    await processes.settle()
    shared = dead.limits._shared
    assert shared is not None
    assert shared._renewing is not None
    shared._renewing.cancel()
    other.ask()
    await processes.pass_by(shared_rates.TERM_SECONDS - 1)
    before = list(other.begun)
    await processes.pass_by(2)

    assert (before, other.begun) == ([], [0])


async def test_a_closed_process_frees_its_places_at_once(processes: Processes) -> None:
    """A process that stops in order releases its places at once."""
    first, other = processes.begin(max_parallel=1), processes.begin(max_parallel=1)
    first.ask()
    await processes.settle()
    await first.limits.close()
    other.ask()
    await processes.settle()

    assert other.begun == [0]


async def test_a_prompt_that_is_cancelled_while_it_asks_holds_no_place(processes: Processes) -> None:
    """A prompt that is cancelled while it asks for its place does not delay the next one."""
    here = processes.begin(max_parallel=1)
    here.ask()
    for _ in range(3):
        await asyncio.sleep(0)
    here.tasks[0].cancel()
    await processes.settle()
    here.ask()
    await processes.pass_by(1)

    assert here.begun == [1]


async def test_while_the_store_is_away_nothing_begins_and_nothing_ends(
    processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is unavailable no prompt begins, one under way can end, and waiting ones begin afterwards."""
    here = processes.begin(max_parallel=1)
    here.ask()
    await processes.settle()
    here.store.is_away = True
    here.over[0].set()
    await asyncio.wait_for(here.tasks[0], 30)
    here.ask()
    await processes.pass_by(20)
    before = list(here.begun)
    here.store.is_away = False
    await processes.pass_by(1)

    assert (before, here.begun) == ([0], [0, 1])
    assert [line for line in caplog.messages if line.startswith("prompts to backends with a limit")] == [
        "prompts to backends with a limit wait: away",
        "prompts to backends with a limit begin again",
    ]


async def test_pauses_of_processes_add_up(processes: Processes) -> None:
    """Two processes that get a 429 at the same time keep both pauses, and for one model the longer one."""
    here, there = processes.begin(), processes.begin()
    here.limits.pause("svc", "m", 600)
    there.limits.pause("svc", "m", 60)
    there.limits.pause("svc", "other", 30)
    await here.limits.close()
    await there.limits.close()
    document = json.loads((processes.folder / "rate_limits.json").read_text())

    assert {each["model"]: each["until"][11:19] for each in document["pauses"]} == {
        "m": "14:40:00",
        "other": "14:30:30",
    }


async def test_a_pause_that_could_not_be_shared_is_shared_with_the_next_prompt(processes: Processes) -> None:
    """A pause made while the store is unavailable holds in its process, and in the others once the store is back."""
    here, there = processes.begin(), processes.begin()
    here.store.is_away = True
    here.limits.pause("svc", "m", 600)
    await here.limits.close()
    here.limits.reload()
    kept = here.limits.of("svc", "m").until
    here.store.is_away = False
    here.limits.reload()
    await here.limits.close()
    there.limits.reload()

    assert kept is not None
    assert there.limits.of("svc", "m").until == kept


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[1]",
        "7",
        '{"prompts": 1}',
        '{"prompts": [{"backend": "svc"}]}',
        '{"prompts": [{"backend": "svc", "model": "m", "begun": [[Infinity, 1]], "running": []}]}',
        '{"prompts": [{"backend": "svc", "model": "m", "begun": [], "running": [["other", 1, 1e300]]}]}',
        '{"prompts": [{"backend": "svc", "model": "m", "begun": [[99999999999, 9]], "running": []}]}',
    ],
)
async def test_a_broken_document_keeps_nothing_waiting(processes: Processes, text: str) -> None:
    """A broken or implausible document is ignored, and the next prompt writes a new one."""
    file = processes.folder / "rates" / "prompts.json"
    file.parent.mkdir()
    file.write_text(text)
    here = processes.begin(max_parallel=1, max_per_minute=1)
    here.ask()
    await processes.settle()
    [entry] = json.loads(file.read_text())["prompts"]

    assert here.begun == [0]
    assert entry["begun"] == [[int(NOW), 1]]
    assert [name for name, *_ in entry["running"]] == [here.store.process]


async def test_a_prompt_waits_while_another_process_holds_the_document(processes: Processes) -> None:
    """A prompt waits while another process holds the document's lock, and begins when it is released."""
    here = processes.begin(max_parallel=1)
    (processes.folder / "rates").mkdir()
    held = os_disk.lock(str(processes.folder / "rates"))
    assert held is not None
    here.ask()
    await asyncio.sleep(0)
    before = list(here.begun)
    held.release()
    await processes.settle()

    assert (before, here.begun) == ([], [0])
