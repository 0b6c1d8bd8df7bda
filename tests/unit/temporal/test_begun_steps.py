"""Steps that have begun: what a workflow regards as begun survives the process that began it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("temporalio")

from app import errors
from app.clock import FakeClock
from app.domain import gates, operations, runs
from app.storage.memory_store import MemoryStore
from tests.unit.engine import samples
from tests.unit.temporal import offline


class Asking:
    """A driver that opens a gate."""

    name = "sample"
    driver_version = 1

    async def drive(self, ctx: Any) -> runs.Ending:
        """Open a gate."""
        await ctx.gate("ask", operations.Gate(prompt="Go on?"))
        return runs.Ending()


async def test_a_gate_that_was_announced_survives_a_power_cut() -> None:
    """An announced gate is on disk and survives a power cut; without its line no answer would be accepted."""
    driver: Any = Asking()
    store = MemoryStore(clock=FakeClock())
    async with store:
        start = samples.start()
        await store.create(start)
        steps = (await offline.engine(store, FakeClock(), {"sample": driver}))._steps
        await steps.announce(await steps.key_order(start.run_id, "ask", "gate"))
        async with store.crashed(lose_unsynced=True) as left:
            asked = (await left.read(start.run_id)).decisions.asked

    assert asked.keys() == {"ask"}


class AskingForAMinute:
    """A driver that opens a gate with a default."""

    name = "sample"
    driver_version = 1

    async def drive(self, ctx: Any) -> runs.Ending:
        """Open a gate that expires after a minute."""
        await ctx.gate("ask", operations.Gate(prompt="Go on?", default="deny", expires_seconds=60.0))
        return runs.Ending()


async def test_an_answer_after_the_due_time_does_not_count() -> None:
    """A late answer is refused, and the default is recorded although no worker was there when the time was over."""
    driver: Any = AskingForAMinute()
    time = FakeClock()
    store = MemoryStore(clock=time)
    async with store:
        start = samples.start()
        await store.create(start)
        engine = await offline.engine(store, time, {"sample": driver})
        await engine._steps.announce(await engine._steps.key_order(start.run_id, "ask", "gate"))
        time.advance(61)
        order = await engine._steps.key_order(start.run_id, "ask", "gate")
        with pytest.raises(errors.Conflict) as refused:
            await engine._steps.deliver(order, gates.Answer(decision="approve"), None)
        [line] = (await store.read(start.run_id)).records

    assert refused.value.code == "gate_decided"
    assert (line.output["decision"], line.output["by_default"]) == ("deny", True)
