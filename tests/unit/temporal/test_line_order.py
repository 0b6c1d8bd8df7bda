"""Lines of steps that other processes record: a driver gets them in the journal's order, as in a replay."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio import workflow as temporal
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from app import clock
from app.domain import operations, plain, records
from app.engine import driver_context, driver_scheduler, replay
from app.temporal import attributes, messages, workflow
from app.temporal.step_dispatch import StepDispatch
from tests.unit.engine import samples


async def test_a_line_waits_for_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later line of two branches arrives first and is held back, and the driver ends as after a replay of both."""
    ended: list[str] = []

    async def drive(ctx: Any) -> None:
        async def branch(name: str) -> None:
            await ctx.perform(name, samples.tool(name))
            ended.append(name)

        await ctx.gather({name: branch(name) for name in "ab"})

    async def unread(blob: Any) -> Any:
        raise AssertionError(blob)

    looks: list[int] = []
    monkeypatch.setattr(workflow.RunWorkflow, "_begin_to_read", lambda flow: looks.append(len(flow._records)))
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
    # Another look returns the lines once more.
    flow._land(second)
    await flow._hand_out(scheduler)
    flow._land(first)

    assert held == ([], False)
    assert looks == [0]
    assert ended == ["b", "a"]
    assert flow._records == [first, second]
    assert flow._landed == {}


async def test_a_child_that_cannot_be_read_keeps_no_other_from_being_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two collected children is damaged: the other's line is taken, and the run parks for the first."""
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

    await flow._read_new_lines()

    assert list(flow._landed) == [line.position]
    assert flow._collected == {}
    assert flow._parking is not None
    assert (flow._parking.key, flow._parking.code) == ("first", "journal_corrupt")


@pytest.mark.parametrize(
    "operation", [samples.tool("step"), operations.Gate(prompt="Go on?", default="deny", expires_seconds=60)]
)
@pytest.mark.parametrize("comes", ["superseded", "recorded"])
async def test_a_step_that_is_cut_off_is_not_tried_again(
    operation: operations.Operation, comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The activity of a cut step is not repeated, even if it then succeeds or fails instead of being cancelled."""
    asked, begun = list[str](), asyncio.Event()
    line = dataclasses.replace(samples.record("step", operation), final=False, retry_at="2099-01-01T00:00:00.000Z")

    async def ask(name: str, *args: Any, **named: Any) -> Any:
        asked.append(name)
        assert len(asked) == 1
        begun.set()
        # Like an activity whose cancellation is awaited, and that ends by itself meanwhile.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if comes == "superseded":
            raise failed_activity(messages.SUPERSEDED)
        is_gate = isinstance(operation, operations.Gate)
        return messages.Announced(due_at=line.retry_at, is_given=True) if is_gate else b""

    async def sleep(seconds: float) -> None:
        asked.append(f"sleep {seconds}")
        raise AssertionError

    async def perform(dispatch: StepDispatch, order: messages.StepOrder, operation: operations.Operation) -> Any:
        return await ask("perform")

    monkeypatch.setattr(workflow, "ask", ask)
    monkeypatch.setattr(StepDispatch, "perform", perform)
    monkeypatch.setattr(workflow.RunWorkflow, "_record_in", lambda flow, content: line)
    monkeypatch.setattr(temporal, "sleep", sleep)
    monkeypatch.setattr(temporal, "now", lambda: clock.instant("2026-02-10T14:30:00.000Z"))
    flow = workflow.RunWorkflow()
    step = driver_scheduler.Ask(key="step", operation=operation, place=records.Place(step_id="step"))
    flow._steps["step"] = asyncio.create_task(flow._carry_out(step))
    await begun.wait()

    async with asyncio.timeout(5):
        await flow._cut_all()

    assert len(asked) == 1


async def test_a_pause_outlives_a_look_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that read the journal before a pause does not undo the pause: the next step does not begin."""
    asked, looked, performed = list[str](), asyncio.Event(), asyncio.Event()

    async def ask(name: str, *args: Any, **named: Any) -> bytes:
        asked.append(name)
        paused = looked.is_set()
        await looked.wait()
        return plain.encode({"facts": {"cancelled": False, "paused": paused, "ended": False}, "lines": []})

    async def perform(dispatch: StepDispatch, order: messages.StepOrder, operation: operations.Operation) -> bytes:
        asked.append(order.key)
        await performed.wait()
        line = samples.record(order.key, operation)
        return plain.encode({"lines": [[line.position, dict(line.line)]]})

    async def wait_condition(holds: Callable[[], bool], **named: Any) -> None:
        while not holds():  # noqa: ASYNC110 - as the real one, it asks anew after every turn
            await asyncio.sleep(0)

    async def drive(ctx: Any) -> None:
        for name in "ab":
            await ctx.perform(name, samples.tool(name))

    async def unread(blob: Any) -> Any:
        raise AssertionError(blob)

    monkeypatch.setattr(workflow, "ask", ask)
    monkeypatch.setattr(StepDispatch, "perform", perform)
    monkeypatch.setattr(attributes.Shown, "show", lambda shown, state: None)
    monkeypatch.setattr(temporal, "wait_condition", wait_condition)
    monkeypatch.setattr(temporal, "info", lambda: SimpleNamespace(is_continue_as_new_suggested=lambda: False))
    monkeypatch.setattr(temporal, "now", lambda: clock.instant("2026-02-10T14:30:00.000Z"))
    flow = workflow.RunWorkflow()
    flow._loaded = samples.loaded()
    context = driver_context.DriverContext(flow._loaded.start, lambda key, facts: None)
    scheduler = driver_scheduler.DriverScheduler(lambda: drive(context))
    await replay.replay(scheduler, flow._loaded, unread)
    flow.note_new_lines()
    driving = asyncio.create_task(flow._drive(scheduler))
    await wait_condition(lambda: asked == ["look", "a"] or asked == ["a", "look"])
    flow.pause(False)
    looked.set()
    for _ in range(50):
        await asyncio.sleep(0)
    performed.set()
    async with asyncio.timeout(5):
        await driving

    assert sorted(asked) == ["a", "look", "look"]


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
