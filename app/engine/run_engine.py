"""The engine port: what use cases require of an engine, in four groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from app import errors
from app.domain import plain
from app.domain.authors import Author
from app.domain.gates import Answer, OpenGate
from app.domain.limits import RunLimits
from app.domain.records import Record
from app.domain.runs import RunStart
from app.domain.states import RunState
from app.domain.views import OpenStep, RunView

if TYPE_CHECKING:
    from app.domain.decisions import Decisions
    from app.domain.inputs import Delivery
    from app.domain.operations import Operation
    from app.engine.open_steps import PerformedStep, StepWait
    from app.engine.spending import Spending
    from app.engine.stores import RunSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The load of the engine."""

    running: int  # Runs that hold capacity.
    queued: int  # Runs that wait for capacity.
    idle: int  # Runs that only wait, loaded or evicted, and those that a fault parked.
    limit: int  # Most runs that execute at a time.
    stopping: bool  # Whether it is shutting down.
    server_away_since: str | None = None
    """Since when the server that hands out steps has not answered; None while it does, and without one."""
    stalled: int = 0  # Steps whose agent or program has been silent for too long.


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """How to continue an ended run."""

    from_key: str | None = None  # Step to go back to; None: the causes of the ending.
    overrides: Mapping[str, plain.Json] = field(default_factory=dict)
    """Fields that replace the frozen ones of the run's start: `args`, `recipe`, `frozen`, …"""
    author: Author | None = None  # Who requests it; None: Control Room itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Changes that a person makes to a run, in any state of it."""

    labels: Mapping[str, str | None] = field(default_factory=dict)  # Labels to set; None: remove the label.
    pinned: bool | None = None  # Whether retention keeps the run; None: unchanged.
    vote: Vote | None = None  # A decision at a gate that needs several keys; it excludes other changes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """The decision of a key at a gate that needs several."""

    gate_id: str  # The gate.
    decision: str  # One of its options.
    message: str  # Text that the key adds to it.
    shown_sha256: str  # Hash, without a label, of what the key was shown.


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a run that is not loaded: queued, or evicted while its open steps only wait."""

    status: RunState
    """`pending`; `running` while the run has capacity and is being loaded; its earlier state if it was evicted."""
    reason: str | None = None  # Why later runs overtake it: `workspace_busy`, `concurrency`, `recovering`.
    holder: str | None = None  # Run that holds its workspace or its key.
    open: Sequence[OpenStep] = ()  # Open steps of an evicted run.
    updated_at: str | None = None  # When an evicted run last changed; None: its folder records it.


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The place of a run in the queue for capacity."""

    place: int  # Place, from 1.
    of: int  # Number of runs that wait.
    limit: int  # Most runs that execute at a time.
    holders: tuple[str, ...]  # Some of the runs that execute.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """The reason why no process is known to perform a step."""

    text: str  # The reason.
    is_known: bool = True  # Whether the step is not being performed; False: its worker cannot be asked.


class RunAdmission(Protocol):
    """Accepts runs, and loads them into memory."""

    def expect(self, run_id: str) -> None:
        """Announce a run that is about to be created, so that recovery does not take it for an earlier process's."""

    async def submit(self, run_id: str, fresh: RunSummary | None = None) -> RunState:
        """Queue an accepted run, and return `running` if it has capacity at once, otherwise `pending`.

        Args:
            fresh: The run as its creation left it; None: read the run's row.
        """

    async def wake(self, run_id: str) -> None:
        """Load an unfinished run that only waits, without capacity; a loaded run repeats failed writes and reads now.

        Raises:
            errors.StorageFault, errors.Conflict: the run cannot be loaded now.
        """

    async def reload(self, run_id: str) -> None:
        """Load a queued or evicted run, because its folder was changed; a run that cannot be loaded leaves."""


class RunOrders(Protocol):
    """Changes runs by order of a person or a rule; each order is durable before it is answered."""

    async def cancel(self, run_id: str, author: Author | None = None) -> RunState:
        """Cancel a run; return once the request is durable. From then on the run cannot end as done.

        Raises:
            errors.NotFound, errors.WrongState: the run has ended.
        """

    async def pause(self, run_id: str, author: Author | None = None, *, interrupt: bool = False) -> RunState:
        """Stop a run at its next step boundary; return once the request is durable.

        Args:
            interrupt: Whether to cut off open steps, as a stop of the service does; they run again as new attempts.

        Raises:
            errors.NotFound, errors.WrongState: the run has ended or is paused.
        """

    async def unpause(self, run_id: str, author: Author | None = None) -> RunState:
        """Continue a paused or parked run, through the queue.

        Raises:
            errors.NotFound, errors.WrongState: the run is not paused.
        """

    async def limit(self, run_id: str, limits: RunLimits, author: Author | None = None) -> None:
        """Change the limits of an unfinished run; return once they are durable.

        Raises:
            errors.NotFound, errors.WrongState: the run has ended.
        """

    async def resume(self, run_id: str, how: Resume) -> RunState:
        """Continue a failed or cancelled run, through the queue.

        Raises:
            errors.NotFound, errors.WrongState: the run is neither failed nor cancelled.
            errors.RequestInvalid: `from_key` names no step of the run; the living lines do not fit the overrides.
        """

    async def mark(self, run_id: str, marks: Marks, author: Author | None = None) -> RunStart:
        """Change a run's labels and its pin, whatever its state; return once that is durable.

        Returns:
            The facts that the run began with, with its present labels and pin.

        Raises:
            errors.NotFound: there is no such run.
            errors.RequestInvalid: it would have too many labels.
        """

    async def deliver(self, run_id: str, key: str, delivery: Answer | Delivery, attempt: int | None = None) -> Record:
        """Answer an open gate, or deliver to another open input; return once its line is durable.

        A run that waits in the queue is loaded for the delivery.

        Args:
            attempt: Which attempt of the step the delivery is for; None: the present one.

        Returns:
            The line of the step.

        Raises:
            errors.NotFound: `gate_not_found`, `input_not_found`: the run has no such open step.
            errors.Conflict: `gate_decided`, `input_decided`: another delivery was first, or its time is over;
                `gate_lapsed`, `input_lapsed`: it was asked anew since; `not_recorded`: the run came to rest before the
                delivery counted. The same value under the same idempotency key is not a conflict at an input.
            errors.WrongState: another engine executes the run.
            errors.RequestInvalid: `unknown_decision`: the gate has no such option.
            errors.WriteFailed: the delivery cannot be written now. An answer that an open gate had accepted counts
                once it is written; any other refused delivery must be sent again.
            errors.Unavailable: the engine stops.
        """


