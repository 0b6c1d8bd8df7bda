"""Causes of open steps: the reason why a step waits, in plain words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from app import clock, printable
from app.domain import capabilities, explanations, file_operations, gates, operations, plain
from app.engine import open_steps, run_engine, spending

_ORDER: tuple[explanations.CauseKind, ...] = (
    "gate",
    "input",
    "no_worker",
    "agent_silent",
    "agent",
    "step",
    "backend_queue",
    "budget",
    "retry",
    "queued",
    "child_run",
    "files",
    "timer",
    "between_steps",
)
"""Order in which open steps explain a run: first causes that a person can change, then work under way."""

_MORE = 5  # Most further open steps that are named.


def causes(
    run_id: str,
    waits: Sequence[open_steps.StepWait],
    now: datetime,
    stalled_after_seconds: float,
    lacks: Mapping[str, run_engine.Lack] = MappingProxyType({}),
    *,
    by_journal: bool = False,
) -> list[explanations.Cause]:
    """Return the cause that explains a run with these open steps, and one that names the other steps.

    Args:
        lacks: Why no process is known to perform steps, by required capability.
        by_journal: Whether only the journal is known, which shows neither queues of backends nor output.
    """
    stalled_after = None if by_journal else stalled_after_seconds
    found = [_unserved(run_id, wait, lacks) or _cause(run_id, wait, now, stalled_after) for wait in waits]
    if not found:
        return [_of(run_id, "between_steps", "It is between two steps", None)]
    found.sort(key=lambda cause: _ORDER.index(cause.kind))
    first, *others = found
    if not others:
        return [first]
    named = ", ".join(f"{cause.key} ({cause.kind})" for cause in others[:_MORE])
    further = f" and {len(others) - _MORE} others" if len(others) > _MORE else ""
    return [first, _of(run_id, "more", f"Other steps are open, too: {named}{further}", None)]


def spoken(seconds: float) -> str:
    """Return a duration in words."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def is_performed(operation: operations.Operation) -> bool:
    """Return whether a step is performed rather than waiting for a person, a run or a time."""
    return not isinstance(operation, operations.Input | operations.ChildRun | operations.Timer)


def _unserved(
    run_id: str, wait: open_steps.StepWait, lacks: Mapping[str, run_engine.Lack]
) -> explanations.Cause | None:
    capability = capabilities.needed(wait.operation)
    if not is_performed(wait.operation) or capability not in lacks:
        return None
    lack = lacks[capability]
    if not lack.is_known:
        # A worker that does not reach the server either completes the step.
        text = f"Step {wait.key}: its worker cannot be asked: {lack.text}"
        return _of(run_id, "no_worker", text, wait.since, wait.key)
    text = f"Step {wait.key} cannot be performed: {lack.text}"
    act = f"control-room worker --serve {capability}"
    return _of(run_id, "no_worker", text, wait.since, wait.key, act=act)


def _cause(run_id: str, wait: open_steps.StepWait, now: datetime, stalled_after: float | None) -> explanations.Cause:
    step, operation = f"Step {wait.key}", wait.operation
    if wait.failed is not None and wait.failed.retry_at is not None:
        why = (
            f"{printable.clause(wait.failed.error.message)} [{wait.failed.error.code}]"
            if wait.failed.error
            else "it failed"
        )
        text = f"{step} failed ({plain.preview(why)}) and is tried again at {wait.failed.retry_at}"
        return _of(run_id, "retry", text, wait.failed.completed_at, wait.key, until=wait.failed.retry_at)
    match operation:
        case operations.Gate():
            return _gate(run_id, wait, operation)
        case operations.Input():
            return _of(run_id, "input", f"{step} waits for {operation.name or 'an input'}", wait.since, wait.key)
        case operations.ChildRun():
            text = f"{step} waits for a run of {operation.recipe_id}"
            return _of(run_id, "child_run", text, wait.since, wait.key, until=wait.due_at)
        case operations.Timer():
            text = f"{step} is a timer until {wait.due_at or 'its time is over'}"
            return _of(run_id, "timer", text, wait.since, wait.key, until=wait.due_at)
        case file_operations.WaitForFiles():
            count = "a file" if operation.min_count == 1 else f"{operation.min_count} files"
            return _of(run_id, "files", f"{step} waits for {count} {operation.pattern}", wait.since, wait.key)
        case _:
            return _at_work(run_id, wait, now, stalled_after)


