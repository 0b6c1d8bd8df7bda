"""Project files: JSON documents in the data directory, each replaced atomically and synced before the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from app import errors
from app.domain import json_text, plain
from app.engine import probes
from app.storage.disk import disk_health
from app.storage.disk.disk_port import Disk, Signature, replace

MAX_BYTES = 4 * 1024 * 1024  # Largest file that is read.


class CommonFiles(Protocol):
    """Files that all processes of a store share, with copies in the data directory."""

    def pull(self) -> None:
        """Update the copies."""

    def put(self, name: str, content: bytes) -> None:
        """Replace a file for all processes, durably."""

    async def stop(self) -> None:
        """Stop following changes of other processes."""


class ProjectFile:
    """A JSON document; its methods wait for the disk, and are meant for a thread.

    Args:
        reach: Called with the name of each crash point that a change passes; None: not called.
    """

    def __init__(self, disk: Disk, name: str, reach: Callable[[str], None] | None = None) -> None:
        self.disk = disk
        """The disk that contains the file, or its copy."""
        self._reach = reach or probes.NoProbes().reach
        self.common: CommonFiles | None = None
        """Common files of a store whose processes share the file; changes go there, and the disk gets a copy."""
        self.name = name
        """Name of the file in the data directory."""

    def read(self) -> Any:
        """Return the document; None if the file does not exist.

        Raises:
            errors.Unavailable: `file_unreadable`, it cannot be read now, though its content may be sound.
            errors.Conflict: `file_damaged`, it is not JSON.
        """
        try:
            content = self.disk.read(self.name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            return json_text.read(content.decode())
        except (errors.InputRefused, UnicodeDecodeError) as error:
            message = f"{self.name} in the data directory is not JSON; fix it, or move it away"
            raise errors.Conflict(message, code="file_damaged", detail={"file": self.name}) from error

    def signature(self) -> Signature | None:
        """Return inode, size and time of the last change; None if the file does not exist.

        Raises:
            errors.Unavailable: `file_unreadable`.
        """
        try:
            return self.disk.signature(self.name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(error) from error

    def renew(self) -> None:
        """Make sure that the next read sees the last write of other processes.

        Raises:
            errors.Unavailable: `file_unreadable`.
        """
        try:
            if self.common is not None:
                self.common.pull()
        except OSError as error:
            raise self._unreadable(error) from error

    def write(self, document: plain.Json) -> None:
        """Replace the document durably.

        Raises:
            errors.WriteFailed: it could not be written; the old document is kept.
        """
        try:
            content = plain.readable(document)
            if self.common is not None:
                self.common.put(self.name, content)
                return
            replace(self.disk, self.name, content, sync=True, reach=self._reach, at="storage.project_file")
        except OSError as error:
            message = f"{self.name} cannot be written: {error.strerror}"
            raise errors.WriteFailed(message, detail=disk_health.facts(self.name, error)) from error

    def _unreadable(self, error: OSError) -> errors.Unavailable:
        message = f"{self.name} cannot be read now: {error.strerror}"
        return errors.Unavailable(message, code="file_unreadable", detail={"file": self.name})
