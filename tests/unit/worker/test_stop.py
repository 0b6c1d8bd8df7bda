"""Stop: no step begins, open steps get a grace period, and every run can continue later."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import states
from app.engine import run_engine, stores
from app.storage import memory_store
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState


async def test_steps_in_flight_get_their_grace() -> None:
    """A step that ends within the grace period is recorded, and the next one waits for the next start."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    stop = asyncio.create_task(bench.pool.stop())
    await bench.until(lambda: bench.pool.status().stopping)
    bench.toolbox.hold("one").set()
    await pools.soon(stop)

    assert await bench.status(run_id) == "running"

    await bench.crash()
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]

    await bench.close()


async def test_after_the_grace_they_are_interrupted() -> None:
    """A step that outlasts the grace period is cut off without a record, and runs again at the next start."""
    bench = await Bench(grace_seconds=5).open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    stop = asyncio.create_task(bench.pool.stop())
    await bench.until(lambda: bench.pool.status().stopping)
    await pools.idle()

    assert not stop.done()

    bench.advance(5)
    await pools.soon(stop)

    assert bench.toolbox.cut == ["one"]

    bench.toolbox.hold("one").set()
    await bench.crash()
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "one/2"]

    await bench.close()


async def test_a_second_stop_can_cut_the_grace_short() -> None:
    """A second stop without a grace period is not delayed; a stop of a stopped pool has no effect."""
    bench = await Bench(grace_seconds=1000).open()
    bench.toolbox.hold("one")
    await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    stop = asyncio.create_task(bench.pool.stop())
    await bench.until(lambda: bench.pool.status().stopping)
    await pools.soon(bench.pool.stop(0))
    await pools.soon(stop)
    await pools.soon(bench.pool.stop())

    assert bench.toolbox.cut == ["one"]

    await bench.close()


async def test_a_stopping_pool_begins_nothing() -> None:
    """Queued runs keep their places, new ones are accepted for the next start, orders for unloaded runs are refused."""
    bench = await Bench(limit=1, grace_seconds=1000).open()
    keeper = await bench.keep_busy(1)
    queued = await bench.submit(*toys.tools("one"))
    stop = asyncio.create_task(bench.pool.stop())
    await bench.until(lambda: bench.pool.status().stopping and bench.pool.status().queued == 0)
    late = await bench.create(*toys.tools("two"))

    assert await bench.pool.submit(late) is RunState.PENDING
    with pytest.raises(errors.Conflict) as refused:
        await bench.pool.cancel(late)
    assert refused.value.code == "stopping"

    keeper.set()
    await pools.soon(stop)

    assert bench.toolbox.executed == ["busy/1"]

    await bench.crash()
    await bench.restart()

    assert await bench.ended(queued, late) == [RunState.DONE] * 2

    await bench.close()


async def test_a_stop_notifies_every_waiting_caller() -> None:
    """A stop wakes polls, and notifies callers that wait for a run's end that it will come later."""
    bench = await Bench(limit=1).open()
    run_id = await bench.submit({"gate": "ask"})
    await bench.shown(run_id, RunState.WAITING)
    poll = asyncio.create_task(bench.pool.changed("another", bench.pool.change_number("another")))
    end = asyncio.create_task(_interrupted(bench, run_id))
    await pools.idle()
    await pools.soon(bench.pool.stop())

    assert await pools.soon(end)
    await pools.soon(poll)

    await bench.close()


async def test_a_cancel_during_the_grace_still_wins() -> None:
    """A run cancelled while the pool stops ends as cancelled before the pool has stopped."""
    bench = await Bench(grace_seconds=1000).open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    stop = asyncio.create_task(bench.pool.stop())
    await bench.until(lambda: bench.pool.status().stopping)
    await bench.pool.cancel(run_id)
    await pools.soon(stop)

    assert await bench.status(run_id) == "cancelled"

    await bench.close()


async def test_stops_do_not_count_as_crashes() -> None:
    """A step cut off by any number of stops is not regarded as one that kills its process."""
    bench = await Bench(grace_seconds=0).open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    for attempt in range(1, 6):
        await bench.executed(f"one/{attempt}")
        await pools.soon(bench.pool.stop())
        await bench.crash()
        await bench.restart()
    bench.toolbox.hold("one").set()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


class Unlistable(memory_store.MemoryStore):
    """A store that cannot list unfinished runs."""

    async def list_unfinished(self) -> list[stores.RunSummary]:
        """Fail."""
        raise ConnectionError("the index is away")


async def test_a_dead_helper_stops_the_pool_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """A pool that cannot recover stops, logs the cause, and reports it to its watcher."""
    bench = Bench()
    bench.pool._store = Unlistable(clock=bench.clock)
    await bench.open()
    with pytest.raises(errors.ControlRoomError) as broken:
        await pools.soon(bench.pool.watch())

    assert broken.value.code == "pool_broken"
    assert isinstance(broken.value.__cause__, ConnectionError)
    assert bench.pool.status().stopping
    assert "a helper died" in caplog.text

    await bench.close()


async def test_an_orderly_stop_does_not_count_as_a_fault() -> None:
    """The watcher of a pool that was asked to stop gets no fault."""
    bench = await Bench().open()
    await bench.close()
    await pools.soon(bench.pool.watch())

    assert bench.pool.status() == run_engine.EngineStatus(running=0, queued=0, idle=0, limit=8, stopping=True)


async def _interrupted(bench: Bench, run_id: str) -> bool:
    try:
        await bench.pool.ended(run_id)
    except errors.InterruptionFault:
        return True
    return False


class SlowRows(memory_store.MemoryStore):
    """A store that returns rows when the test allows it."""

    had: asyncio.Event | None = None

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row."""
        row = await super().summary(run_id)
        if self.had is not None:
            await self.had.wait()
        return row


async def test_a_run_that_comes_too_late_waits_for_the_next_start() -> None:
    """A run whose row is read while the pool stops is not queued, and no caller waits for it."""
    bench = Bench()
    store = SlowRows(clock=bench.clock, probes=bench.probes)
    bench.take_store(store)
    await bench.open()
    run_id, store.had = await bench.create(*toys.tools("one")), asyncio.Event()
    coming = asyncio.create_task(bench.pool.submit(run_id))
    await pools.idle()
    await pools.soon(bench.pool.stop())
    store.had.set()

    assert await pools.soon(coming) is RunState.PENDING

    with pytest.raises(errors.InterruptionFault):
        await bench.ended(run_id)

    await bench.crash()
    store.had = None
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()
