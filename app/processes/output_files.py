"""Outlets: the private files that a command writes into in place of pipes, so that nobody has to keep reading.

They have no name, so that nothing of them is left after a crash, whatever a command wrote.
"""

# A pipe must be read all the time, and stays open as long as any descendant of the command has it. A file in the
# run's folder would contain secrets until it is masked. Of standard output the beginning is kept, of standard error
# the end, where a program says why it failed.

from __future__ import annotations

import errno
import os
import stat
from itertools import count

INLINE_BYTES = 32 * 1024
"""Content up to this size travels in a message; more is read from the file."""

_NAMELESS = getattr(os, "O_TMPFILE", 0)
_NAMES = count()
_UNKNOWN_HERE = frozenset({errno.EISDIR, errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL})


class OutputFile:
    """One file, open."""

    __slots__ = ("file", "is_held", "seen_bytes")

    def __init__(self, file: int, *, is_held: bool = True) -> None:
        self.file = file
        """Its descriptor."""
        self.is_held = is_held
        """Whether what is written stays here to be read; what goes through a socket or a pipe does not."""
        self.seen_bytes = 0
        """Its size when it was last looked at."""

    def size_bytes(self) -> int:
        """Return its size."""
        return os.fstat(self.file).st_size if self.is_held else 0

    def content(self) -> bytes | None:
        """Return all of it, or None if that is much."""
        if not self.is_held:
            return b""
        content = os.pread(self.file, INLINE_BYTES + 1, 0)
        return None if len(content) > INLINE_BYTES else content

    def close(self) -> None:
        """Forget it."""
        if self.is_held:
            os.close(self.file)

    def hand_over(self) -> None:
        """Leave it to the command, which has it by now; only then does whoever listens hear the command's end."""
        if not self.is_held:
            os.close(self.file)


def passed(file: int) -> OutputFile:
    """Return the outlet of a descriptor that was opened by somebody else."""
    return OutputFile(file, is_held=stat.S_ISREG(os.fstat(file).st_mode))


def fresh(folder: str) -> OutputFile:
    """Make an empty file that is appended to, so that a command that cuts it off leaves no hole.

    Raises:
        OSError: there is no room.
    """
    return OutputFile(_nameless(folder, os.O_RDWR | os.O_APPEND))


def filled(folder: str, content: bytes) -> int:
    """Make a file to be read from its beginning, and return its descriptor.

    Raises:
        OSError: there is no room.
    """
    file = _nameless(folder, os.O_RDWR)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.lseek(file, 0, os.SEEK_SET)
    except OSError:
        os.close(file)
        raise
    return file


def _nameless(folder: str, flags: int) -> int:
    if _NAMELESS:
        try:
            return os.open(folder, flags | _NAMELESS | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _UNKNOWN_HERE:
                raise
    path = os.path.join(folder, f".control-room-{os.getpid()}-{next(_NAMES)}")
    file = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return file
