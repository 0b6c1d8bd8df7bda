"""Faults: a fault of one run stays with that run, which continues by itself when the cause is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from app import errors
from app.domain import states
from app.engine import ports, stores
from app.services import run_queries
from app.storage import memory_store
from app.worker import loading
from tests.unit.worker import failing, pools, toys

Bench = pools.Bench
RunState = states.RunState


async def opened(store: memory_store.MemoryStore | None = None, **parts: object) -> Bench:
    """Return an open bench over a store of failing parts."""
    bench = Bench(limit=2)
    bench.take_store(store or memory_store.MemoryStore(clock=bench.clock, probes=bench.probes, **parts))  # type: ignore[arg-type]
    return await bench.open()


async def test_a_full_disk_parks_a_run_until_there_is_room() -> None:
    """The finished step waits in memory, orders are refused with the reason, and no step is executed twice."""
    disk = failing.FullDisk()
    bench = await opened(disk=disk)
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    disk.full = True
    bench.toolbox.hold("one").set()
    view = await bench.shown(run_id, RunState.PAUSED)

    assert view.error is not None
    assert view.error["code"] == "storage_error"
    with pytest.raises(errors.WriteFailed):
        await bench.pool.cancel(run_id)

    disk.full = False
    await bench.advance_until(lambda: run_id not in bench.active.active_runs)

    assert await bench.status(run_id) == "done"
    assert bench.toolbox.executed == ["one/1", "two/1"]

    await bench.close()


async def test_a_stop_does_not_wait_for_room() -> None:
    """A run parked by a full disk does not delay a stop of its service, and repeats its step later."""
    disk = failing.FullDisk()
    bench = await opened(disk=disk)
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    disk.full = True
    bench.toolbox.hold("one").set()
    await bench.shown(run_id, RunState.PAUSED)
    await pools.soon(bench.pool.stop(0))
    await bench.crash()
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "one/2"]

    await bench.close()


async def test_a_lost_index_leaves_the_run_unfinished() -> None:
    """A run whose row cannot be written stays unfinished in the index, and is corrected when the index is back."""
    index = failing.LostIndex()
    bench = await opened(index=index)
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    index.lost = True
    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)

    assert (await bench.status(run_id), bench.store.lags(run_id)) == ("done", True)
    assert not bench.pool.status().stopping
    assert await bench.ended(run_id) == [RunState.DONE]

    index.lost = False
    await pools.idle()
    bench.advance(loading.RELOAD_SECONDS)
    await bench.until(lambda: run_id in bench.active.active_runs)
    await bench.at_rest(run_id)

    assert (await bench.status(run_id), bench.store.lags(run_id)) == ("done", False)
    assert bench.toolbox.executed == ["one/1"]

    await bench.close()


async def test_a_pool_with_a_lost_index_recovers_old_runs_later(caplog: pytest.LogCaptureFixture) -> None:
    """A pool that cannot list unfinished runs at its start executes new runs, and continues the others later."""
    bench = Bench(limit=2)
    index = failing.LostIndex()
    bench.take_store(memory_store.MemoryStore(clock=bench.clock, probes=bench.probes, index=index))
    await bench.store.start()
    left = await bench.create(*toys.tools("one"))
    index.lost = True
    bench.pool.start()
    await bench.until(lambda: "unfinished runs not listed" in caplog.text)
    index.lost = False
    fresh = await bench.submit(*toys.tools("two"))
    first = await bench.ended(fresh)
    waiting = await bench.status(left)
    bench.advance(loading.RELOAD_SECONDS)
    found = await pools.soon(bench.pool.recovered())

    assert (first, waiting) == ([RunState.DONE], "pending")
    assert (found, await bench.ended(left)) == (1, [RunState.DONE])
    assert not bench.pool.status().stopping

    await bench.close()


async def sent_on(bench: Bench, order: str, point: str, trouble: Callable[[], None]) -> str:
    """Stop a run in its second step and continue it, with a fault that begins at a point of the order."""
    held = bench.toolbox.hold("slow")
    run_id = await bench.submit({"tool": "big", "reads": True}, *toys.tools("slow"))
    await bench.toolbox.begun("slow")
    await (bench.pool.pause(run_id, interrupt=True) if order == "unpause" else bench.pool.cancel(run_id))
    await bench.at_rest(run_id)
    held.set()
    bench.probes.at(point, bench.probes.count(point) + 1, trouble)
    await (bench.pool.unpause(run_id) if order == "unpause" else bench.resumed(run_id))
    return run_id


@pytest.mark.parametrize("order", ["unpause", "resume"])
async def test_a_run_is_sent_on_though_its_outputs_cannot_be_read(order: str) -> None:
    """An order on disk is valid, and the run continues as soon as its outputs can be read."""
    disk = failing.BadBlobs()
    bench = await opened(disk=disk)
    run_id = await sent_on(bench, order, f"pool.after_{order}", lambda: setattr(disk, "bad", True))
    await bench.at_rest(run_id)
    disk.bad = False
    await bench.advance_until(lambda: "slow/2" in bench.toolbox.executed)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["big/1", "slow/1", "slow/2"]

    await bench.close()


@pytest.mark.parametrize(
    ("order", "point"), [("unpause", "pool.after_unpause"), ("resume", "storage.decide.before_write")]
)
async def test_a_run_is_sent_on_though_its_row_cannot_be_written(order: str, point: str) -> None:
    """An order on disk is valid while the index is away."""
    index = failing.LostIndex()
    bench = await opened(index=index)
    run_id = await sent_on(bench, order, point, lambda: setattr(index, "lost", True))
    index.lost = False

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["big/1", "slow/1", "slow/2"]

    await bench.close()


async def test_a_damaged_journal_fails_its_own_run() -> None:
    """A run whose journal is damaged before its end is shown as failed, holds no resource, and blocks no other run."""
    bench = await Bench(limit=2).open()
    bench.toolbox.hold("three")
    damaged = await bench.submit(*toys.tools("one", "two", "three"), exclusive_workspace=True)
    await bench.toolbox.begun("three")
    waiting = await bench.submit(*toys.tools("four"), exclusive_workspace=True)
    await bench.crash()
    bench.damage(damaged, "steps.jsonl")
    await bench.restart()

    assert await bench.ended(damaged, waiting) == [RunState.FAILED, RunState.DONE]
    assert (await bench.store.summary(damaged)).error_code == "journal_corrupt"
    with pytest.raises(errors.JournalCorrupt):
        await bench.resumed(damaged)
    with pytest.raises(errors.WrongState):
        await bench.pool.cancel(damaged)

    await bench.close()


async def test_a_fault_in_opening_a_run_does_not_stop_the_pool() -> None:
    """A fault in opening one run is logged and leaves that run alone; the pool continues."""
    bench = Bench(limit=2)
    store = failing.OddFolder(clock=bench.clock, probes=bench.probes)
    bench.take_store(store)
    await bench.open()
    store.odd = await bench.create(*toys.tools("one"))
    await bench.pool.submit(store.odd)
    fine = await bench.submit(*toys.tools("two"))

    assert await bench.ended(fine) == [RunState.DONE]

    await bench.at_rest(store.odd)
    with pytest.raises(errors.ControlRoomError) as refused:
        await bench.pool.cancel(store.odd)

    assert refused.value.code == "internal_error"

    view = await bench.shown(store.odd, RunState.PAUSED)

    assert (view.reason, view.error and view.error["code"]) == ("internal_error", "internal_error")

    rows, _ = await _queries(bench).page(stores.RunQuery(recipe_id=view.start.recipe_id))

    assert [(row.status, row.reason, row.error_code) for row in rows if row.run_id == store.odd] == [
        ("paused", "internal_error", "internal_error")
    ]

    odd, store.odd = store.odd, None

    assert await bench.pool.unpause(odd) is RunState.RUNNING
    assert await bench.ended(odd) == [RunState.DONE]

    await bench.close()


def _queries(bench: Bench) -> run_queries.RunQueries:
    return run_queries.RunQueries(store=bench.store, engine=bench.pool, drivers=bench.dialects, clock=bench.clock)


@pytest.mark.parametrize("trouble", [TypeError("nobody thought of this"), OSError(24, "Too many open files")])
async def test_a_run_that_breaks_once_its_folder_is_open_stops_nothing(trouble: Exception) -> None:
    """The folder of a run that fails after its opening is closed, so that the run executes once the cause is gone."""
    bench = Bench(limit=2)
    odd = failing.OddRecipes()
    bench.dialects["odd"] = cast(ports.Dialect, odd)
    await bench.open()
    odd.trouble = trouble
    run_id = await bench.submit(*toys.tools("one"), dialect="odd")
    await bench.at_rest(run_id)
    fine = await bench.submit(*toys.tools("two"))

    assert await bench.ended(fine) == [RunState.DONE]
    assert not bench.pool.status().stopping

    odd.trouble = None
    if isinstance(trouble, OSError):
        await bench.advance_until(lambda: "one/1" in bench.toolbox.executed)
    else:
        assert (await bench.shown(run_id, RunState.PAUSED)).reason == "internal_error"
        await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_busy_folder_is_tried_again() -> None:
    """A run that another process holds for a while is queued again until it is free."""
    bench = await Bench(limit=2).open()
    run_id = await bench.create(*toys.tools("one"))
    held = await bench.store.open(run_id)
    await bench.pool.submit(run_id)
    await bench.at_rest(run_id)
    with pytest.raises(errors.Conflict) as refused:
        await bench.pool.cancel(run_id)

    assert refused.value.code == "run_busy"
    assert bench.pool.status().running == 0

    await held.close()
    bench.advance(loading.RELOAD_SECONDS)

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_deleted_run_is_not_missed() -> None:
    """A run whose folder disappears while it is queued leaves the queue."""
    bench = await Bench(limit=1).open()
    keeper = await bench.keep_busy(1)
    gone = await bench.submit(*toys.tools("one"))
    bench.remove(gone)
    fine = await bench.submit(*toys.tools("two"))
    keeper.set()

    assert await bench.ended(fine) == [RunState.DONE]
    assert gone not in bench.active.active_runs

    await bench.close()
