"""Waiting for files, on a clock that the test advances."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain import file_operations, records, states
from app.tools import globs
from app.tools.file_performers import WaitForFilesPerformer
from app.tools.workspace import Workspaces
from tests.unit.calls import Harness


class Waiting:
    """A wait in a workspace, and its clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.time = clock.FakeClock()

    def begin(self, *, left: float | None = None, **given: Any) -> asyncio.Task[records.Result]:
        """Begin a wait of ten seconds, or continue one with the given seconds left."""
        asked: dict[str, Any] = {"pattern": "*.task", "timeout_seconds": 10.0} | given
        operation = file_operations.WaitForFiles(**asked)
        seconds = operation.timeout_seconds if left is None else left
        due_at = None if seconds is None else clock.stamp(self.time.now() + timedelta(seconds=seconds))
        performer = WaitForFilesPerformer(Workspaces([self.root]), self.time)
        return asyncio.create_task(performer.perform(Harness(working_dir=self.root).call(operation, due_at=due_at)))

    async def pause(self) -> float:
        """Wait until the next look is due, and return the time until then."""
        await self.until(lambda: self.time.next_wake_seconds() is not None)
        return self.time.next_wake_seconds() or 0

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait, turn by turn of the loop, until a condition holds."""
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 - one turn of the loop at a time, no time passes
                await asyncio.sleep(0)

    async def go_to_the_end(self, wait: asyncio.Task[records.Result]) -> records.Result:
        """Advance the clock from look to look until a wait is over."""
        while True:
            await self.until(lambda: wait.done() or self.time.next_wake_seconds() is not None)
            if wait.done():
                return await wait
            self.time.advance(self.time.next_wake_seconds() or 0)

    def put(self, *names: str) -> None:
        """Create files."""
        for name in names:
            (self.root / name).touch()


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    root = tmp_path / "project"
    root.mkdir()
    return Waiting(root)


def facts(result: records.Result) -> tuple[str, list[str], int, int, bool]:
    """Return status, files, duration, polls and time-out of a result."""
    told = result.output
    assert list(told) == ["files", "wait_duration_ms", "poll_count", "timed_out"]
    return result.status.value, told["files"], told["wait_duration_ms"], told["poll_count"], told["timed_out"]


async def test_files_that_are_there_are_found_at_once(waiting: Waiting) -> None:
    """The first look comes before any wait and finds all files, in the order of their bytes."""
    waiting.put("b.task", "a.task", "c.md")
    result = await waiting.begin()

    assert facts(result) == ("done", ["a.task", "b.task"], 0, 1, False)
    assert (result.error, result.summary) == (None, "a.task, b.task")


async def test_files_are_found_by_the_next_look(waiting: Waiting) -> None:
    """A later look finds a new file, and looks are `poll_ms` apart."""
    wait = waiting.begin(poll_ms=400)
    for _ in range(3):
        assert await waiting.pause() == pytest.approx(0.4)

        waiting.time.advance(0.4)
    await waiting.pause()
    waiting.put("a.task")
    waiting.time.advance(0.4)

    assert facts(await wait) == ("done", ["a.task"], 1600, 5, False)


async def test_so_many_files_are_waited_for(waiting: Waiting) -> None:
    """A wait ends when `min_count` paths exist; folders count as well."""
    waiting.put("a.task")
    wait = waiting.begin(min_count=3)
    await waiting.pause()
    (waiting.root / "b.task").mkdir()
    waiting.time.advance(0.5)
    await waiting.pause()
    waiting.put("c.task")
    waiting.time.advance(0.5)

    assert facts(await wait) == ("done", ["a.task", "b.task", "c.task"], 1000, 3, False)


async def test_when_the_time_is_over_it_looks_once_more(waiting: Waiting) -> None:
    """The last pause ends with the time-out, and a file that appeared in it counts."""
    wait = waiting.begin(timeout_seconds=1.2, poll_ms=1000)
    await waiting.pause()
    waiting.time.advance(1.0)
    await waiting.until(lambda: (waiting.time.next_wake_seconds() or 1) < 0.3)
    waiting.put("a.task")
    result = await waiting.go_to_the_end(wait)

    assert facts(result) == ("done", ["a.task"], 1200, 3, False)


async def test_a_wait_that_is_over_fails_completely(waiting: Waiting) -> None:
    """A wait that times out fails with `timeout`, and its output has every field."""
    waiting.put("a.task")
    result = await waiting.go_to_the_end(waiting.begin(min_count=2))

    assert facts(result) == ("failed", ["a.task"], 10_000, 21, True)
    assert result.status is states.StepState.FAILED
    assert result.error is not None
    assert (result.error.code, result.error.detail) == ("timeout", {"timeout_seconds": 10.0})


@pytest.mark.parametrize("left", [4.0, -50.0, 5000.0])
async def test_time_without_a_process_does_not_count(waiting: Waiting, left: float) -> None:
    """A wait that another process continues has its whole time, whatever `due_at` was recorded."""
    wait = waiting.begin(left=left)
    result = await waiting.go_to_the_end(wait)

    assert facts(result) == ("failed", [], 10_000, 21, True)


async def test_a_name_with_wildcards_is_looked_for_first(waiting: Waiting) -> None:
    """Files that fit the literal pattern end the wait; without them the pattern decides."""
    waiting.put("a1.task")
    by_pattern = await waiting.begin(pattern="a[1].task", literal="a[[]1].task")
    waiting.put("a[1].task")
    by_name = await waiting.begin(pattern="a[1].task", literal="a[[]1].task")

    assert (facts(by_pattern)[1], facts(by_name)[1]) == (["a1.task"], ["a[1].task"])


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
async def test_a_jump_of_the_clock_does_not_move_its_end(waiting: Waiting, jump: float) -> None:
    """A jump of the wall clock does not change the end of a wait."""
    wait = waiting.begin()
    await waiting.pause()
    waiting.time.jump(jump)

    assert facts(await waiting.go_to_the_end(wait)) == ("failed", [], 10_000, 21, True)


async def test_without_a_limit_it_waits_on(waiting: Waiting) -> None:
    """A wait without a time-out continues for more than a day."""
    wait = waiting.begin(timeout_seconds=None, poll_ms=3_600_000)
    for _ in range(24):
        await waiting.pause()
        waiting.time.advance(3600)
    await waiting.pause()
    waiting.put("a.task")
    waiting.time.advance(3600)

    assert facts(await wait) == ("done", ["a.task"], 90_000_000, 26, False)


@pytest.mark.parametrize(
    ("pattern", "code"),
    [("../*", "path_outside_workspace"), ("out", "path_outside_workspace"), ("**", "invalid_pattern")],
)
async def test_a_path_that_leads_out_is_not_waited_for(waiting: Waiting, pattern: str, code: str) -> None:
    """A pattern that leads out fails the step at once, or at the look after a link begins to lead out."""
    wait = waiting.begin(pattern=pattern)
    if pattern == "out":
        await waiting.pause()
        (waiting.root / "out").symlink_to("/etc")
        waiting.time.advance(0.5)
    with pytest.raises(errors.ToolFailed) as failed:
        await wait

    assert failed.value.code == code


async def test_a_pipe_is_something_that_is_there(waiting: Waiting) -> None:
    """A named pipe ends the wait, and the wait does not read it."""
    os.mkfifo(waiting.root / "a.task")

    assert facts(await waiting.begin())[1] == ["a.task"]


def held(begun: threading.Event, go: threading.Event) -> list[str]:
    """Signal that a look has begun, and return no files once it is released."""
    begun.set()
    go.wait(30)
    return []


@pytest.mark.parametrize("looking", [False, True])
async def test_a_cancel_ends_it_at_once(waiting: Waiting, looking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel ends the wait at once, between two looks and during a look that blocks."""
    begun, go = threading.Event(), threading.Event()
    if looking:
        monkeypatch.setattr(globs, "fitting", lambda *_: held(begun, go))
    wait = waiting.begin()
    await (asyncio.to_thread(begun.wait, 30) if looking else waiting.pause())
    wait.cancel()
    done, _ = await asyncio.wait([wait], timeout=20)
    go.set()

    assert done
    assert wait.cancelled()


async def test_looks_are_never_without_a_pause(waiting: Waiting) -> None:
    """Looks are at least ten milliseconds apart, even with `poll_ms` 0."""
    wait = waiting.begin(poll_ms=0)

    assert await waiting.pause() == pytest.approx(0.01)

    wait.cancel()
