"""Change numbers of runs: no wait misses a change."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from app.engine import event_feed


async def test_a_change_that_came_first_is_seen_at_once() -> None:
    """A wait with an outdated number returns the new number at once."""
    numbers = event_feed.RunVersions()
    before = numbers.number("run")
    numbers.note("run")

    assert await numbers.differs("run", before) == numbers.number("run") > before


async def test_a_poll_waits_for_its_own_run() -> None:
    """A change of a run wakes all waits for it, and no waits for other runs."""
    numbers = event_feed.RunVersions()
    polls = [asyncio.create_task(numbers.differs("run", numbers.number("run"))) for _ in range(3)]
    await asyncio.sleep(0)
    numbers.note("other")
    await asyncio.sleep(0)

    assert not any(poll.done() for poll in polls)

    numbers.note("run")

    assert await asyncio.gather(*polls) == [numbers.number("run")] * 3


async def test_a_poll_that_gave_up_leaves_nothing() -> None:
    """A cancelled wait is removed."""
    numbers = event_feed.RunVersions()
    poll = asyncio.create_task(numbers.differs("run", 0))
    await asyncio.sleep(0)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)

    assert numbers._waiting == {}


async def test_wake_all_ends_every_wait() -> None:
    """`wake_all` ends every wait, also for unknown runs."""
    numbers = event_feed.RunVersions()
    numbers.note("run")
    polls = [asyncio.create_task(numbers.differs(run, numbers.number(run))) for run in ("run", "unheard")]
    await asyncio.sleep(0)
    numbers.wake_all()

    assert len(await asyncio.gather(*polls)) == 2


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 4))
def test_a_dropped_number_never_hides_a_change(noted: list[int], kept: int) -> None:
    """A changed run never has the number from before the change, however few numbers are kept."""
    numbers = event_feed.RunVersions(kept)
    seen = {run: numbers.number(str(run)) for run in range(6)}
    for run in noted:
        numbers.note(str(run))

        assert numbers.number(str(run)) > seen[run]

        seen[run] = numbers.number(str(run))
