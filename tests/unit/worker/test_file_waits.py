"""Waits for files in a pool: they use no capacity, survive restarts, and end on time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.domain import file_operations, states
from app.tools import file_performers, workspace
from tests.unit.worker import pools

Bench = pools.Bench
RunState = states.RunState

WAIT = {"wait": "box", "pattern": "box/*.task", "seconds": 60}


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    made = Bench(limit=1)
    performer = file_performers.WaitForFilesPerformer(workspace.Workspaces([tmp_path]), made.clock)
    made.performers[file_operations.WaitForFiles.kind] = performer
    made.take_store(made.store)
    (tmp_path / "box").mkdir()
    return await made.open()


async def pass_time(bench: Bench, holds: Callable[[], bool]) -> None:
    """Advance the time from one look to the next, but not while a thread is looking, until a condition holds."""
    clock: Any = bench.clock
    async with asyncio.timeout(60):
        while not holds():
            clock.advance(clock.next_wake_seconds() or 0)
            await asyncio.sleep(0)


async def test_a_wait_across_a_restart_is_one_attempt(bench: Bench, tmp_path: Path) -> None:
    """A wait across a restart is one attempt, finds a file that came meanwhile, and omits time without a process."""
    run_id = await bench.submit(WAIT, {"tool": "after"}, working_dir=str(tmp_path))
    await bench.until(lambda: bench.clock.next_wake_seconds() is not None)  # type: ignore[attr-defined]
    bench.advance(20)
    await bench.crash()
    bench.advance(20)
    (tmp_path / "box/a.task").touch()
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]
    record = (await bench.store.read(run_id)).records[0]
    assert (record.key, record.attempt) == ("box", 1)
    assert record.output == {
        "files": ["box/a.task"],
        "wait_duration_ms": 0,
        "poll_count": 1,
        "timed_out": False,
    }

    await bench.close()


@pytest.mark.parametrize("away", [20, 300])
async def test_its_time_counts_while_its_process_lives(bench: Bench, tmp_path: Path, away: float) -> None:
    """The wait ends a minute after the last start, however long no process was alive; its record is complete."""
    run_id = await bench.submit(WAIT | {"forgiven": True}, {"tool": "after"}, working_dir=str(tmp_path))
    await bench.until(lambda: bench.clock.next_wake_seconds() is not None)  # type: ignore[attr-defined]
    bench.advance(20)
    await bench.crash()
    bench.advance(away)
    await bench.restart()
    await pass_time(bench, lambda: bool(bench.toolbox.executed))

    assert await bench.ended(run_id) == [RunState.DONE]
    record = (await bench.store.read(run_id)).records[0]
    assert record.error is not None
    assert (record.error.code, record.output["timed_out"], record.output["files"]) == ("timeout", True, [])
    assert record.output["wait_duration_ms"] == 60_000

    await bench.close()


async def test_a_waiting_run_holds_no_capacity(bench: Bench, tmp_path: Path) -> None:
    """With a capacity of one, the run that brings the file passes the one that waits for it; a cancel ends a wait."""
    waits = [await bench.submit(WAIT, working_dir=str(tmp_path)) for _ in range(2)]
    await bench.until(lambda: bench.clock.next_wake_seconds() is not None)  # type: ignore[attr-defined]
    worker = await bench.submit({"tool": "work"})
    assert await bench.ended(worker) == [RunState.DONE]

    await bench.pool.cancel(waits[0])
    assert await bench.ended(waits[0]) == [RunState.CANCELLED]

    (tmp_path / "box/a.task").touch()
    ended = asyncio.ensure_future(bench.ended(waits[1]))
    # The wait may be looking at this moment, and sleep only afterwards.
    await pass_time(bench, ended.done)
    assert await ended == [RunState.DONE]

    await bench.close()
