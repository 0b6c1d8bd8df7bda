"""Views: a run as people and polls see it, derived from its authority alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from app import clock
from app.domain import authors, plain, shapes
from app.domain.budgets import BudgetState
from app.domain.decisions import Decisions
from app.domain.gates import APPROVAL_DENIED, gate_id, is_denial
from app.domain.limits import NO_LIMITS, RunLimits
from app.domain.operations import Gate
from app.domain.records import Failure, Finish, Place, Record, StepError, Usage
from app.domain.runs import Ending, RunStart
from app.domain.slots import Board
from app.domain.states import RunState, StepState
from app.domain.unreadable import Unreadable
from app.domain.usage_sums import UsageSum

NEWEST_STEPS = 200  # Most steps in a run's consolidated answer; the whole log has its own address.
MOST_ATTEMPTS = 20  # Most earlier attempts of a step in an answer; the newest are listed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(shapes.Shape):
    """The place of a step in the queue of its backend."""

    place: int  # Place, from 1.
    of: int  # Number of waiting steps, of all runs.
    backend: str  # Name of the backend.
    until: shapes.Instant | None = shapes.omitted()
    """Until when its service wants no prompt, as requested by an answer 429."""
    limit: str | None = shapes.omitted()
    """Setting of the backend for which it waits, with its value: `max_per_minute: 5` or `max_parallel: 2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(shapes.Shape):
    """A step whose agent or program produces no output."""

    key: str  # Key of the step.
    agent_id: str | None  # Agent that is silent; None for a program.
    since: shapes.Instant  # When its newest output arrived, or the step began.
    silent_seconds: int  # How long it had been silent when this was reported.


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptShown(shapes.Shape):
    """An attempt of a step that was not its last."""

    attempt: int  # Number of the attempt, from 1.
    started_at: shapes.Instant  # When it began.
    completed_at: shapes.Instant  # When it ended.
    status: StepState  # Its result.
    error: StepError | None  # Why it failed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(shapes.Shape):
    """The worker on which a run is placed."""

    worker: str  # Identity of the worker's data directory.
    host: str | None = shapes.omitted()
    """Name of its machine when the run was placed; absent in runs of earlier releases."""

    @classmethod
    def of(cls, decided: Decisions) -> Placed | None:
        """Return the placement that a run's journal shows; None: any worker performs its steps."""
        return None if decided.placed is None else cls(worker=decided.placed, host=decided.placed_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step that is being performed."""

    key: str  # Key of the step.
    attempt: int  # Number of the attempt.
    kind: str  # Kind of its operation.
    place: Place  # Its place in the recipe.
    facts: Mapping[str, plain.Json]  # `tool`, or `agent_archetype` and `agent_id`.
    started_at: str  # When the attempt began.
    tools: bool = False  # Whether its agent may use tools of its own.
    output_at: str | None = None  # When its newest output arrived, to the second; None before the first.
    queued: Queued | None = None  # Its place in the queue of its backend; None while it does not wait there.
    stalled: Stalled | None = None  # Its present silence, once reported.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run at one moment."""

    start: RunStart  # The facts that the run began with.
    status: RunState  # Its state.
    reason: str | None = None
    """Why it is in this state, e.g. `workspace_busy` for a pending run or `paused_by_person`."""
    board: Board = field(default_factory=Board)  # Progress and slots.
    records: Sequence[Record] = ()  # All journal lines.
    dead: AbstractSet[int] = frozenset()  # Positions of lines that a resume declared dead.
    counted: Sequence[Record] | None = None
    """The records that count, if the maker of the view already has them."""
    open: Sequence[OpenStep] = ()  # Steps being performed.
    usage: Usage = field(default_factory=Usage)  # Cost of the run so far, including dead and repeated attempts.
    usage_sums: Callable[[], tuple[UsageSum, ...]] = tuple
    """Returns its cost in parts; empty for a run at rest, whose row contains it."""
    error: Mapping[str, plain.Json] | None = None  # Error of a failed or parked run.
    ending: Mapping[str, plain.Json] | None = None  # `{reason, partial, failed_steps}` of an ended run.
    limits: RunLimits = NO_LIMITS  # Its present limits.
    updated_at: str = ""  # When it last changed.
    paused_at: str | None = None  # When its pause began, if its journal records that.
    started_at: str | None = None  # When a worker first took it; None before.
    completed_at: str | None = None  # When it ended.
    placed: Placed | None = None  # Worker on which it is placed; None: any worker performs its steps.
    unreadable: Unreadable | None = None
    """File that cannot be read now; meanwhile the last known state is shown."""
    foreign: bool = False  # Whether its folder was copied here, so that only a resume continues it.
    replaying: bool = False  # Whether its driver has not replayed the whole journal yet: `board` is incomplete.

    def living(self) -> Sequence[Record]:
        """Return the records that count: not dead, and final."""
        if self.counted is not None:
            return self.counted
        return [record for record in self.records if record.final and record.position not in self.dead]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(shapes.Shape):
    """The task of a run."""

    description: str  # The task, as text.
    session_plan_task_id: int | None  # Task of the session plan that started the run.
    initial_args: Mapping[str, plain.Json]  # Arguments of the run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(shapes.Shape):
    """A run in the form of run.json (execution-modes, appendix A)."""

    run_id: shapes.RunId  # Id of the run.
    recipe_id: str  # Recipe of the run.
    session_id: str  # Work session of its receipts.
    status: RunState  # State of the run.
    created_at: shapes.Instant  # When it was accepted.
    updated_at: shapes.Instant  # When it last changed.
    completed_at: shapes.Instant | None  # When it ended.
    task: Task  # Its task.
    current_step_index: int  # Number of finished steps.
    total_steps: int | None  # Steps of the recipe; None if its flow can loop.
    phase: str | None  # `a`, `b` or `dod` while a pipeline runs.
    error: Failure | None  # Why it failed, or was parked.
    reason: str | None
    """Why it is in this state, e.g. `paused_by_person`; `denied` for a failed run whose approval a person denied,
    `partial` for a run that is only partly done.
    """
    dialect: str  # Language of the recipe.
    working_dir: str  # Workspace, as an absolute path.
    started_by: authors.Shown | None = shapes.omitted()
    """Author of the request that started it; absent if Control Room started it, and in runs of earlier releases."""
    labels: Mapping[str, str]  # Labels by which it is found again.
    pinned: bool = shapes.omitted(default=False)  # Whether retention keeps it at any age.
    priority: int  # -100 to 100; higher starts first.
    usage: Usage  # Cost of its steps, including repeated attempts.
    ending: Annotated[Mapping[str, plain.Json], Ending] | None  # How it ended.
    recipe_sha256: str  # Hash of the expanded recipe.
    parent_run_id: str | None  # Run that started it.
    forked_from: str | None = shapes.omitted()  # Run whose first steps it took over.
    machine: Mapping[str, plain.Json] | None = shapes.omitted()
    """State of a recipe that is a state machine: step, visits, conversation, cost."""
    placed: Placed | None = shapes.omitted()  # Worker that performs its steps; absent: any worker.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShown(shapes.Shape):
    """A step in a run's consolidated answer."""

    step_id: str | None = shapes.omitted()  # Name of the step in the recipe.
    phase: str | None = shapes.omitted()  # `a`, `b` or `dod` in pipelines.
    status: StepState  # State of the step.
    tool: str | None = shapes.omitted()  # Tool that the step calls.
    agent_archetype: str | None = shapes.omitted()  # Role that the step asks.
    agent_id: str | None = shapes.omitted()  # Agent that the step asks.
    output_slot: str | None = shapes.omitted()  # Slot that the step fills.
    output_preview: str | None = shapes.omitted()  # Beginning of its output.
    output_file: str | None = shapes.omitted()
    """File to which the output of its command was written, relative to the workspace."""
    finish: Finish | None = shapes.omitted()  # `length`: the reply was cut off at its maximum length.
    gate_id: str | None = shapes.omitted()  # Gate at which it waits.
    key: str  # Permanent name of the step within its run.
    attempt: int  # Number of the attempt, from 1.
    started_at: shapes.Instant  # When the attempt began.
    completed_at: shapes.Instant | None = shapes.omitted()  # When it ended.
    error: StepError | None = shapes.omitted()  # Why it failed.
    holds: bool | None = shapes.omitted()  # Result of a check; false: its condition is not met.
    duration_ms: float | None = shapes.omitted()  # How long the attempt took.
    usage: Usage | None = shapes.omitted()  # Cost of the attempt; absent if it is not metered.
    taken_over: bool = shapes.omitted(default=False)
    """Whether a fork took it over from its source, which performed it and paid for it."""
    attempts: Sequence[AttemptShown] = shapes.omitted(default=())
    """Earlier attempts, the newest 20: repeated ones, and those declared dead by a resume."""
    output_at: shapes.Instant | None = shapes.omitted()
    """When the newest output of a running step arrived, to the second."""
    queued: Queued | None = shapes.omitted()
    """Its place in the queue of its backend, while its status is `queued`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotShown(shapes.Shape):
    """A slot in a run's consolidated answer."""

    type: Literal["pointer", "artifact"]  # `pointer`: the payload is in a receipt; `artifact`: a text.
    preview: str  # Beginning of the output.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail(Manifest):
    """Everything about a run that a poll needs, with the newest 200 steps."""

    # It is never built: `RunResponseCache.encoded` writes these fields as bytes. Add a new field there too, and to
    # `_signs` beside it if it changes without a change number of the run.

    started_at: shapes.Instant | None  # When a worker first took it, as lists show it; None before.
    duration_ms: int | None  # Time from its start to its end, including pauses; None until it has ended.
    steps: Sequence[StepShown]  # The newest steps, in order.
    steps_total: int  # Number of steps, including those omitted from the list.
    cache_summary: Mapping[str, SlotShown]  # Its slots, by name.
    holder: str | None  # Run that holds the workspace for which this one waits.
    stalled: Stalled | None = shapes.omitted()
    """A step whose agent or program has been silent for longer than `CONTROL_ROOM_STALLED_AFTER_SECONDS`."""
    unreadable: Unreadable | None
    """File that cannot be read now, None if all can; meanwhile the last known state is shown."""
    orders: Mapping[str, str | None]
    """Each order, with the reason why the run refuses it now; null: the run accepts it.

    The orders are `pause`, `unpause`, `cancel`, `resume`, `fork` and `delete`.
    """
    budget: BudgetState | None = shapes.omitted()
    """State of its limits, including the runs that it started; absent if it has none."""


def manifest(view: RunView) -> dict[str, plain.Json]:
    """Return the content of run.json (execution-modes, appendix A)."""
    start, progress = view.start, view.board.progress
    task = Task(description=start.description, session_plan_task_id=start.session_plan_task_id, initial_args=start.args)
    return Manifest(
        run_id=start.run_id,
        recipe_id=start.recipe_id,
        session_id=start.session_id,
        status=view.status,
        created_at=start.created_at,
        updated_at=view.updated_at,
        completed_at=view.completed_at,
        task=task,
        current_step_index=progress.finished_steps,
        total_steps=progress.total_steps,
        phase=progress.phase if view.status is RunState.RUNNING else None,
        error=view.error or None,
        reason=view.reason,
        dialect=start.dialect,
        working_dir=start.working_dir,
        started_by=start.started_by,
        labels=start.labels,
        pinned=start.pinned,
        priority=start.priority,
        usage=view.usage,
        ending=view.ending or None,
        recipe_sha256=start.recipe_sha256,
        parent_run_id=start.parent_run_id,
        forked_from=start.forked_from,
        machine=_machine(start, progress.machine),
        placed=view.placed,
    ).to_json()


def _machine(start: RunStart, machine: Mapping[str, plain.Json] | None) -> Mapping[str, plain.Json] | None:
    named = (machine or {}).get("sessionId")
    if machine is None or start.forked_from is None or not isinstance(named, str):
        return machine
    return {**machine, "sessionId": start.conversation(named)}


Attempts: TypeAlias = Mapping[str, Sequence[Record]]
"""Attempts by step that were not its last one: repeated ones, and those that a resume declared dead."""


_NO_ATTEMPTS: Attempts = {}
_DENIED = StepError(code=APPROVAL_DENIED, message="denied; nothing continues past it")


def earlier_attempts(attempts: Attempts, key: str, before: int) -> tuple[AttemptShown, ...]:
    """Return the newest attempts of a step before a given attempt."""
    earlier = [record for record in attempts.get(key, ()) if record.attempt < before]
    return tuple(
        AttemptShown(
            attempt=record.attempt,
            started_at=record.started_at,
            completed_at=record.completed_at,
            status=record.status,
            error=record.error,
        )
        for record in earlier[-MOST_ATTEMPTS:]
    )


def finished_steps(records: Iterable[Record], attempts: Attempts = _NO_ATTEMPTS) -> list[dict[str, plain.Json]]:
    """Return steps in the form of the consolidated answer (execution-modes, appendix D)."""
    shown = []
    for record in records:
        # Polls show each step of a run, and most outputs are texts, which cannot be denials.
        line, denied = record.line, isinstance(record.output, dict) and is_denial(record)
        step = StepShown(
            step_id=line.get("step_id"),
            phase=line.get("phase"),
            status=StepState.FAILED if denied else record.status,
            tool=line.get("tool"),
            agent_archetype=line.get("agent_archetype"),
            agent_id=line.get("agent_id"),
            output_slot=line.get("output_slot"),
            output_preview=line.get("output_preview"),
            finish=record.finish,
            key=record.key,
            attempt=record.attempt,
            started_at=record.started_at,
            completed_at=record.completed_at,
            error=_DENIED if denied else record.error,
            output_file=record.output_file,
            holds=record.holds,
            duration_ms=line.get("duration_ms"),
            usage=record.usage,
            taken_over="taken_over" in line,
            attempts=earlier_attempts(attempts, record.key, record.attempt) if attempts else (),
        )
        shown.append(step)
    return shapes.all_json(shown)


def open_step(step: OpenStep, run_id: str, attempts: Attempts = _NO_ATTEMPTS) -> dict[str, plain.Json]:
    """Return an open step in the form of that answer."""
    return StepShown(
        step_id=step.place.step_id,
        phase=step.place.phase,
        status=StepState.RUNNING if step.queued is None else StepState.QUEUED,
        **step.facts,
        output_slot=step.place.output_slot,
        gate_id=gate_id(run_id, step.key, step.attempt) if step.kind == Gate.kind else None,
        key=step.key,
        attempt=step.attempt,
        started_at=step.started_at,
        attempts=earlier_attempts(attempts, step.key, step.attempt),
        output_at=step.output_at,
        queued=step.queued,
    ).to_json()


def duration_ms(started_at: str | None, completed_at: str | None) -> int | None:
    """Return the time from a run's start to its end, including pauses; None unless both are known."""
    if started_at is None or completed_at is None:
        return None
    try:
        took = clock.instant(completed_at) - clock.instant(started_at)
    except ValueError:
        # A folder that was written by hand may contain any text.
        return None
    # Clocks of two machines may disagree by some milliseconds.
    return max(0, round(took.total_seconds() * 1000))


def on_board(view: RunView, board: Board) -> RunView:
    """Return a view with another board."""
    return dataclasses.replace(view, board=board)
