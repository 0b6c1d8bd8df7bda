"""The events of a pause."""

from __future__ import annotations

import asyncio

import pytest

from app.domain import authors, states
from app.domain.events import EventType
from app.engine import run_engine
from tests.unit.worker import toys
from tests.unit.worker.pools import Bench


async def test_a_pause_has_one_event_after_any_number_of_starts() -> None:
    """A crash right after the pause was written gives one event at the next start, and further starts add none."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.probes.passed("step.performing")
    await bench.crash_at("pool.after_pause", 1, bench.pool.pause(run_id))
    for _ in range(2):
        await bench.restart()
        await bench.at_rest(run_id)
        await bench.crash()
    await bench.restart()
    told = [event.type for event in await bench.store.read_events(run_id, 0)]
    await bench.close()

    assert told.count(EventType.RUN_PAUSED) == 1


@pytest.mark.parametrize("then", [EventType.RUN_UNPAUSED, EventType.RUN_ENDED])
async def test_a_pause_that_is_overtaken_has_one_event_before_what_overtook_it(then: EventType) -> None:
    """A pause that is revoked during the step in flight, or comes during the last step, is never told afterwards."""
    bench = await Bench().open()
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools(*(("one", "two") if then == EventType.RUN_UNPAUSED else ("one",))))
    await bench.toolbox.begun("one")
    await bench.pool.pause(run_id, authors.LOCAL)
    if then == EventType.RUN_UNPAUSED:
        await bench.pool.unpause(run_id)
    held.set()
    await bench.ended(run_id)
    await bench.pool.mark(run_id, run_engine.Marks(pinned=True))
    events = await bench.store.read_events(run_id, 0)
    told = [event.type for event in events]
    await bench.close()

    assert told.count(EventType.RUN_PAUSED) == 1
    assert told.index(EventType.RUN_PAUSED) < told.index(then)
    assert told[-1] == EventType.RUN_LABELLED
    assert events[told.index(EventType.RUN_PAUSED)].data["author"] == authors.LOCAL.to_json()


async def test_a_pause_that_is_revoked_while_the_run_comes_to_rest_has_one_event() -> None:
    """A second event of one pause would look like a lost line, and park the run at its next start."""
    bench = await Bench(limit=1).open()
    kept = await bench.keep_busy(1)
    run_id = await bench.submit(*toys.tools("one"))
    at, order = "storage.events.before_append", bench.pool.unpause
    revoking: list[asyncio.Task[states.RunState]] = []
    await bench.pool.pause(run_id)
    bench.probes.at(at, bench.probes.count(at) + 1, lambda: revoking.append(asyncio.create_task(order(run_id))))
    await bench.until(lambda: bool(revoking))
    await revoking[0]
    kept.set()
    await bench.ended(run_id)
    told = [event.type for event in await bench.store.read_events(run_id, 0)]
    await bench.close()

    assert told.count(EventType.RUN_PAUSED) == told.count(EventType.RUN_UNPAUSED) == 1
