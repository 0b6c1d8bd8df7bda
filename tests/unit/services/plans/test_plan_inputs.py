"""Inputs of plans, and the tasks that watch for them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from app import clock
from app.services.plans import plan_inputs


async def test_a_stop_ends_every_wait_though_one_ends_by_itself() -> None:
    """A stop ends the watches of all plans, even if one plan's wait ends by itself meanwhile."""
    missing = cast("Any", None)
    inputs = plan_inputs.PlanInputs(repository=missing, facts=missing, engine=missing, clock=clock.FakeClock())
    begun = asyncio.Event()

    async def watch() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            del inputs.waiting["second"]

    inputs.waiting["first"] = plan_inputs.Waiting(rests={"run": asyncio.create_task(watch())})
    for name in ("second", "third"):
        inputs.waiting[name] = plan_inputs.Waiting()
    await begun.wait()
    await inputs.stop()

    assert list(inputs.waiting) == ["first", "third"]
    assert all(waiting.bell.is_set() for waiting in inputs.waiting.values())
