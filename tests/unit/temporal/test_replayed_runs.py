"""Replayed runs: the drivers that a process keeps in memory, and evicts for others."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("temporalio")

from app.clock import FakeClock
from app.domain import runs
from app.storage.memory_store import MemoryStore
from app.temporal import replayed_runs
from tests.unit.engine import samples
from tests.unit.temporal import offline

RUNS = [f"20260210T14300{number}Z-abcdef" for number in range(2)]


class Driver:
    """A driver that asks for a step."""

    async def drive(self, ctx: Any) -> runs.Ending:
        """Ask for step `a`."""
        await ctx.perform("a", samples.tool("a"))
        return runs.Ending()


class Clinging(Driver):
    """A driver that asks for another step while it is closed."""

    async def drive(self, ctx: Any) -> runs.Ending:
        """Ask for both steps."""
        try:
            return await super().drive(ctx)
        finally:
            await ctx.perform("b", samples.tool("b"))


async def test_a_driver_that_cannot_be_closed_fails_no_other_run() -> None:
    """A driver that cannot be closed is evicted for another run, which is replayed."""
    drivers: list[Any] = [Clinging(), Driver()]
    store = MemoryStore(clock=FakeClock())
    async with store:
        for run_id in RUNS:
            await store.create(samples.start(run_id=run_id))
        kept = replayed_runs.ReplayedRuns(offline.equipment(FakeClock()), most=1)
        found = [await kept.of(await store.open(each), driver) for each, driver in zip(RUNS, drivers, strict=True)]

        assert list(found[1].scheduler.asks) == ["a"]
