"""Locks of workspaces: exclude other processes of a project from a folder in which a run works alone."""

from __future__ import annotations

from pathlib import Path

from app import errors
from app.domain import plain
from app.storage import layout
from app.storage.disk import os_disk

_FOLDER = f"{layout.RUNS}/.workspaces"
_FOLDER_MODE = 0o700
_NAME_CHARACTERS = 32


class WorkspaceLocks:
    """Locks workspaces against other processes; a lock ends with its process at the latest.

    The locked file is in the data directory, so that programs that lock the workspace itself are not disturbed.
    """

    def __init__(self, data_directory: Path) -> None:
        self._folder = data_directory / _FOLDER
        self._taken: list[os_disk.OsLock] = []

    def acquire(self, workspace: str, above: str | None = None) -> bool:
        """Lock a workspace until `close`; return False if another process has it.

        Args:
            above: Run that has the workspace and lets its children use it, one at a time.

        Raises:
            errors.ConfigurationError: the data directory cannot be written.
        """
        lock = self.lock(workspace, above)
        self._taken += [lock] if lock is not None else []
        return lock is not None

    def lock(self, workspace: str, above: str | None = None) -> os_disk.OsLock | None:
        """Lock a workspace until the returned lock is released; None if another process has it.

        Raises:
            errors.ConfigurationError: the data directory cannot be written.
        """
        name = plain.sha256(plain.canonical([workspace, above]))[:_NAME_CHARACTERS]
        try:
            (self._folder / name).mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            return os_disk.lock(str(self._folder / name))
        except OSError as error:
            message = f"the workspace {workspace} cannot be locked: {error.strerror or error}"
            raise errors.ConfigurationError(message, code="data_directory_unusable") from error

    def close(self) -> None:
        """Release the workspaces."""
        while self._taken:
            self._taken.pop().release()