class RemoteExecution(Protocol):
    """Shows what other processes do with the runs; each method may wait for their answers."""

    async def missing_capabilities(self, run_id: str, asked: Sequence[Operation]) -> Mapping[str, Lack]:
        """Return why steps of a run cannot be performed now, by the capability that they need; empty if all can."""

    async def last_outputs(self, run_id: str) -> Mapping[str, str]:
        """Return, by step, when the open steps of a run last had output."""

    async def performed_steps(self) -> Mapping[str, PerformedStep]:
        """Return, by run, the newest of the steps that are performed."""

    async def standing(self, run_id: str) -> Standing | None:
        """Return the obstacle that keeps a pending run from beginning; None if none is known."""


class RunViews(Protocol):
    """Shows where runs are, and what they wait for."""

    @property
    def elsewhere(self) -> bool:
        """Return whether other processes execute the runs, so that their state is read from their journals."""

    @property
    def remote(self) -> RemoteExecution | None:
        """Return what shows the work of these processes; None if there are none, or if they cannot be asked."""

    def view(self, run_id: str) -> RunView | None:
        """Return the view of a loaded run; None if it is not loaded."""

    def standing(self, run_id: str) -> Standing | None:
        """Return the state of a queued or evicted run; None if the run is loaded, or unknown to the engine."""

    def executing(self) -> list[RunView]:
        """Return the views of the loaded runs that hold capacity."""

    def open_gates(self, run_id: str | None = None) -> list[OpenGate]:
        """Return the gates that wait for an answer, of one run or of all in memory, in the order of asking."""

    def obstacle(self, run_id: str) -> errors.StorageFault | None:
        """Return the fault of the data directory for whose end a run waits now, loaded or not."""

    def waits(self, run_id: str) -> Sequence[StepWait] | None:
        """Return what the open steps of a run wait for; None if the run is neither loaded nor evicted."""

    def queue_place(self, run_id: str) -> QueuePlace | None:
        """Return the place of a run in the queue for capacity; None if it does not wait there."""

    def status(self) -> EngineStatus:
        """Return the load of the engine."""


class RunChanges(Protocol):
    """Waits for runs to change, to leave and to end."""

    async def changed(self, run_id: str, since: int) -> int:
        """Wait until a run's change number differs from `since`, and return it; numbers live as long as the process."""

    def change_number(self, run_id: str) -> int:
        """Return a run's present change number."""

    def turn(self, run_id: str) -> AbstractAsyncContextManager[None]:
        """Hold back the orders of this process on a run during a block."""

    async def left(self, run_id: str) -> RunView | None:
        """Wait until a queued or loaded run has left, and return its last view; None if the run was not loaded."""

    async def ended(self, run_id: str) -> RunState:
        """Wait until a submitted run has ended, and return its final state."""


class RunEngine(RunAdmission, RunOrders, RunViews, RunChanges, Protocol):
    """Executes runs; implemented by the pool and by the engine on Temporal."""

    @property
    def spending(self) -> Spending | None:
        """Return the service that keeps calls of agents within limits and budgets; None: calls are not limited."""


_TAKES = {
    "cancel": "only an unfinished run is cancelled",
    "pause": "only a pending, running or waiting run is paused",
    "unpause": "only a paused run is unpaused",
    "limit": "the limits of an ended run are final",
    "resume": "only a failed or cancelled run is resumed",
}


def wrong_state(run_id: str, state: str, order: str, why: str = "") -> errors.WrongState:
    """Return the error for an order that does not fit the state of its run.

    Args:
        why: Reason, if the state does not explain it.
    """
    return errors.WrongState(f"run {run_id} is {state}; {why or _TAKES[order]}", detail={"status": str(state)})


def cancelling(decided: Decisions) -> str:
    """Return why a run refuses orders during its cancellation; empty if the run is not being cancelled."""
    return "it is being cancelled" if decided.cancel_requested_at and not decided.ended else ""
