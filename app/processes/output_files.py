"""Output files: unnamed files for a command's output, instead of pipes, which would have to be read all the time.

Without a name, they are gone after a crash.
"""

# A pipe must be read all the time, and stays open as long as any descendant of the command holds it. A file in the
# run's folder would contain secrets until it is masked. Of standard output the beginning is kept; of standard error
# the end, where a program reports why it failed.

from __future__ import annotations

import errno
import os
import stat
from itertools import count

INLINE_BYTES = 32 * 1024  # Content up to this size is sent in a message; more is read from the file.
NEWS_BYTES = 128 * 1024  # Most bytes of a running command's output that are passed on at a time.

_O_TMPFILE = getattr(os, "O_TMPFILE", 0)
_NAMES = count()
_UNSUPPORTED = frozenset({errno.EISDIR, errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL})


class OutputFile:
    """One open output file."""

    __slots__ = ("file", "is_held", "passed_bytes", "seen_bytes")

    def __init__(self, file: int, *, is_held: bool = True) -> None:
        self.file = file
        """Descriptor of the file."""
        self.is_held = is_held
        """Whether the output can be read back; output to a socket or a pipe cannot."""
        self.seen_bytes = 0
        """Size of the file at the last check."""
        self.passed_bytes = 0
        """Number of bytes that were passed on."""

    def size_bytes(self) -> int:
        """Return the size of the file."""
        return os.fstat(self.file).st_size if self.is_held else 0

    def news(self) -> tuple[bytes, int]:
        """Return the output since the last call, at most its end, and how many bytes before that were omitted."""
        waiting = self.size_bytes() - self.passed_bytes
        skipped = max(waiting - NEWS_BYTES, 0)
        # A file that the command itself has truncated has no new content.
        content = os.pread(self.file, NEWS_BYTES, self.passed_bytes + skipped) if waiting > 0 else b""
        self.passed_bytes += skipped + len(content)
        return content, skipped

    def content(self) -> bytes | None:
        """Return the content of the file; None if it is too long for a message."""
        if not self.is_held:
            return b""
        content = os.pread(self.file, INLINE_BYTES + 1, 0)
        return None if len(content) > INLINE_BYTES else content

    def close(self) -> None:
        """Close the file."""
        if self.is_held:
            os.close(self.file)

    def close_passed(self) -> None:
        """Close a passed descriptor, now the command's; its reader sees end-of-file only when no process holds it."""
        if not self.is_held:
            os.close(self.file)


def from_descriptor(file: int) -> OutputFile:
    """Return the output file for a passed descriptor."""
    return OutputFile(file, is_held=stat.S_ISREG(os.fstat(file).st_mode))


def create(folder: str) -> OutputFile:
    """Create an empty file for appending: a command that truncates it leaves no hole.

    Raises:
        OSError: the disk has no space.
    """
    return OutputFile(_create_unnamed(folder, os.O_RDWR | os.O_APPEND))


def create_filled(folder: str, content: bytes) -> int:
    """Create a file with this content and return its descriptor, positioned at the beginning.

    Raises:
        OSError: the disk has no space.
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
    # Removed from the folder at once: only a process with the descriptor can read it.
    os.unlink(path)
    return file
