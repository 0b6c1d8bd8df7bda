"""Lines of steps that other processes record: a driver gets them in the order of the journal, as a replay does."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("temporalio")

from app.engine import driver_context, driver_scheduler, replay
from app.temporal import workflow
from tests.unit.engine import samples


async def test_a_line_waits_for_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two branches the later line comes first: it is held back, and the driver ends as if it had replayed both."""
    ended: list[str] = []

    async def drive(ctx: Any) -> None:
        async def branch(name: str) -> None:
            await ctx.perform(name, samples.tool(name))
            ended.append(name)

        await ctx.gather({name: branch(name) for name in "ab"})

    async def unread(blob: Any) -> Any:
        raise AssertionError(blob)

    looks: list[int] = []
    monkeypatch.setattr(workflow.RunWorkflow, "_begin_to_look", lambda flow: looks.append(len(flow._records)))
    flow, loaded = workflow.RunWorkflow(), samples.loaded()
    flow._loaded = loaded
    context = driver_context.DriverContext(loaded.start, lambda key, facts: None)
    scheduler = driver_scheduler.DriverScheduler(lambda: drive(context))
    await replay.replay(scheduler, loaded, unread)
    first, second = (samples.record(name, samples.tool(name), place) for place, name in enumerate("ba"))

    flow._land(second)
    await flow._hand_out(scheduler)
    held = list(ended), flow._has_next()
    flow._land(first)
    # Another look brings them once more.
    flow._land(second)
    await flow._hand_out(scheduler)
    flow._land(first)

    assert held == ([], False)
    assert looks == [0]
    assert ended == ["b", "a"]
    assert flow._records == [first, second]
    assert flow._landed == {}
