"""The events of a pause."""

from __future__ import annotations

from app.domain.events import EventType
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
