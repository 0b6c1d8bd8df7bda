"""Unnamed files that take a command's output in place of pipes, which would have to be read all the time.

Without a name they are gone after a crash.
"""

# A pipe must be read all the time, and stays open as long as any descendant of the command has it. A file in the
# run's folder would contain secrets until it is masked. Of standard output the beginning is kept, of standard error
# the end, where a program says why it failed.

from __future__ import annotations

import errno
import os
import stat
from itertools import count

INLINE_BYTES = 32 * 1024  # Content up to this size travels in a message; more is read from the file.
NEWS_BYTES = 128 * 1024  # Most that is passed on at a time of what a running command writes.

_O_TMPFILE = getattr(os, "O_TMPFILE", 0)
_NAMES = count()
_UNSUPPORTED = frozenset({errno.EISDIR, errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL})


class OutputFile:
    """One file, open."""

    __slots__ = ("file", "is_held", "passed_bytes", "seen_bytes")

    def __init__(self, file: int, *, is_held: bool = True) -> None:
        self.file = file
        """Its descriptor."""
        self.is_held = is_held
        """Whether the output can be read back; output to a socket or a pipe cannot."""
        self.seen_bytes = 0
        """Its size at the last check."""
        self.passed_bytes = 0
        """How much of it was passed on."""

    def size_bytes(self) -> int:
        """Return its size."""
        return os.fstat(self.file).st_size if self.is_held else 0

    def news(self) -> tuple[bytes, int]:
        """Return what was written since the last time, its end if that is much, and how many bytes were left out."""
        waiting = self.size_bytes() - self.passed_bytes
        skipped = max(waiting - NEWS_BYTES, 0)
        # A file that the command itself has cut off has nothing new.
        content = os.pread(self.file, NEWS_BYTES, self.passed_bytes + skipped) if waiting > 0 else b""
        self.passed_bytes += skipped + len(content)
        return content, skipped

    def content(self) -> bytes | None:
        """Return its content; None if it is longer than a message may be."""
        if not self.is_held:
            return b""
        content = os.pread(self.file, INLINE_BYTES + 1, 0)
        return None if len(content) > INLINE_BYTES else content

    def close(self) -> None:
        """Close it."""
        if self.is_held:
            os.close(self.file)

    def close_passed(self) -> None:
        """Close a passed descriptor, now the command's; its reader sees end-of-file only when no process holds it."""
        if not self.is_held:
            os.close(self.file)


def from_descriptor(file: int) -> OutputFile:
    """Return the output file of a passed descriptor."""
    return OutputFile(file, is_held=stat.S_ISREG(os.fstat(file).st_mode))


def create(folder: str) -> OutputFile:
    """Create an empty file for appending: a command that truncates it leaves no hole.

    Raises:
        OSError: there is no room.
    """
    return OutputFile(_create_unnamed(folder, os.O_RDWR | os.O_APPEND))


def create_filled(folder: str, content: bytes) -> int:
    """Create a file with this content and return its descriptor, at the beginning.

    Raises:
        OSError: there is no room.
    """
    file = _create_unnamed(folder, os.O_RDWR)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.lseek(file, 0, os.SEEK_SET)
    except OSError:
        os.close(file)
        raise
    return file


def _create_unnamed(folder: str, flags: int) -> int:
    if _O_TMPFILE:
        try:
            return os.open(folder, flags | _O_TMPFILE | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    path = os.path.join(folder, f".control-room-{os.getpid()}-{next(_NAMES)}")
    file = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    # Gone from the folder at once: only who holds the descriptor can read it.
    os.unlink(path)
    return file
