"""Workspaces: folders that a run holds alone, from its start to its end."""

# A child in its parent's folder would wait for its parent, which waits for the child. So a run may enter a
# workspace that a run above it holds; siblings exclude one another, and strangers wait for all of them. After a
# restart nothing is granted before all unfinished runs that had begun hold theirs, paused ones included.

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias


class Lock(Protocol):
    """A workspace that no other process has."""

    def release(self) -> None:
        """Let others have it."""


LockWorkspace: TypeAlias = Callable[[str], Lock | None]
"""Locks a workspace against other processes; None if one has it."""


class WorkspaceReservations:
    """Know which run holds which workspace.

    A run started by the holder may hold the same workspace on top of it, else a parent would wait for its child and the
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
        """Return the run that keeps another one out, None if that one may hold the workspace now."""
        holders = self._holders.get(workspace)
        if not holders or run_id in holders or holders[-1] in ancestors:
            return None
        return holders[-1]

    def lock(self, workspace: str) -> bool:
        """Keep other processes out of a workspace that a run here is about to hold; false if one is in there."""
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
        """Take a run's workspace back, and return it; None if it held none."""
        workspace = self._held.pop(run_id, None)
        if workspace is None:
            return None
        self._holders[workspace].remove(run_id)
        if not self._holders[workspace]:
            del self._holders[workspace]
            if workspace in self._locks:
                self._locks.pop(workspace).release()
        return workspace

    def close(self) -> None:
        """Let other processes have everything."""
        while self._locks:
            self._locks.popitem()[1].release()
