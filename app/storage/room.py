"""
Room: whether the data directory takes writes, as the last of them showed.
"""

from __future__ import annotations

import errno
import logging
import os

from app import errors

_log = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Room:
    """
    Remember whether the last write failed.
    """

    def __init__(self) -> None:
        self.free = True
        """Whether no write has failed since the last that succeeded."""
        self.rows_free = True
        """Whether the last rows that were to be written could be."""

    def succeeded(self) -> None:
        """
        Note a write that came through.
        """
        self.free = True

    def failed(self, path: str, error: OSError) -> errors.StorageFault:
        """
        Note a write that did not, and return the fault to raise.
        """
        _log.error("a write failed", extra={"file": path, "error": str(error)})
        self.free = False
        return errors.StorageFault(f"{path} could not be written: {told(error)}", detail=facts(path, error))


def told(error: OSError) -> str:
    """
    Say in a few words why the system refused.
    """
    if error.errno in _FULL:
        return "no space is left"
    return os.strerror(error.errno) if error.errno else str(error)


def facts(path: str, error: OSError) -> dict[str, str]:
    """
    Return file and reason for machines.
    """
    return {"file": path, "errno": errno.errorcode.get(error.errno or 0, "EIO"), "error": told(error)}
