"""Tests of pacing: what begins in one turn of the loop."""

from __future__ import annotations

import asyncio

from app.worker import pacing


async def test_few_begin_in_one_turn_of_the_loop() -> None:
    """A thousand that come at once begin in their order, sixteen a turn, and those that went away take no place."""
    throttle, begun = pacing.Pace(), []

    async def begin(number: int) -> None:
        await throttle.turn()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(1000)]
    most, before = 0, 0
    await asyncio.sleep(0)
    for task in tasks[500:600]:
        task.cancel()
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        most, before = max(most, len(begun) - before), len(begun)

    assert begun == [*range(500), *range(600, 1000)]
    assert most <= 2 * pacing.BEGUN_AT_ONCE
