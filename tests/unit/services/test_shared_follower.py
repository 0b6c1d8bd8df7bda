"""Following runs that other processes execute, by polls of their events."""

from __future__ import annotations

import asyncio

from app.temporal import follower
from tests.unit.worker import pools, toys


async def test_a_change_before_the_first_look_is_noticed() -> None:
    """A change of a run between the read of its number and the first check is noticed."""
    bench = await pools.Bench().open()
    run_id = await bench.submit(*toys.tools("one"))
    following = follower.Follower(bench.store, bench.clock)
    number = following.number(run_id)
    await bench.ended(run_id)
    looking = asyncio.create_task(following.poll())
    try:
        assert await pools.soon(following.differs(run_id, number)) != number
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await bench.close()
