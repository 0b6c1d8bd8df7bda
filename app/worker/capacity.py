"""Capacity: how many runs execute at a time, and the queue of those that wait."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from app.engine import run_engine
from app.worker.workspace_reservations import LockWorkspace, WorkspaceReservations

_HOLDERS_NAMED = 5


def nobody(*_: object) -> None:
    """Ignore a call: the default of callbacks."""


@dataclass(slots=True, kw_only=True, eq=False)
class CapacityRequest:
    """A run's request for capacity."""

    run_id: str
    """Run that asks."""
    priority: int
    """Higher goes first."""
    arrival: int
    """Number of the request; lower goes first within a priority."""
    workspace: str | None
    """Folder that it must hold alone; None if it shares."""
    ancestors: frozenset[str]
    """Runs above it, whose workspace it may hold too."""
    granted: Callable[[], None]
    """Called when it is granted."""

    def __lt__(self, other: CapacityRequest) -> bool:
        return (-self.priority, self.arrival) < (-other.priority, other.arrival)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a request is passed over."""

    reason: str
    """`workspace_busy`, or `recovering` until all holders are known."""
    holder: str | None = None
    """Run that holds the workspace; None if another process does."""


class WorkerCapacity:
    """Grants capacity to a limited number of runs, by priority and then by arrival.

    A request whose workspace is held waits aside until it is free, and does not block those behind it.
    """

    def __init__(self, limit: int, changed: Callable[[str], None] = nobody) -> None:
        """Args: changed: Called with each run that waits for a workspace when its obstacle may have changed."""
        self.limit = limit
        self._changed = changed
        self._workspaces = WorkspaceReservations()
        self._workspaces_known = False
        self._open = True
        self.holding: set[str] = set()
        """Runs that hold capacity."""
        self._queued: dict[str, CapacityRequest] = {}
        self._wanting: dict[str, dict[str, None]] = {}
        self._line: list[CapacityRequest] = []
        self._aside: dict[str, list[CapacityRequest]] = {}
        self._elsewhere: set[str] = set()
        self._told_elsewhere: set[str] = set()
        self._tell_elsewhere: Callable[[], None] = nobody

    def guard(self, lock: LockWorkspace, elsewhere: Callable[[], None]) -> None:
        """Lock workspaces against other processes.

        Args:
            elsewhere: Told that a request stands aside for another process; `look_again` is to be called later.
        """
        self._workspaces.guard(lock)
        self._tell_elsewhere = elsewhere

    def look_again(self) -> bool:
        """Grant what other processes have released; return whether requests still wait for them."""
        waited, self._elsewhere = self._elsewhere, set()
        for workspace in waited:
            self._call_back(workspace)
        self._grant()
        return bool(self._elsewhere)

    @property
    def taken(self) -> int:
        """Return the number of runs that hold capacity."""
        return len(self.holding)

    @property
    def queued(self) -> int:
        """Return the number of requests that wait."""
        return len(self._queued)

    def has_capacity(self, run_id: str) -> bool:
        """Tell whether a run holds capacity."""
        return run_id in self.holding

    def is_queued(self, run_id: str) -> bool:
        """Tell whether a run waits for one."""
        return run_id in self._queued

    def join(self, *requests: CapacityRequest) -> None:
        """Queue requests, and grant what can be granted."""
        for request in requests:
            self._queued[request.run_id] = request
            if request.workspace is not None:
                self._wanting.setdefault(request.workspace, {})[request.run_id] = None
            heapq.heappush(self._line, request)
        self._grant()

    def withdraw(self, run_id: str) -> None:
        """Forget a request; nothing if there is none."""
        if run_id in self._queued:
            self._take_out(run_id)

    def free(self, run_id: str) -> None:
        """Release a run's capacity and grant it to the next; the run keeps its workspace."""
        if run_id in self.holding:
            self.holding.discard(run_id)
            self._grant()

    def hold(self, workspace: str, run_id: str) -> None:
        """Note that a run found at the start holds a workspace."""
        # Who works there beside it began while no service was there; he is not to be waited for by one that has begun.
        self._workspaces.lock(workspace)
        self._workspaces.hold(workspace, run_id)
        self._tell(workspace)

    def know_workspaces(self) -> None:
        """Note that all holders found at the start are known: from now on workspaces are granted."""
        self._workspaces_known = True
        for workspace in list(self._aside):
            self._call_back(workspace)
        self._grant()
        for workspace in list(self._wanting):
            self._tell(workspace)

    def release(self, run_id: str) -> None:
        """Release a run's workspace, and grant what waited for it."""
        workspace = self._workspaces.release(run_id)
        if workspace is not None:
            self._call_back(workspace)
            self._grant()
            self._tell(workspace)

    def obstacle(self, run_id: str) -> Obstacle | None:
        """Return why a waiting run is passed over; None if it only waits for its turn."""
        request = self._queued.get(run_id)
        return self._obstacle(request) if request is not None else None

    def place(self, run_id: str) -> run_engine.QueuePlace | None:
        """Return the place of a waiting run among those that ask for capacity; None if it does not wait."""
        request = self._queued.get(run_id)
        if request is None:
            return None
        before = sum(other < request for other in self._queued.values())
        return run_engine.QueuePlace(
            place=before + 1,
            of=len(self._queued),
            limit=self.limit,
            holders=tuple(itertools.islice(self.holding, _HOLDERS_NAMED)),
        )

    def close(self) -> None:
        """Grant nothing more."""
        self._open = False

    def clear(self) -> None:
        """Release all workspaces to other processes."""
        self._workspaces.close()

    def _grant(self) -> None:
        while self._open and len(self.holding) < self.limit and (request := self._next()) is not None:
            self._take_out(request.run_id)
            self.holding.add(request.run_id)
            if request.workspace is not None:
                self._workspaces.hold(request.workspace, request.run_id)
                self._tell(request.workspace)
            request.granted()
        for workspace in self._elsewhere ^ self._told_elsewhere:
            self._tell(workspace)
        self._told_elsewhere = set(self._elsewhere)

    def _next(self) -> CapacityRequest | None:
        while self._line:
            request = heapq.heappop(self._line)
            if self._queued.get(request.run_id) is not request:
                continue
            if request.workspace is None:
                return request
            if self._obstacle(request) is None:
                if self._workspaces.lock(request.workspace):
                    return request
                self._elsewhere.add(request.workspace)
                self._tell_elsewhere()
            self._aside.setdefault(request.workspace, []).append(request)
        return None

    def _obstacle(self, request: CapacityRequest) -> Obstacle | None:
        if request.workspace is None:
            return None
        if not self._workspaces_known:
            return Obstacle(reason="recovering")
        holder = self._workspaces.holder(request.workspace, request.run_id, request.ancestors)
        busy = holder is not None or request.workspace in self._elsewhere
        return Obstacle(reason="workspace_busy", holder=holder) if busy else None

    def _take_out(self, run_id: str) -> None:
        workspace = self._queued.pop(run_id).workspace
        if workspace is not None:
            wanting = self._wanting[workspace]
            del wanting[run_id]
            if not wanting:
                del self._wanting[workspace]

    def _tell(self, workspace: str) -> None:
        for run_id in self._wanting.get(workspace, ()):
            self._changed(run_id)

    def _call_back(self, workspace: str) -> None:
        for request in self._aside.pop(workspace, ()):
            heapq.heappush(self._line, request)
