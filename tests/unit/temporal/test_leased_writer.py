"""The writer of a performed step: several use one lease, which ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

pytest.importorskip("temporalio")

from app.clock import FakeClock
from app.domain import records
from app.engine import ports, stores
from app.storage.memory_store import MemoryStore
from app.temporal import leased_writer, leases
from tests.unit.engine import samples
from tests.unit.temporal import offline


class CountedLeases(leases.Leases):
    """Leases that are counted; others may ask while one is opened."""

    held = 0

    @asynccontextmanager
    async def of(self, run_id: str) -> AsyncIterator[stores.RunLog]:
        """Hold a run for the block."""
        await asyncio.sleep(0)
        async with super().of(run_id) as log:
            self.held += 1
            try:
                yield log
            finally:
                self.held -= 1


class Performs:
    """A performer that carries out what the test wants."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    async def perform(self, call: ports.Call) -> records.Result:
        """Carry it out."""
        await self._work()
        return records.Result()


async def test_a_lease_outlives_the_first_of_two_users() -> None:
    """Two users come together and one leaves at once: the other still has the lease, which ends with it."""
    async with MemoryStore(clock=FakeClock()) as store:
        start = samples.start()
        await store.create(start)
        held = CountedLeases(store, FakeClock())
        writer = leased_writer.LeasedWriter(start.run_id, held, offline.equipment(FakeClock()))
        seen: list[int] = []
        has_left = asyncio.Event()

        async def short() -> None:
            async with writer.use():
                pass
            has_left.set()

        async def long() -> None:
            async with writer.use():
                await has_left.wait()
                seen.append(held.held)

        async def work() -> None:
            await asyncio.gather(short(), long())
            seen.append(held.held)

        await writer.perform_without(Performs(work), cast(Any, None))

        assert seen == [1, 0]
