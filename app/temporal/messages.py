"""Messages between workflow and activities: ids, positions and hashes, never content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from app.domain import capabilities

WORKFLOW = "control_room_run"  # Name of the workflow of a run.
CLAIM = "control_room_claim"  # Name of the workflow of a workspace that a run holds alone.
HOLDER = "run_id"  # Name in its memo of the run that holds it.
LOAD = "take"  # Name of the activity that loads a run; recorded in histories, like all names of activities.
COMPLETE = "settle"  # Name of the activity that completes it.
SUPERSEDED = "superseded"  # Type of the failure of an activity that the run needs no more.

NO_CAPACITY = "no_capacity"
"""Type of the failure of an activity whose worker has no capacity for it, so that another one takes it."""

PARKED = "parked"  # Type of the failure of a step that lets its run wait for a person.

WORKER_GONE = "worker_gone"
"""Reason of a pause because the worker that a run is placed on has been away for too long."""

STEPS_OF_A_HISTORY = 1000  # Steps after which a workflow continues as new at the latest.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """A step that an activity is to carry on."""

    run_id: str  # The run.
    key: str  # The step.
    operation: str  # Hash of its operation.
    branch: str  # Path of the branch that asks.
    child: str | None = None  # Run that it waits for.
    is_over: bool = False  # Whether its time is over.
    is_given: bool = False  # Whether it is looked for what gives its value.


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A step that only waits, as its `started` line has it."""

    due_at: str | None  # When it is over; None: not by itself.
    child: str | None = None  # Run that it waits for.
    recorded: bool = False  # Whether its final line is in the journal already.
    is_given: bool = False  # Whether its value may be given from within.


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the steps of a run are performed."""

    worker: str  # Identity of the worker's data directory, beside which its workspaces are.
    gone_seconds: float = 300.0  # Absence of the worker after which the run waits for a person.


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """Why a run is to wait for a person."""

    reason: str  # Stable name.
    code: str  # Code of the error.
    message: str  # What happened.
    key: str | None  # Step.
    detail: dict[str, Any] | None = None  # Amounts of a limit or budget that a call does not fit into.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOrder:
    """A run that is to come to rest."""

    run_id: str  # The run.
    parking: Parking | None = None  # Why it must wait for a person; None: the journal says what to do.


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """What the time limits of a run leave, by its journal."""

    wall_seconds: float | None = None  # Until its wall-clock time is over; None: not limited.
    active_seconds: float | None = None  # Time that its steps may still be at work; None: not limited.
    is_at_work: bool = False  # Whether a step is at work now.
    is_reached: bool = False  # Whether the run is paused because it has reached one.


def queue(identity: str) -> str:
    """Return the task queue of a data directory: its workflows, and what they ask of journals."""
    return f"control-room-{identity}"


def steps_queue(queue: str) -> str:
    """Return the task queue of the steps that any worker performs."""
    return f"{queue}-steps"


def capability_queue(steps: str, capability: str) -> str:
    """Return the task queue of those steps of a queue that need a capability; tools have the queue itself."""
    return steps if capability == capabilities.TOOLS else f"{steps}-{capability}"


def placing_queue(queue: str, capability: str) -> str:
    """Return the task queue of runs that need a worker, by the capability that their first step needs."""
    steps = steps_queue(queue)
    return steps if capability == capabilities.TOOLS else f"{steps}-place-{capability}"


def idle_queue(steps: str) -> str:
    """Return the task queue of those steps of a queue that only wait, and take no capacity of the others."""
    return f"{steps}-idle"


def worker_queue(queue: str, worker: str) -> str:
    """Return the task queue of the steps of runs that are placed on a worker."""
    return f"{queue}-on-{worker}"


def presence_queue(queue: str, worker: str) -> str:
    """Return the task queue on which a worker answers while all its capacity is taken."""
    return f"{queue}-at-{worker}"


def workers_queue(queue: str) -> str:
    """Return the task queue on which every worker is listed with what it serves."""
    return f"{queue}-workers"


def workflow_id(run_id: str) -> str:
    """Return the id of a run's workflow."""
    return f"control-room-{run_id}"


def claim_id(queue: str, place: str | None, workspace: str) -> str:
    """Return the id of the workflow of a workspace on a worker's machine; of no worker: of a mounted folder."""
    digest = hashlib.sha256(f"{place}:{workspace}".encode()).hexdigest()
    return f"{queue}-claim-{digest[:32]}"
