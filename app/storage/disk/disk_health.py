"""Disk health: whether the last write to the data directory succeeded."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from app import errors
from app.storage.disk import disk_port

_log = logging.getLogger(__name__)

PASSING = frozenset({"EIO", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EINTR", "ESTALE", "ETIMEDOUT", "EBUSY"})
"""System errors that may be temporary."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEAST_BYTES = 128 * 1024


class DiskHealth:
    """Records whether the last write failed."""

    def __init__(self) -> None:
        self.free = True
        """Whether the last write succeeded."""
        self.rows_free = True
        """Whether the last write of index rows succeeded."""

    def succeeded(self) -> None:
        """Note a successful write."""
        if not self.free:
            _log.warning("writes succeed again")
        self.free = True

    def failed(self, path: str, error: OSError) -> errors.StorageFault:
        """Note a failed write, and return the fault to raise."""
        is_lost = isinstance(error, disk_port.LeaseLost)
        # While a disk is full or a database away, everything that writes tries again and again.
        if self.free or is_lost:
            _log.error("a write failed", extra={"file": path, "error": str(error)})
        self.free = self.free and is_lost
        return fault_of(path, error)


def fault_of(path: str, error: OSError) -> errors.StorageFault:
    """Return the fault for a failed write."""
    kind = errors.StorageFault
    if isinstance(error, disk_port.LeaseLost):
        kind = errors.LeaseLost
    elif isinstance(error, disk_port.ServerAway):
        kind = errors.DatabaseAway
    return kind(f"{path} could not be written: {reason_of(error)}", detail=facts(path, error))


def reason_of(error: OSError) -> str:
    """Return in a few words why the system refused."""
    if error.errno in _FULL:
        return "no space is left"
    # A store that is not a file system gives a reason of its own.
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder lacks the room for opening a data directory."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return False
    return volume.f_bavail * volume.f_frsize < _LEAST_BYTES or (volume.f_files > 0 and volume.f_favail == 0)


def space(folder: Path) -> tuple[int | None, int]:
    """Return the free space on the disk of a folder, None if unknown, and the least that a data directory needs."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return None, _LEAST_BYTES
    return volume.f_bavail * volume.f_frsize, _LEAST_BYTES


def unusable(path: Path, error: OSError) -> errors.ConfigurationError:
    """Return the error for a data directory that the system cannot write or read."""
    if error.errno in _FULL:
        return no_space(f"the data directory {path}")
    message = f"the data directory {path} cannot be used: {reason_of(error)}"
    return errors.ConfigurationError(message, code="data_directory_unusable", detail=facts(str(path), error))


def no_space(what: str) -> errors.ConfigurationError:
    """Return the error for a file or folder that cannot be opened on a full disk."""
    message = f"{what} cannot be used: no space is left on its disk; make room there, then repeat the command"
    return errors.ConfigurationError(message, code=errors.WriteFailed.default_code)


def facts(path: str, error: OSError) -> dict[str, str]:
    """Return the file and the reason as JSON."""
    return {"file": path, "errno": errno.errorcode.get(error.errno or 0, "EIO"), "error": reason_of(error)}