def _gate(run_id: str, wait: open_steps.StepWait, gate: operations.Gate) -> explanations.Cause:
    text = f"Step {wait.key} asks: {plain.preview(gate.prompt)} ({' or '.join(gate.options)})"
    until = wait.due_at if gate.default is not None else None
    if until is not None:
        text += f"; at {until} the default {gate.default} is taken"
    gate_id = gates.gate_id(run_id, wait.key, max(wait.attempt, 1))
    act = f"control-room gates answer {gate_id} {gate.options[0]}"
    return _of(run_id, "gate", text, wait.since, wait.key, until=until, act=act)


def _at_work(run_id: str, wait: open_steps.StepWait, now: datetime, stalled_after: float | None) -> explanations.Cause:
    step, operation = f"Step {wait.key}", wait.operation
    if wait.queued is not None:
        text = f"{step} is number {wait.queued.place} of {wait.queued.of} in the queue of backend {wait.queued.backend}"
        if wait.queued.until is not None:
            text += f", whose service accepts no prompt before {wait.queued.until}"
        elif wait.queued.limit is not None:
            text += f", which has {wait.queued.limit} in agents.json"
        return _of(run_id, "backend_queue", text, wait.since, wait.key, until=wait.queued.until)
    if wait.step is not None and (again := wait.step.refused_until) is not None and again > now:
        until = clock.stamp(again)
        text = f"{step}: the service of its backend accepts no prompt before {until}; it is asked again then"
        return _of(run_id, "backend_queue", text, wait.since, wait.key, until=until)
    if wait.step is not None and wait.step.reserving:
        text = f"{step} waits until other calls of agents have ended: beside them a limit or budget has no room for it"
        return _of(run_id, "budget", text, wait.since, wait.key)
    if not wait.performing or wait.since is None:
        return _of(run_id, "between_steps", f"{step} is about to begin", wait.since, wait.key)
    what, is_agent = _actor(operation)
    ago = _seconds_since(wait.since, now)
    may_wait = stalled_after is None and isinstance(operation, operations.AgentCall)
    doing = "at work, or in the queue of its backend," if may_wait else "at work"
    text = f"{step}: {what} has been {doing} for {spoken(ago)}"
    if not is_agent:
        return _of(run_id, "step", text, wait.since, wait.key)
    silent = _seconds_since(wait.output_at or wait.since, now)
    if stalled_after is not None and silent >= stalled_after:
        text = f"{step}: {what} has been silent for {spoken(silent)}"
        act = f"control-room runs pause {run_id} --now"
        return _of(run_id, "agent_silent", text, wait.output_at or wait.since, wait.key, act=act)
    if wait.output_at is not None:
        text += f", with output {spoken(silent)} ago"
    return _of(run_id, "agent", text, wait.since, wait.key)


def behind_call(waits: explanations.Cause, ahead: spending.Ahead, created_at: str) -> explanations.Cause:
    """Return the cause of a call that waits for another one, with the name of that call.

    Args:
        created_at: Time at which the run of the waiting call was accepted.
    """
    amount = "price" if ahead.limit == "cost_usd" else "number of tokens"
    why = (
        f"within the limit of {ahead.of}, calls whose {amount} is not known before are made one after another"
        if ahead.is_unknown
        else f"beside it the limit of {ahead.of} has no room"
    )
    call = f"the call of step {ahead.key}" if ahead.run_id == waits.run_id else f"a call of run {ahead.run_id}"
    text = f"Step {waits.key} waits until {call} has ended: {why}"
    if created_at < ahead.since or ahead.run_id == waits.run_id:
        return dataclasses.replace(waits, text=text)
    # A program that starts a run without naming its parent, and waits for it, waits for itself. Most programs do not,
    # so no command is offered that would cancel a run that only has to wait.
    text += (
        f"; if that call has started this run and waits for it, neither moves: cancel this run, and start it with"
        f" {ahead.run_id} as its parent, whose calls it does not wait for"
    )
    return dataclasses.replace(waits, text=text)


def _actor(operation: operations.Operation) -> tuple[str, bool]:
    match operation:
        case operations.AgentCall():
            return f"agent {operation.agent_id} (backend {operation.backend})", True
        case operations.Command():
            return f"program {operation.argv[0]}", True
        case operations.ToolCall():
            return f"tool {operation.tool}", False
        case _:
            return f"a {operation.kind}", False


def _seconds_since(at: str, now: datetime) -> float:
    return (now - clock.instant(at)).total_seconds()


def _of(
    run_id: str,
    kind: explanations.CauseKind,
    text: str,
    since: str | None,
    key: str | None = None,
    *,
    until: str | None = None,
    act: str | None = None,
) -> explanations.Cause:
    return explanations.Cause(run_id=run_id, kind=kind, text=text, key=key, since=since, until=until, act=act)
