"""Locks of folders within one process; the ownership of the store, or leases, exclude other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable


class FolderLocks:
    """Records which folders are locked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, FolderLock] = {}

    def acquire(self, folder: str, *, wait: bool) -> FolderLock | None:
        """Lock a folder; return None if it is locked already and `wait` is not set."""
        with self._changed:
            while folder in self._held:
                if not wait:
                    return None
                self._changed.wait()
            lock = self._held[folder] = FolderLock(folder, self)
            return lock

    def moved(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Move a folder, which stays locked under its new name."""
        move()
        with self._changed:
            if (lock := self._held.pop(old, None)) is not None:
                lock.folder = new
                self._held[new] = lock

    def free(self, lock: FolderLock) -> None:
        """Release a folder; a second call has no effect."""
        with self._changed:
            if self._held.get(lock.folder) is lock:
                del self._held[lock.folder]
                self._changed.notify_all()


class FolderLock:
    """`Lock` on a folder."""

    def __init__(self, folder: str, locks: FolderLocks) -> None:
        self.folder = folder
        """Name of the locked folder."""
        self._locks = locks

    def release(self) -> None:
        """Release the folder."""
        self._locks.free(self)
