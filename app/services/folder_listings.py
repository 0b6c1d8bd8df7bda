"""Folder listings: the names in a folder, read again only when the folder may have changed, and read errors."""

# A folder is listed again only if its mark (times, inode, kind) has changed, or if the last listing was within a second
# of its last change: the second of two changes within one tick of the disk's clock leaves no mark.

from __future__ import annotations

import errno
import logging
import math
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from app import clock

_log = logging.getLogger(__name__)

UNREADABLE = "unreadable"  # Code of the flaw of a file that the system does not let the service read now.
ABSENT = (errno.ENOENT, errno.ENOTDIR)  # System errors for a missing file.

TRUSTED_SECONDS = 1.0
"""Time for which a listing is valid while its folder's mark is unchanged; longer than a tick of any disk's clock."""


class Mark(NamedTuple):
    """Stamp that changes with every change of a file or folder."""

    fault: int = 0  # Error number of the system if the file cannot be examined; 0 if it can.
    modified_ns: int = 0  # Time of the last change of its content.
    changed_ns: int = 0  # Time of the last change of any kind.
    size_bytes: int = 0  # Size.
    inode: int = 0  # Inode, which identifies the file.
    mode: int = 0  # Kind and permissions.

    @property
    def is_folder(self) -> bool:
        """Return whether the path is a folder."""
        return stat.S_ISDIR(self.mode)


class Watched(NamedTuple):
    """A file or folder at the time of a check."""

    path: str  # Path, even of a missing file.
    mark: Mark  # Mark at that time.
    until: float = math.inf
    """When the content must be read again even if the mark is unchanged."""


class Listing:
    """The names in one folder, which may be missing."""

    def __init__(self, folder: Path | str, clock: clock.Clock) -> None:
        self.folder = str(folder)
        """Path of the folder."""
        self._clock = clock
        self._mark = Mark(fault=-1)
        self._marked_at = self._listed_at = 0.0
        self._names: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return the names in order: none for a missing folder, the last known ones if it cannot be read now."""
        now, present = self._clock.monotonic(), mark_of(self.folder)
        if present != self._mark:
            self._mark = present
            self._marked_at = now
        elif self._is_trusted(now):
            return self._names
        self._names = _listed(self.folder, self._names)
        self._listed_at = now
        return self._names

    @property
    def watched(self) -> Watched:
        """Return the folder with its mark at the last check, and until when its names are valid."""
        is_old_enough = self._listed_at - self._marked_at >= TRUSTED_SECONDS
        return Watched(self.folder, self._mark, self._listed_at + TRUSTED_SECONDS if is_old_enough else -math.inf)

    def _is_trusted(self, now: float) -> bool:
        # The second of two changes within a tick of the disk's clock leaves no mark, so a listing is trusted only if
        # the mark was unchanged for a while before it. Some disks do not mark folders at all, so the trust ends after a
        # while.
        return self._listed_at - self._marked_at >= TRUSTED_SECONDS and now - self._listed_at < TRUSTED_SECONDS


def mark_of(path: str) -> Mark:
    """Return the present mark of a file or folder."""
    try:
        found = os.stat(path)
    except OSError as error:
        return Mark(fault=error.errno or -1)
    return Mark(0, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def _listed(folder: str, before: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        _log.warning("%s cannot be listed now: %s", folder, error, extra={"file": folder})
        return before


def is_absent(path: Path) -> bool:
    """Return whether nothing exists at a path; a path that cannot be examined now may exist."""
    try:
        path.stat()
    except OSError as error:
        return not passes(error)
    except ValueError:
        return True
    return False


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether a file of recipes or prompts is in one of its folders after links are resolved."""
    try:
        found = path.resolve()
        return any(found.is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, RuntimeError):
        return False


def passes(error: OSError) -> bool:
    """Return whether a read error may be temporary, so that the file can be read later."""
    return error.errno not in (*ABSENT, errno.ELOOP)
