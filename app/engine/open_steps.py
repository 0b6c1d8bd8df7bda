"""Open steps: returns how views show them and what each waits for, computed on request."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app import clock
from app.domain import operations, views
from app.domain.records import Record, retried
from app.domain.states import RunState
from app.engine.active_step import ActiveStep
from app.engine.driver_scheduler import Ask
from app.engine.journal_lines import facts_of
from app.engine.live_steps import BackendQueue
from app.engine.stores import Loaded

MOST = 200  # Most open steps of a run that are examined.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWait:
    """An open step, with its obstacle."""

    key: str  # Key of the step.
    operation: operations.Operation  # The operation.
    attempt: int  # Number of the attempt; 0 before the first.
    since: str | None  # When the attempt began, or when the run first asked a gate.
    due_at: str | None = None  # When a timer or a gate's default is due.
    performing: bool = True  # Whether the performer is at work on it.
    failed: Record | None = None  # The previous attempt, which failed, while the step waits for the next one.
    output_at: str | None = None  # When its newest output arrived, if known.
    step: ActiveStep | None = None  # The step itself, if it is in memory.
    queued: views.Queued | None = None  # Its place in the queue of its backend.


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformedStep:
    """A step that another process performs, as that process reports it."""

    key: str  # Name of the step within its run.
    step_id: str  # Name of the step in the recipe.
    started_at: str  # When the attempt began.
    output_at: str | None  # When its newest output arrived, to the second; None before the first.


def shown(step: ActiveStep) -> views.OpenStep:
    """Return an open step in the form that views show."""
    operation = step.ask.operation
    return views.OpenStep(
        key=step.ask.key,
        attempt=step.attempt,
        kind=operation.kind,
        place=step.ask.place,
        facts=facts_of(operation),
        started_at=clock.stamp(step.started_at) if step.attempt else "",
        tools=isinstance(operation, operations.AgentCall) and operation.tools,
        output_at=None if step.output_at is None else clock.stamp(step.output_at.replace(microsecond=0)),
        queued=None if step.queue is None else _queued(step, step.queue),
        stalled=step.stalled,
    )


def _queued(step: ActiveStep, queue: BackendQueue) -> views.Queued:
    place, count = queue.place_of(step)
    until = None if queue.until is None else clock.stamp(queue.until)
    return views.Queued(place=place, of=count, backend=queue.backend, until=until, limit=queue.limit)


def waits(steps: Iterable[ActiveStep], due: Mapping[str, str]) -> list[StepWait]:
    """Return what the open steps of a loaded or evicted run wait for."""
    return [_of_step(step, due) for step in itertools.islice(steps, MOST)]


def stored_waits(loaded: Loaded, asks: Mapping[str, Ask]) -> list[StepWait]:
    """Return what the open steps of a run wait for, from the run's folder alone.

    Args:
        asks: The driver's open requests after the last line.
    """
    history = retried(loaded.records)
    return [_of_ask(loaded, ask, history.get(ask.key, ())) for ask in itertools.islice(asks.values(), MOST)]


def executed_elsewhere(view: views.RunView, loaded: Loaded, asks: Mapping[str, Ask]) -> views.RunView:
    """Show the open steps of a run from its journal, while another process may be executing it.

    Of a run with the order to pause these are the steps that may still have been performed at the order.
    """
    decided, pauses = loaded.decisions, view.status is RunState.PAUSED
    if not (pauses or view.status is RunState.RUNNING) or decided.cancel_requested_at is not None:
        return view
    recorded = {(record.key, record.attempt) for record in loaded.records}
    newest = [(ask, decided.highest_attempt.get(ask.key, 0)) for ask in itertools.islice(asks.values(), MOST)]
    open_attempts = [(ask, attempt) for ask, attempt in newest if attempt and (ask.key, attempt) not in recorded]
    if pauses:
        open_attempts = [(ask, attempt) for ask, attempt in open_attempts if not ask.operation.idle]
        return dataclasses.replace(view, open=[_begun(loaded, ask, attempt) for ask, attempt in open_attempts])
    awaits = any(isinstance(ask.operation, operations.Input) for ask, _ in open_attempts)
    waits = awaits and len(open_attempts) == len(newest) and all(ask.operation.idle for ask, _ in open_attempts)
    return dataclasses.replace(
        view,
        status=RunState.WAITING if waits else RunState.RUNNING,
        open=[_begun(loaded, ask, attempt) for ask, attempt in open_attempts],
    )


def _begun(loaded: Loaded, ask: Ask, attempt: int) -> views.OpenStep:
    attempts = loaded.decisions.attempts.get(ask.key)
    return views.OpenStep(
        key=ask.key,
        attempt=attempt,
        kind=ask.operation.kind,
        place=ask.place,
        facts=facts_of(ask.operation),
        started_at=loaded.decisions.asked.get(ask.key) or (attempts[-1].at if attempts else ""),
        tools=isinstance(ask.operation, operations.AgentCall) and ask.operation.tools,
    )


def _of_step(step: ActiveStep, due: Mapping[str, str]) -> StepWait:
    view, waits = shown(step), not step.away and bool(step.history)
    return StepWait(
        key=view.key,
        operation=step.ask.operation,
        attempt=step.attempt,
        since=view.started_at or None,
        due_at=due.get(view.key),
        performing=step.away,
        failed=step.history[-1] if waits and step.history[-1].retry_at else None,
        output_at=view.output_at,
        step=step,
        queued=view.queued,
    )


def _of_ask(loaded: Loaded, ask: Ask, history: Iterable[Record]) -> StepWait:
    decided, failed = loaded.decisions, None
    attempt = decided.highest_attempt.get(ask.key, 0)
    for record in history:
        if record.position not in decided.dead and record.attempt >= attempt:
            failed = record
    attempts = decided.attempts.get(ask.key)
    return StepWait(
        key=ask.key,
        operation=ask.operation,
        attempt=attempt,
        since=decided.asked.get(ask.key) or (attempts[-1].at if attempts else None),
        due_at=decided.due.get(ask.key),
        performing=bool(attempts) and failed is None,
        failed=failed,
    )
