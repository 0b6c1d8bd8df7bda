"""Files that a command line names: read up to a limit, since a path may lead to what never ends."""

from __future__ import annotations

from pathlib import Path

from app import errors

MAX_BYTES = 4 * 1024 * 1024
"""Largest file that is read: no text of the project has more characters than a quarter of it."""


def read(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        errors.InputRefused: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise errors.TooLarge(f"{path} has more than {MAX_BYTES} bytes")
    return content


def read_text(path: Path) -> str:
    """Return the text of a file, without a mark of byte order.

    Raises:
        errors.InputRefused: it cannot be read, is too large, or holds none.
    """
    try:
        return read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start} is not UTF-8") from error


def _unreadable(path: Path, reason: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"{path} cannot be read: {reason}", code="file_unreadable")
