"""Capacity: grants a bounded number of runs the right to execute, and queues requests for it."""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from app.engine import concurrency_keys, run_engine, stores
from app.worker.fair_rounds import FairRounds
from app.worker.workspace_holds import LockWorkspace, WorkspaceHolds

_KEY = "\0key "  # Prefix that distinguishes a concurrency key from a folder.
_HOLDERS_NAMED = 5


def ignored(*_: object) -> None:
    """Ignore a call: the default callback."""


@dataclass(slots=True, kw_only=True, eq=False)
class CapacityRequest:
    """A run's request for capacity."""

    run_id: str  # Run that requests it.
    priority: int  # Requests with a higher priority go first.
    arrival: int  # Number of the request; within a priority, lower goes first.
    workspace: str | None  # Folder that the run must hold alone; None if it shares its folder.
    ancestors: frozenset[str]
    """Ancestors of the run, whose workspace it may share, and whose hold on the key does not exclude it."""
    key: str | None = None  # Concurrency key that the run must hold; None: it has no key.
    key_limit: int = 1  # Most runs of the key that may be under way, including this one.
    age: concurrency_keys.Age = ("", "")  # When the run was created, and its id.
    label: str | None = None
    """Value of the label by which capacity is shared fairly; None: runs are served in the order of arrival."""
    round: int = 0  # Its round, assigned when it joins the queue.
    granted: Callable[[], None]  # Called when capacity is granted.
    resources: tuple[str, ...] = field(init=False, default=())
    """What it must hold besides capacity: its folder and its key."""

    def __post_init__(self) -> None:
        if self.workspace is not None or self.key is not None:
            key = None if self.key is None else _KEY + self.key
            self.resources = tuple(resource for resource in (self.workspace, key) if resource is not None)

    def __lt__(self, other: CapacityRequest) -> bool:
        return (-self.priority, self.round, self.arrival) < (-other.priority, other.round, other.arrival)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The reason why a request is passed over."""

    reason: str  # `workspace_busy`, `concurrency`, or `recovering` until all holders are known.
    holder: str | None = None  # Run that holds the workspace or the key; None if another process does.


class WorkerCapacity:
    """Grants capacity to a limited number of runs, by priority and then by arrival; the values of a label take turns.

    A request whose workspace or key is held waits aside until that is free, and does not block later requests.

    Args:
        changed: Called with each run that waits for a workspace or a key when its obstacle may have changed.
    """

    def __init__(self, limit: int, changed: Callable[[str], None] = ignored) -> None:
        self.limit = limit
        self._changed = changed
        self._workspaces = WorkspaceHolds()
        self._keys = concurrency_keys.ConcurrencyKeys()
        self._rounds = FairRounds()
        self._holders_known = False
        self._open = True
        self.holding: set[str] = set()
        """Runs that hold capacity."""
        self._queued: dict[str, CapacityRequest] = {}
        self._waiting_for: dict[str, dict[str, None]] = {}
        self._heap: list[CapacityRequest] = []
        self._blocked: dict[str, list[CapacityRequest]] = {}
        self._elsewhere: set[str] = set()
        self._notified_elsewhere: set[str] = set()
        self._notify_elsewhere: Callable[[], None] = ignored

    def guard(self, lock: LockWorkspace, elsewhere: Callable[[], None]) -> None:
        """Lock workspaces against other processes.

        Args:
            elsewhere: Called when a request must wait for another process; the callee must call `grant_released` later.
        """
        self._workspaces.guard(lock)
        self._notify_elsewhere = elsewhere

    def grant_released(self) -> bool:
        """Grant what other processes have released; return whether requests still wait for other processes."""
        workspaces, self._elsewhere = self._elsewhere, set()
        for workspace in workspaces:
            self._requeue(workspace)
        self._grant()
        return bool(self._elsewhere)

    @property
    def in_use(self) -> int:
        """Return the number of runs that hold capacity."""
        return len(self.holding)

    @property
    def queued(self) -> int:
        """Return the number of waiting requests."""
        return len(self._queued)

    def has_capacity(self, run_id: str) -> bool:
        """Return whether a run holds capacity."""
        return run_id in self.holding

    def is_queued(self, run_id: str) -> bool:
        """Return whether a run waits for capacity."""
        return run_id in self._queued

    def join(self, *requests: CapacityRequest) -> None:
        """Queue requests, and grant as many as possible."""
        for request in requests:
            if request.label is not None:
                request.round = self._rounds.join(request.label)
            self._enqueue(request)
        # All requests join first: granted one by one, an early one would overtake an older one of the same call.
        self._grant()

    def rejoin(self, request: CapacityRequest) -> None:
        """Queue a request that was withdrawn at its former place, and grant it if possible."""
        self._enqueue(request)
        self._grant()

    def withdraw(self, run_id: str) -> None:
        """Withdraw a request, if the run has one."""
        # The request stays in the heap, or among the blocked ones, until `_next` finds that it is not queued any more.
        if run_id in self._queued:
            self._dequeue(run_id)

    def free(self, run_id: str) -> None:
        """Release a run's capacity and grant it to the next request; the run keeps its workspace."""
        if run_id in self.holding:
            self.holding.discard(run_id)
            self._grant()

    def hold(self, workspace: str, run_id: str) -> None:
        """Record that a run found at the start holds a workspace."""
        # A process that uses the folder too began while no service ran; a run that has begun does not wait for it.
        self._workspaces.lock(workspace)
        self._workspaces.hold(workspace, run_id)
        self._notify(workspace)

    def hold_key(self, key: str, run_id: str, age: concurrency_keys.Age) -> None:
        """Record that a run found at the start holds a concurrency key."""
        self._keys.hold(key, run_id, age)

    def superseded(self, key: str, age: concurrency_keys.Age, ancestors: Collection[str], *, running: bool) -> set[str]:
        """Return the earlier runs of a key that a newer run cancels: those that have not begun, or all if `running`."""
        queued = {one.run_id for one in self._queued.values() if one.key == key and one.age < age}
        return self._keys.superseded(key, age, queued, running=running) - set(ancestors)

    def know_holders(self) -> None:
        """Record that all holders found at the start are known: from now on workspaces and keys are granted."""
        self._holders_known = True
        for resource in list(self._blocked):
            self._requeue(resource)
        self._grant()
        for resource in list(self._waiting_for):
            self._notify(resource)

    def release(self, run_id: str) -> None:
        """Release a run's workspace and key, and grant the requests that waited for them."""
        workspace, key = self._workspaces.release(run_id), self._keys.release(run_id)
        # Requests that waited for either of them are examined again.
        freed = [resource for resource in (workspace, None if key is None else _KEY + key) if resource is not None]
        for resource in freed:
            self._requeue(resource)
        if freed:
            self._grant()
        for resource in freed:
            self._notify(resource)

    def obstacle(self, run_id: str) -> Obstacle | None:
        """Return why a waiting run is passed over; None if it only waits for its turn."""
        request = self._queued.get(run_id)
        return self._obstacle(request) if request is not None else None

    def place(self, run_id: str) -> run_engine.QueuePlace | None:
        """Return the place of a run in the queue for capacity; None if it does not wait there."""
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
        """Stop granting capacity."""
        self._open = False

    def clear(self) -> None:
        """Release the locks of all workspaces to other processes."""
        self._workspaces.close()

    def _grant(self) -> None:
        while self._open and len(self.holding) < self.limit and (request := self._next()) is not None:
            self._dequeue(request.run_id)
            self.holding.add(request.run_id)
            if request.label is not None:
                self._rounds.grant(request.round, bool(self._queued))
            if request.workspace is not None:
                self._workspaces.hold(request.workspace, request.run_id)
            if request.key is not None:
                self._keys.hold(request.key, request.run_id, request.age)
            for resource in request.resources:
                self._notify(resource)
            request.granted()
        # Only changes are announced: a request that waits for another process is examined again and again.
        for workspace in self._elsewhere ^ self._notified_elsewhere:
            self._notify(workspace)
        self._notified_elsewhere = set(self._elsewhere)

    def _next(self) -> CapacityRequest | None:
        while self._heap:
            request = heapq.heappop(self._heap)
            # The request was withdrawn or granted meanwhile: a heap cannot remove an entry from its middle.
            if self._queued.get(request.run_id) is not request:
                continue
            if (resource := self._blocked_on(request)) is None:
                return request
            self._blocked.setdefault(resource, []).append(request)
        return None

    def _blocked_on(self, request: CapacityRequest) -> str | None:
        if not (resources := request.resources):
            return None
        obstacle = self._obstacle(request)
        if obstacle is not None:
            # The resource whose release requeues the request: the key is the last one, the workspace the first.
            return resources[-1] if obstacle.reason == concurrency_keys.CONCURRENCY else resources[0]
        # The lock is tried last, because only the lock can be held by another process.
        if request.workspace is None or self._workspaces.lock(request.workspace):
            return None
        self._elsewhere.add(request.workspace)
        self._notify_elsewhere()
        return request.workspace

    def _obstacle(self, request: CapacityRequest) -> Obstacle | None:
        if not self._holders_known and request.resources:
            return Obstacle(reason="recovering")
        if request.workspace is not None:
            holder = self._workspaces.holder(request.workspace, request.run_id, request.ancestors)
            if holder is not None or request.workspace in self._elsewhere:
                return Obstacle(reason="workspace_busy", holder=holder)
        if request.key is None:
            return None
        holder = self._keys.obstacle(request.key, request.key_limit, request.run_id, request.ancestors)
        return None if holder is None else Obstacle(reason=concurrency_keys.CONCURRENCY, holder=holder)

    def _enqueue(self, request: CapacityRequest) -> None:
        self._queued[request.run_id] = request
        for resource in request.resources:
            self._waiting_for.setdefault(resource, {})[request.run_id] = None
        heapq.heappush(self._heap, request)

    def _dequeue(self, run_id: str) -> None:
        for resource in self._queued.pop(run_id).resources:
            waiting = self._waiting_for[resource]
            del waiting[run_id]
            if not waiting:
                del self._waiting_for[resource]

    def _notify(self, resource: str) -> None:
        for run_id in self._waiting_for.get(resource, ()):
            self._changed(run_id)

    def _requeue(self, resource: str) -> None:
        for request in self._blocked.pop(resource, ()):
            heapq.heappush(self._heap, request)


def request_of(
    summary: stores.RunSummary, arrival: int, ancestors: frozenset[str], fair_label: str | None
) -> CapacityRequest:
    """Return the request of a run."""
    return CapacityRequest(
        run_id=summary.run_id,
        priority=summary.priority,
        arrival=arrival,
        workspace=workspace_of(summary),
        ancestors=ancestors,
        key=summary.concurrency_key,
        key_limit=summary.concurrency_limit or 1,
        age=(summary.created_at, summary.run_id),
        label=None if fair_label is None else summary.labels.get(fair_label, ""),
        granted=ignored,
    )


def workspace_of(summary: stores.RunSummary) -> str | None:
    """Return the folder that a run must hold alone; None if it shares."""
    return os.path.normpath(summary.working_dir) if summary.exclusive_workspace else None
