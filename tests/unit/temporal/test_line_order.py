"""Lines of steps that other processes record: a driver gets them in the order of the journal, as a replay does."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from app.domain import plain
from app.engine import driver_context, driver_scheduler, replay
from app.temporal import attributes, messages, workflow
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


async def test_a_child_that_cannot_be_read_keeps_no_other_from_being_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two collected children is damaged: the other's line lands, and the run parks for the first."""
    line = samples.record("second", samples.tool("second"))

    async def ask(name: str, *args: Any, **named: Any) -> bytes:
        if name == "look":
            return plain.encode({"facts": {"cancelled": False, "paused": False, "ended": False}, "lines": []})
        if args[0].key == "first":
            raise failed_activity("journal_corrupt")
        return plain.encode({"lines": [[line.position, dict(line.line)]]})

    monkeypatch.setattr(workflow, "ask", ask)
    monkeypatch.setattr(attributes.Shown, "show", lambda shown, state: None)
    flow = workflow.RunWorkflow()
    flow._loaded = samples.loaded()
    for key in ("first", "second"):
        flow._collected[key] = messages.StepOrder(run_id="r", key=key, operation="", branch="", child=f"of {key}")

    await flow._look()

    assert list(flow._landed) == [line.position]
    assert flow._collected == {}
    assert flow._parking is not None
    assert (flow._parking.key, flow._parking.code) == ("first", "journal_corrupt")


def failed_activity(code: str) -> ActivityError:
    """Return the failure of an activity that is not repeated."""
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="finish",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    error.__cause__ = ApplicationError("line 1 is damaged", type=code, non_retryable=True)
    return error
