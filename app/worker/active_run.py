"""Active runs: the state of one run from its queueing to its unloading, and its hold on the pool's capacity."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from app.domain import states, views
from app.engine import aio, evicted_runs, runner, stores
from app.worker.capacity import CapacityRequest, WorkerCapacity


@dataclass(slots=True, kw_only=True, eq=False)
class ActiveRun:
    """One run in the pool."""

    run_id: str  # The run.
    request: CapacityRequest  # Its first request for capacity.
    left: asyncio.Future[states.RunState]  # Resolved with the run's state when it leaves the pool.
    log: stores.RunLog | None = None  # Log of its folder; None until it is loaded.
    runner: runner.Runner | None = None  # Runner that executes it; None until it is loaded.
    task: asyncio.Task[None] | None = None  # The task that loads and runs it; None while it is only queued.
    last: views.RunView | None = None  # Its last view, once it has left.
    failure: BaseException | None = None  # Why the run could not be loaded.
    opened: aio.LightEvent = field(default_factory=aio.LightEvent)  # Set when loading has ended or failed.
    evicted: evicted_runs.Evicted | None = None
    """The part of it that remains in memory while it is evicted; its next runner continues from this."""
    loading: bool = False  # Whether it is being loaded.
    displaced: bool = False  # Whether a command has loaded it from the queue, ahead of its turn.
    turns: int = -1  # Turns of its runner when the evictor last found it quiet; -1: it was not quiet.
    quiet_since: float = 0.0  # When the evictor first found it quiet, in seconds of a clock that never runs backwards.
    is_timed: bool = False  # Whether a task watches its time limits.
    sent_on: bool = False
    """Whether a person cancelled or unpaused it, perhaps too late for its present runner to notice."""
    interrupts: bool = False  # Whether a pause, of which its released runner cannot learn, cuts off its open steps.

    @property
    def is_halted(self) -> bool:
        """Return whether it is loaded, and its journal has an end, a pause or a cancel."""
        return self.log is not None and self.log.loaded.decisions.is_halted

    @property
    def is_halted_unbegun(self) -> bool:
        """Return whether it was halted before it began, and has not left yet."""
        return self.is_halted and self.log is not None and not self.log.loaded.decisions.taken_since_resume


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHooks:
    """What the pool does when its runs move."""

    left: Callable[[str, states.RunState], None]  # Receives a run that has left, with its state.
    died: Callable[[BaseException], None]  # Receives the failure of a task on which all runs depend.
    noted: Callable[[ActiveRun], None]
    """Receives each loaded run before it executes, and again before it is evicted."""
    rest: Callable[[stores.Loaded, evicted_runs.EvictedRun], evicted_runs.RestingRun | None]
    """Makes an evicted run rest without tasks, if all of its steps can; None: the tasks of its steps continue."""


class CapacityHold:
    """A run's hold on capacity: `ports.Capacity` over the pool's `WorkerCapacity`."""

    def __init__(self, capacity: WorkerCapacity, request: CapacityRequest, arrival: Callable[[], int]) -> None:
        self._capacity = capacity
        self.holders = capacity.holding
        self._request = request
        self._arrival = arrival
        self._coming: list[asyncio.Future[None]] = []

    async def enter(self) -> None:
        """Wait for capacity in the queue of all runs; several steps of the run may wait at the same time."""
        run_id = self._request.run_id
        if self._capacity.has_capacity(run_id):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coming.append(granted)
        try:
            # One request serves all of them: the run waits once, however many of its steps wait.
            if not self._capacity.is_queued(run_id):
                self._capacity.join(dataclasses.replace(self._request, arrival=self._arrival(), granted=self._let_in))
            await granted
        finally:
            self._coming.remove(granted)
            # The last step to stop waiting withdraws the request: a run without a waiting step must not get capacity.
            if not self._coming:
                self._capacity.withdraw(run_id)

    def leave(self) -> None:
        """Release the capacity."""
        self._capacity.free(self._request.run_id)

    def _let_in(self) -> None:
        for granted in self._coming:
            if not granted.done():
                granted.set_result(None)
