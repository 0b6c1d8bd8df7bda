"""Messages between workflows and activities: they contain ids, positions and hashes, never content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from app.domain import capabilities

WORKFLOW = "control_room_run"  # Name of the workflow of a run.
CLAIM = "control_room_claim"  # Name of the workflow of a claimed workspace.
HOLDER = "run_id"  # Name of the memo field with the run that holds the workspace.

# Names of activities and signals: histories and processes of other versions contain them, so no value may change.
LOAD = "take"  # Activity that loads a run.
READ_LINES = "look"  # Activity that returns the new lines of a run's journal.
READ_BLOB = "read"  # Activity that returns the content behind a handle.
PERFORM = "perform"  # Activity that performs one attempt of a step.
ANNOUNCE = "announce"  # Activity that begins a step that only waits.
FINISH = "finish"  # Activity that records a step that has finished waiting.
SHOW_WAITING = "wait"  # Activity that shows that a run waits for inputs.
ENFORCE_TIME_LIMITS = "look_at_time"  # Activity that brings a run that has reached a time limit to rest.
COMPLETE = "settle"  # Activity that brings a run to rest.
PLACE = "place"  # Activity that places a run on its worker.
PRESENT = "here"  # Activity by which a worker shows that it is present.
NEW_LINES_SIGNAL = "look"  # Signal to a run: its journal has new lines.
CANCEL_SIGNAL = "cancel"  # Signal to a run: its journal has a request to end it.
PAUSE_SIGNAL = "pause"  # Signal to a run: its journal has a pause; the argument is whether to interrupt open steps.
WAIT_SIGNAL = "wait"  # Signal to a claim: a run waits for the workspace.
RELEASE_SIGNAL = "release"  # Signal to a claim: a run needs the workspace no longer.

SUPERSEDED = "superseded"  # Failure type of an activity that the run does not need any more.

NO_CAPACITY = "no_capacity"
"""Failure type of an activity whose worker has no capacity for it, so that another worker gets it."""

PARKED = "parked"  # Failure type of a step that makes its run wait for a person.

WORKER_GONE = "worker_gone"
"""Reason of a pause because the worker on which a run is placed has been away for too long."""

STEPS_OF_A_HISTORY = 1000  # Steps after which a workflow continues as new at the latest.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """A step that an activity is to continue."""

    run_id: str  # The run.
    key: str  # The step.
    operation: str  # Hash of its operation.
    branch: str  # Path of the branch that makes the request.
    child: str | None = None  # Child run for which it waits.
    is_over: bool = False  # Whether its waiting time is over.
    is_given: bool = False  # Whether a source within the service may supply its value.


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A step that only waits, with the facts of its `started` line."""

    due_at: str | None  # When its wait ends; None: not by itself.
    child: str | None = None  # Child run for which it waits.
    recorded: bool = False  # Whether its final line is in the journal already.
    is_given: bool = False  # Whether a source within the service may supply its value.


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The worker on which the steps of a run are performed."""

    worker: str  # Identity of the worker's data directory, next to its workspaces.
    host: str = ""  # Name of its machine; empty where a workflow keeps it.
    gone_seconds: float = 300.0  # Absence of the worker after which the run waits for a person.


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """The reason why a run has to wait for a person."""

    reason: str  # Stable name.
    code: str  # Code of the error.
    message: str  # What happened.
    key: str | None  # Step that parks the run.
    detail: dict[str, Any] | None = None  # Amounts of the limit or budget into which a call does not fit.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOrder:
    """A run that has to come to rest."""

    run_id: str  # The run.
    parking: Parking | None = None  # Why it must wait for a person; None: the journal decides.


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """The time that the limits of a run leave, by its journal."""

    wall_seconds: float | None = None  # Seconds until its wall-clock limit; None: not limited.
    active_seconds: float | None = None  # Seconds for which its steps may still be at work; None: not limited.
    is_at_work: bool = False  # Whether a step is at work now.
    is_reached: bool = False  # Whether the run is paused because it has reached a limit.


def queue(identity: str) -> str:
    """Return the task queue of a data directory: for its workflows, and for their reads and writes of journals."""
    return f"control-room-{identity}"


def steps_queue(queue: str) -> str:
    """Return the task queue of the steps that any worker may perform."""
    return f"{queue}-steps"


def capability_queue(steps: str, capability: str) -> str:
    """Return the task queue for the steps of a queue that need a capability; for tools, the queue itself."""
    return steps if capability == capabilities.TOOLS else f"{steps}-{capability}"


def placing_queue(queue: str, capability: str) -> str:
    """Return the task queue of runs without a worker, by the capability that their first step needs."""
    steps = steps_queue(queue)
    return steps if capability == capabilities.TOOLS else f"{steps}-place-{capability}"


def idle_queue(steps: str) -> str:
    """Return the task queue for the steps of a queue that only wait, and use no capacity."""
    return f"{steps}-idle"


def worker_queue(queue: str, worker: str) -> str:
    """Return the task queue for the steps of runs that are placed on a worker."""
    return f"{queue}-on-{worker}"


def presence_queue(queue: str, worker: str) -> str:
    """Return the task queue on which a worker answers even while all its capacity is in use."""
    return f"{queue}-at-{worker}"


def workers_queue(queue: str) -> str:
    """Return the task queue that lists every worker with its capabilities."""
    return f"{queue}-workers"


def workflow_id(run_id: str) -> str:
    """Return the id of a run's workflow."""
    return f"control-room-{run_id}"


def claim_id(queue: str, place: str | None, workspace: str) -> str:
    """Return the id of the workflow of a workspace on a worker's machine; without a worker, of a mounted folder."""
    digest = hashlib.sha256(f"{place}:{workspace}".encode()).hexdigest()
    return f"{queue}-claim-{digest[:32]}"
