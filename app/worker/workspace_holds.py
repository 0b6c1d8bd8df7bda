"""Workspace holds: track folders that a run holds alone, from its start to its end."""

# A child in its parent's folder would wait for its parent, which waits for the child. So a run may enter a workspace
# that an ancestor holds; siblings exclude one another, and unrelated runs wait for all of them. After a restart
# no workspace is granted before all unfinished runs that had begun hold theirs, including paused ones.

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias

from app import clock
from app.engine import aio

_POLL_SECONDS = 1.0


class Lock(Protocol):
    """A lock that excludes other processes from a workspace."""

    def release(self) -> None:
        """Release the lock to other processes."""


LockWorkspace: TypeAlias = Callable[[str], Lock | None]
"""Locks a workspace against other processes; returns None if another process holds it."""


class WorkspaceHolds:
    """Tracks which run holds which workspace.

    A descendant of the holder may hold the same workspace too; otherwise a parent would wait for its child, and the
    child for its parent's workspace.
    """

    def __init__(self) -> None:
        self._holders: dict[str, list[str]] = {}
        self._held: dict[str, str] = {}
        self._lock: LockWorkspace | None = None
        self._locks: dict[str, Lock] = {}

    def guard(self, lock: LockWorkspace) -> None:
        """Lock held workspaces against other processes from now on."""
        self._lock = lock

    def holder(self, workspace: str, run_id: str, ancestors: Collection[str]) -> str | None:
        """Return the run that keeps another one out; None if that run may hold the workspace now."""
        holders = self._holders.get(workspace)
        if not holders or run_id in holders or holders[-1] in ancestors:
            return None
        return holders[-1]

    def lock(self, workspace: str) -> bool:
        """Lock a workspace for a run that is about to hold it; return False if another process holds it."""
        if self._lock is None or workspace in self._holders:
            return True
        lock = self._lock(workspace)
        if lock is not None:
            self._locks[workspace] = lock
        return lock is not None

    def hold(self, workspace: str, run_id: str) -> None:
        """Give a workspace to a run, until `release`."""
        if run_id not in self._held:
            self._held[run_id] = workspace
            self._holders.setdefault(workspace, []).append(run_id)

    def release(self, run_id: str) -> str | None:
        """Release a run's workspace and return it; None if the run held none."""
        workspace = self._held.pop(run_id, None)
        if workspace is None:
            return None
        self._holders[workspace].remove(run_id)
        # An ancestor and its child hold the workspace together; the last one releases it.
        if not self._holders[workspace]:
            del self._holders[workspace]
            if workspace in self._locks:
                self._locks.pop(workspace).release()
        return workspace

    def close(self) -> None:
        """Release all workspaces to other processes."""
        while self._locks:
            self._locks.popitem()[1].release()


class WorkspacePoller:
    """Polls for workspaces that other processes hold, while requests wait for one.

    Args:
        grant_released: Grants the workspaces that have become free; returns whether requests still wait for others.
        died: Called with the error that ended the poller, if one did.
    """

    def __init__(
        self, time: clock.Clock, grant_released: Callable[[], bool], died: Callable[[BaseException], None]
    ) -> None:
        self._clock = time
        self._grant_released = grant_released
        self._tasks = aio.BackgroundTasks(died)
        self._polling = False

    def begin(self) -> None:
        """Poll until no request waits; a second call meanwhile changes nothing."""
        if not self._polling:
            self._polling = True
            self._tasks.begin(self._poll(), "poll for workspaces")

    def give_up(self) -> None:
        """Stop polling."""
        self._tasks.give_up()

    async def wait_idle(self) -> None:
        """Wait until the poller has stopped."""
        await self._tasks.wait_idle()

    async def _poll(self) -> None:
        waits = True
        while waits:
            await self._clock.sleep(_POLL_SECONDS)
            waits = self._grant_released()
        self._polling = False
