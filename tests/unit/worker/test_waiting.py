"""Timers and the grace period of a stop, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app import clock
from app.domain import operations, records, states
from app.engine import aio, ports
from app.worker import waiting_performers
from tests.unit.engine import samples


def call(seconds: float, due_at: str | None) -> ports.Call:
    """Return a call of a timer."""
    unused: Any = None
    return ports.Call(
        run=samples.start(),
        key="wait",
        attempt=1,
        operation=operations.Timer(seconds=seconds),
        place=records.Place(step_id="wait"),
        due_at=due_at,
        read_blob=unused,
        write_log=unused,
    )


@pytest.mark.parametrize(
    ("due_in", "left"),
    [(60.0, 60.0), (20.0, 20.0), (-5.0, 0.0), (4000.0, 60.0), (None, 60.0)],
)
async def test_a_timer_waits_only_for_its_remaining_time(due_in: float | None, left: float) -> None:
    """A timer does not begin anew after a restart, and a clock that was set back does not make it longer."""
    time = clock.FakeClock()
    due_at = None if due_in is None else clock.stamp(time.now() + timedelta(seconds=due_in))
    waits = asyncio.create_task(waiting_performers.Timers(time).perform(call(60, due_at)))
    await asyncio.sleep(0)
    if left:
        time.advance(left - 1)
        await asyncio.sleep(0)

        assert not waits.done()

    time.advance(1)

    assert (await waits).status is states.StepState.DONE


async def test_a_finished_wait_does_not_use_up_the_grace_period() -> None:
    """A stop whose runs come to rest does not use up its grace period."""
    time = clock.FakeClock()
    grace = aio.GracePeriod(time)
    grace.limit(10)
    await grace.wait_for(asyncio.create_task(asyncio.sleep(0)))

    assert time.monotonic() == 0


async def test_a_grace_period_can_be_cut_short() -> None:
    """A second, nearer limit ends the grace period earlier."""
    time = clock.FakeClock()
    grace = aio.GracePeriod(time)
    grace.limit(10)
    busy: asyncio.Task[Any] = asyncio.create_task(asyncio.Event().wait())
    waits = asyncio.create_task(grace.wait_for(busy))
    await asyncio.sleep(0)

    assert not waits.done()

    grace.limit(0)
    await waits
    busy.cancel()
