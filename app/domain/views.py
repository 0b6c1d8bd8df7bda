"""Views: a run as people and polls see it, living or at rest, made from its authority alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from app.domain import plain
from app.domain.gates import gate_id
from app.domain.operations import Gate
from app.domain.records import Place, Record, Usage
from app.domain.runs import RunStart
from app.domain.slots import Board, Slot
from app.domain.states import RunState, StepState
from app.domain.unreadable import Unreadable

NEWEST_STEPS = 200
"""Steps that a run's consolidated answer lists at most; the whole log has its own address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step that is being performed."""

    key: str
    """Step."""
    attempt: int
    """Which try."""
    kind: str
    """Kind of its operation."""
    place: Place
    """Where it stands in the recipe."""
    facts: Mapping[str, plain.Json]
    """`tool`, or `agent_archetype` and `agent_id`."""
    started_at: str
    """When the try began."""
    tools: bool = False
    """Whether an agent that speaks in it may use tools of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run at one moment."""

    start: RunStart
    """What it began with."""
    status: RunState
    """Where it stands."""
    reason: str | None = None
    """Why it stands there, e.g. `workspace_busy` of a pending run or `paused_by_person`."""
    board: Board = field(default_factory=Board)
    """Progress and slots."""
    records: Sequence[Record] = ()
    """All journal lines."""
    dead: AbstractSet[int] = frozenset()
    """Positions of lines that a resume declared dead."""
    counted: Sequence[Record] | None = None
    """The records that count, where whoever made the view knows them already."""
    open: Sequence[OpenStep] = ()
    """Steps being performed."""
    usage: Usage = field(default_factory=Usage)
    """What the run cost so far, dead and repeated tries included."""
    error: Mapping[str, plain.Json] | None = None
    """Error of a failed or parked run."""
    ending: Mapping[str, plain.Json] | None = None
    """`{reason, partial, failed_steps}` of an ended run."""
    updated_at: str = ""
    """When it last changed."""
    completed_at: str | None = None
    """When it ended."""
    unreadable: Unreadable | None = None
    """File of it that cannot be read now; what is shown then is what was known last."""

    def living(self) -> Sequence[Record]:
        """Return the records that count: not dead, and final."""
        if self.counted is not None:
            return self.counted
        return [record for record in self.records if record.final and record.position not in self.dead]


def manifest(view: RunView) -> dict[str, plain.Json]:
    """Return run.json (execution-modes, appendix A)."""
    start, progress = view.start, view.board.progress
    machine = {} if progress.machine is None else {"machine": dict(progress.machine)}
    return {
        "run_id": start.run_id,
        "recipe_id": start.recipe_id,
        "session_id": start.session_id,
        "status": view.status.value,
        "created_at": start.created_at,
        "updated_at": view.updated_at,
        "completed_at": view.completed_at,
        "task": {
            "description": start.description,
            "session_plan_task_id": start.session_plan_task_id,
            "initial_args": dict(start.args),
        },
        "current_step_index": progress.finished_steps,
        "total_steps": progress.total_steps,
        "phase": progress.phase if view.status is RunState.RUNNING else None,
        "error": dict(view.error) if view.error else None,
        "reason": view.reason,
        "dialect": start.dialect,
        "working_dir": start.working_dir,
        "labels": dict(start.labels),
        "priority": start.priority,
        "usage": view.usage.to_json(),
        "ending": dict(view.ending) if view.ending else None,
        "recipe_sha256": start.recipe_sha256,
        "parent_run_id": start.parent_run_id,
        **machine,
    }


def cache(view: RunView) -> dict[str, plain.Json]:
    """Return cache.json (execution-modes, appendix A)."""
    return {name: slot.to_json() for name, slot in view.board.slots.items()}


def finished_step(record: Record) -> dict[str, plain.Json]:
    """Return a step as the consolidated answer shows it (execution-modes, appendix D)."""
    line = record.line
    names = (
        "step_id",
        "phase",
        "status",
        "tool",
        "agent_archetype",
        "agent_id",
        "output_slot",
        "output_preview",
        "finish",
    )
    shown = {name: line[name] for name in names if line.get(name) is not None}
    shown |= {"key": record.key, "attempt": record.attempt}
    shown |= {"started_at": record.started_at, "completed_at": record.completed_at}
    return shown if record.error is None else shown | {"error": record.error.to_json()}


def open_step(step: OpenStep, run_id: str) -> dict[str, plain.Json]:
    """Return a step that is being performed as that answer shows it."""
    place = step.place
    shown: dict[str, plain.Json] = {"step_id": place.step_id, "phase": place.phase, "status": StepState.RUNNING.value}
    shown |= {name: value for name, value in step.facts.items() if value is not None}
    if place.output_slot is not None:
        shown["output_slot"] = place.output_slot
    if step.kind == Gate.kind:
        shown["gate_id"] = gate_id(run_id, step.key, step.attempt)
    return shown | {"key": step.key, "attempt": step.attempt, "started_at": step.started_at}


def slot_summary(slot: Slot) -> dict[str, plain.Json]:
    """Return a slot as that answer shows it."""
    return {"type": slot.type, "preview": slot.summary}


def on_board(view: RunView, board: Board) -> RunView:
    """Put a board under a view."""
    return dataclasses.replace(view, board=board)


def total_usage(records: Iterable[Record]) -> Usage:
    """Add up what all lines cost; dead ones and repeated tries were paid too."""
    total = Usage()
    for record in records:
        total = total.plus(record.usage) if record.usage else total
    return total
