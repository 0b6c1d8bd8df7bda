"""Stays: a run in the pool, from its queueing to its unloading."""

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
    """One run while the pool has it."""

    run_id: str
    """The run."""
    ticket: CapacityRequest
    """Its first request for a seat."""
    left: asyncio.Future[states.RunState]
    """How it stood when it left."""
    log: stores.RunLog | None = None
    """Its folder; None until it is loaded."""
    runner: runner.Runner | None = None
    """What executes it; None until it is loaded."""
    task: asyncio.Task[None] | None = None
    """The task that loads and runs it; None while it is only queued."""
    last: views.RunView | None = None
    """How it was shown last, once it has left."""
    failure: BaseException | None = None
    """Why it could not be loaded."""
    opened: aio.LightEvent = field(default_factory=aio.LightEvent)
    """Set when loading is over, well or not."""
    evicted: evicted_runs.EvictedRun | None = None
    """What is kept of it while it is let go of; its next runner takes that over."""
    loading: bool = False
    """Whether it is being loaded."""
    turns: int = -1
    """Turns of its runner at the last walk that found it quiet; -1: it was not."""
    quiet_since: float = 0.0
    """When it was first found so, in seconds of a clock that never runs backwards."""
    sent_on: bool = False
    """Whether a person cancelled or unpaused it, perhaps too late for its present runner to notice."""


class Reservation:
    """One run's hold on a seat: `ports.Slots` over the pool's `Seats`."""

    def __init__(self, capacity: WorkerCapacity, ticket: CapacityRequest, arrival: Callable[[], int]) -> None:
        self._capacity = capacity
        self.holders = capacity.seated
        self._ticket = ticket
        self._arrival = arrival
        self._coming: list[asyncio.Future[None]] = []

    async def enter(self) -> None:
        """Wait for the seat, in the same queue as every run; several steps of the run may wait for it together."""
        run_id = self._ticket.run_id
        if self._capacity.is_seated(run_id):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coming.append(granted)
        try:
            if not self._capacity.is_queued(run_id):
                self._capacity.join(dataclasses.replace(self._ticket, arrival=self._arrival(), granted=self._let_in))
            await granted
        finally:
            self._coming.remove(granted)
            if not self._coming:
                self._capacity.withdraw(run_id)

    def leave(self) -> None:
        """Give the seat back."""
        self._capacity.free(self._ticket.run_id)

    def _let_in(self) -> None:
        for granted in self._coming:
            if not granted.done():
                granted.set_result(None)
