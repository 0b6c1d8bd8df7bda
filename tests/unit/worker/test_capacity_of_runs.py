"""A run that was granted capacity: its state until the journal records that a process took it up."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import states
from app.domain.concurrency import Concurrency
from app.domain.limits import RunLimits
from app.engine import run_engine
from tests.unit.worker import toys
from tests.unit.worker.pools import Bench, idle, soon


async def test_a_seated_run_shows_that_it_runs() -> None:
    """A run that was shown as `running` is not shown as `pending` while it is loaded and its take-up is written."""
    bench = await Bench().open()
    run_id = await bench.create(*toys.tools("one"))
    seen: list[str | None] = []

    def look() -> None:
        view = bench.pool.view(run_id)
        seen.append(None if view is None else view.status.value)

    for point in ("run.before_taken", "run.after_taken"):
        bench.probes.at(point, 1, look)
    told = await bench.pool.submit(run_id)
    await soon(bench.pool.ended(run_id))
    await bench.close()

    assert told is states.RunState.RUNNING
    assert seen == ["running", "running"]


@pytest.mark.parametrize("order", ["mark", "limit", "unpause"])
async def test_an_order_on_a_queued_run_leaves_it_at_its_place(order: str) -> None:
    """A run that an order loads ahead of its turn opens no gate before it has its key, and keeps its place."""
    bench = await Bench(limit=1, fair_label="book").open()
    kept, key = await bench.keep_busy(1), Concurrency(key="book")
    first = await bench.submit({"gate": "ask"}, concurrency=key)
    await bench.submit(*toys.tools("two"), concurrency=key)
    if order == "mark":
        await bench.pool.mark(first, run_engine.Marks(pinned=True))
    elif order == "limit":
        await bench.pool.limit(first, RunLimits(calls=5))
    else:
        with pytest.raises(errors.WrongState):
            await bench.pool.unpause(first)
    await idle()
    place, taken = bench.pool.queue_place(first), (await bench.store.read(first)).decisions.taken
    standing = bench.pool.standing(first)
    kept.set()
    await bench.shown(first, states.RunState.WAITING)
    await bench.close()

    assert place is not None
    assert (place.place, place.of) == (1, 2)
    assert taken == 0
    assert standing is not None
    assert standing.status is states.RunState.PENDING


async def test_a_queued_run_that_is_paused_and_unpaused_at_once_waits_again() -> None:
    """A pause that is revoked before the run has left does not let it begin without its key."""
    bench = await Bench(limit=1).open()
    kept = await bench.keep_busy(1)
    run_id = await bench.submit({"gate": "ask"}, concurrency=Concurrency(key="book"))
    await asyncio.gather(bench.pool.pause(run_id), bench.pool.unpause(run_id))
    await idle()
    place, taken = bench.pool.queue_place(run_id), (await bench.store.read(run_id)).decisions.taken
    kept.set()
    await bench.shown(run_id, states.RunState.WAITING)
    await bench.close()

    assert place is not None
    assert taken == 0
