"""The writer of a performed step: several users share one lease, which ends with the last of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

pytest.importorskip("temporalio")

from app import errors
from app.clock import FakeClock
from app.domain import records
from app.domain.decisions import DecisionKind
from app.engine import ports, stores
from app.storage.memory_store import MemoryStore
from app.storage.runs.disk_store import DiskStore
from app.temporal import fenced_log, leased_writer, leases
from app.temporal.replayed_runs import Superseded
from tests.conformance import store_harness
from tests.unit.counted_list import CountedList
from tests.unit.engine import samples
from tests.unit.temporal import offline


class CountedLeases(leases.Leases):
    """Leases that are counted, and that let others ask while one is opened."""

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


class RefusedLeases(CountedLeases):
    """Leases of a store that is away for some tries."""

    refusals = 0

    @asynccontextmanager
    async def of(self, run_id: str) -> AsyncIterator[stores.RunLog]:
        """Refuse while the store is away; else hold a run for the block."""
        if self.refusals:
            self.refusals -= 1
            raise errors.DatabaseAway("the store does not answer")
        async with super().of(run_id) as log:
            yield log


class Performs:
    """A performer that does what the test wants."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    async def perform(self, call: ports.Call) -> records.Result:
        """Do the work."""
        await self._work()
        return records.Result()


async def test_a_lease_outlives_the_first_of_two_users() -> None:
    """When two users come together and one leaves at once, the other keeps the lease, which ends with it."""
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


async def test_a_result_that_waits_for_the_store_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the lease is refused, the log has the begin and the end of the wait, with the run."""
    time = FakeClock()
    async with MemoryStore(clock=time) as store:
        start = samples.start()
        await store.create(start)
        held = RefusedLeases(store, time)
        writer = leased_writer.LeasedWriter(start.run_id, held, offline.equipment(time))

        async def work() -> None:
            held.refusals = 5

        await writer.perform_without(Performs(work), cast(Any, None))
        reaching = asyncio.create_task(writer.attached())
        while not reaching.done():
            await asyncio.sleep(0)
            time.advance(1)
        await writer.give_back()

    logged = [(line.message, line.__dict__["run_id"]) for line in caplog.records if line.name == leased_writer.__name__]
    assert logged == [
        ("a result waits, since its run cannot be written now: the store does not answer", start.run_id),
        ("the run can be written again", start.run_id),
    ]


async def begin(store: DiskStore, run_id: str, key: str) -> None:
    """Begin the first attempt of a step."""
    log = await store.open(run_id)
    await log.decide(DecisionKind.STARTED, {"key": key, "attempt": 1, "operation": f"sha256:{key}"})
    await log.close()


async def record(store: DiskStore, run_id: str, key: str) -> int:
    """Record the first attempt of a step through the fence, and return how many earlier lines were read."""
    log = await store.open(run_id)
    lines = CountedList(log.loaded.records)
    log.loaded = dataclasses.replace(log.loaded, records=lines)
    try:
        await fenced_log.FencedLog(log).append_step(store_harness.step(key))
    finally:
        await log.close()
    return lines.looks


async def test_a_line_costs_no_look_at_those_before_its_try() -> None:
    """Whether an attempt is recorded is decided by the lines since it began, however long the run is."""
    async with MemoryStore(clock=FakeClock()) as store:
        run_id = samples.start().run_id
        await store.create(samples.start())
        for number in range(20):
            await begin(store, run_id, f"s{number}")
            assert await record(store, run_id, f"s{number}") == 0

        await begin(store, run_id, "slow")
        await begin(store, run_id, "quick")
        assert await record(store, run_id, "quick") == 0
        assert await record(store, run_id, "slow") == 1


async def test_a_try_that_another_worker_recorded_is_not_recorded_again() -> None:
    """A second record of an attempt is refused even if other lines were recorded since the first."""
    async with MemoryStore(clock=FakeClock()) as store:
        run_id = samples.start().run_id
        await store.create(samples.start())
        for key in ("first", "twice", "other"):
            await begin(store, run_id, key)
        for key in ("first", "other", "twice"):
            await record(store, run_id, key)
        with pytest.raises(Superseded):
            await record(store, run_id, "twice")

        assert [line.key for line in (await store.read(run_id)).records] == ["first", "other", "twice"]
