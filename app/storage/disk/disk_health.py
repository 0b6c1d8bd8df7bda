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
"""Errors of the system that may be over soon."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEAST_BYTES = 128 * 1024


class DiskHealth:
    """Remember whether the last write failed."""

    def __init__(self) -> None:
        self.free = True
        """Whether no write has failed since the last that succeeded."""
        self.rows_free = True
        """Whether the last rows were written."""

    def succeeded(self) -> None:
        """Note a successful write."""
        self.free = True

    def failed(self, path: str, error: OSError) -> errors.StorageFault:
        """Note a failed write, and return the fault to raise."""
        _log.error("a write failed", extra={"file": path, "error": str(error)})
        if not isinstance(error, disk_port.LeaseLost):
            self.free = False
        return fault_of(path, error)


def fault_of(path: str, error: OSError) -> errors.StorageFault:
    """Return a failed write as a fault."""
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
    # A store that is not a file system gives its own reason.
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))


def is_full(folder: Path) -> bool:
    """Return whether the disk below a folder has no room for what has to be written to open a data directory."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_BYTES or (found.f_files > 0 and found.f_favail == 0)


def space(folder: Path) -> tuple[int | None, int]:
    """Return the free space below a folder, None if it cannot be told, and the least that is needed there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None, _LEAST_BYTES
    return found.f_bavail * found.f_frsize, _LEAST_BYTES


def unusable(path: Path, error: OSError) -> errors.ConfigurationError:
    """Return the error of a data directory in which something could not be written or read."""
    if error.errno in _FULL:
        return no_space(f"the data directory {path}")
    message = f"the data directory {path} cannot be used: {reason_of(error)}"
    return errors.ConfigurationError(message, code="data_directory_unusable", detail=facts(str(path), error))


def no_space(what: str) -> errors.ConfigurationError:
    """Return the error of something that cannot be opened on a full disk."""
    message = f"{what} cannot be used: no space is left on its disk; make room there, then repeat the command"
    return errors.ConfigurationError(message, code=errors.DiskFull.default_code)


def facts(path: str, error: OSError) -> dict[str, str]:
    """Return file and reason as JSON."""
    return {"file": path, "errno": errno.errorcode.get(error.errno or 0, "EIO"), "error": reason_of(error)}
