"""The disk port: the few operations that storage needs of a file system, for real folders and for memory alike.

Paths are relative to the data directory, with `/` between their parts. All operations block and raise `OSError`.
"""

# Why: docs/decisions/0031.

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from app.engine import probes

LARGEST_BYTES = 2 * 1024**3
"""Largest file that is read as a whole: a sparse file takes no room on the disk, but fills the memory."""

_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 1024  # Most lines are shorter.
_IN_THE_WAY = (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)


Signature: TypeAlias = tuple[int, ...]
"""A value that changes whenever a file is replaced or changed, for callers that cache its content."""


class SyncRefused(OSError):
    """A file could not be synced; its content may be complete despite that."""


class ServerAway(OSError):
    """The server behind this disk cannot be reached now."""


class LeaseLost(OSError):
    """Another process has taken the folder over; writes of this process there are refused."""


class AppendFile(Protocol):
    """An append-only file, open in its only writer."""

    def write(self, content: bytes) -> None:
        """Append all of the content; a short write raises `OSError`, too."""

    def sync(self) -> None:
        """Make the written content durable."""

    def close(self) -> None:
        """Close the file for good; no further write is possible."""


class Lock(Protocol):
    """A folder that is locked against other writers."""

    def release(self) -> None:
        """Release the lock; a second call has no effect."""


class Syncer(Protocol):
    """Makes many files durable at once."""

    def sync(self, paths: Callable[[], Iterable[str]]) -> None:
        """Make these files and folders durable, or all of them, no matter who wrote them; missing ones are skipped."""

    def close(self) -> None:
        """Release the disk."""


class Disk(Protocol):
    """Files and folders below one data directory; folders are 0700, files 0600."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Return a file's content from an offset, at most `size` bytes of it."""

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        """Sync a file and return the disk's content from an offset, not what memory still has after a failed sync.

        Raises:
            SyncRefused: it could not be synced.
        """

    def size(self, path: str) -> int:
        """Return a file's length."""

    def signature(self, path: str) -> Signature:
        """Return a stamp of a regular file; every change of the file changes the stamp.

        Raises:
            FileNotFoundError: there is no regular file.
        """

    def changed_at(self, path: str) -> int:
        """Return a number that grows with every change of a file or folder; it is comparable between files.

        Raises:
            FileNotFoundError, NotADirectoryError: the path does not exist.
        """

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; an empty list if the folder does not exist."""

    def has_file(self, path: str) -> bool:
        """Return whether a regular file exists."""

    def has_folder(self, path: str) -> bool:
        """Return whether a folder exists."""

    def add_folder(self, path: str) -> bool:
        """Make a folder and return whether it is new."""

    def append_to(self, path: str) -> AppendFile:
        """Open a file for appending, and make it if it is missing."""

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        """Make or overwrite a file."""

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        """Shorten a file."""

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder, replacing a file that has the new name."""

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""

    def syncer(self, folders: Iterable[str]) -> Syncer:
        """Return a syncer that makes many files durable at once, and reports writes that fail after this call.

        Args:
            folders: Folders that may be on other file systems.
        """

    def boot_id(self) -> str:
        """Return a value that changes whenever unsynced writes may have been lost."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it."""

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        """Lock a folder; return None if another process has locked it and `wait` is not set."""


def replace(
    disk: Disk,
    path: str,
    content: bytes,
    *,
    sync: bool,
    reach: Callable[[str], None] | None = None,
    at: str = "",
    check: Callable[[str], None] | None = None,
) -> None:
    """Replace a file in one move: a temporary file beside it, then a rename.

    Args:
        sync: Whether the content and the name are durable afterwards.
        at: Prefix of the names of the crash points passed, e.g. `storage.snapshot`.
        check: Called with the temporary file just before the rename; if it raises, the file is not replaced.
    """
    reach = reach or probes.NoProbes().reach
    folder, slash, name = path.rpartition("/")
    # A fixed name beside the file: a rename is atomic only within a file system.
    fresh = f"{folder}{slash}.{name}.new"
    reach(f"{at}.before_write")
    disk.write(fresh, content, sync=sync)
    reach(f"{at}.before_rename")
    if check is not None:
        _checked(disk, fresh, check)
    try:
        disk.rename(fresh, path)
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
        make_way(disk, path)
        disk.rename(fresh, path)
    reach(f"{at}.after_rename")
    # The rename becomes durable when the folder is synced.
    if sync:
        disk.sync_folder(folder)


def make_way(disk: Disk, path: str) -> None:
    """Move aside whatever occupies the path of a projection: a folder, or a file that is too large to be read."""
    count = 1
    while disk.has_file(aside := f"{path}.damaged-{count}") or disk.has_folder(aside):
        count += 1
    disk.rename(path, aside)


def make_folder(disk: Disk, path: str) -> bool:
    """Make a folder, moving aside anything else at its path, and return whether it is new."""
    if disk.add_folder(path):
        return True
    if disk.has_folder(path):
        return False
    make_way(disk, path)
    return disk.add_folder(path)


def append_whole(disk: Disk, path: str, content: bytes, *, sync: bool, new: bool = False) -> int:
    """Append lines to a projection, all or none, after its last whole line, and return their offset.

    Args:
        new: The caller knows that the file is missing.
    """
    begin = 0 if new else mend(disk, path)
    file = disk.append_to(path)
    try:
        file.write(content)
        if sync:
            file.sync()
    except OSError:
        file.close()
        # Half a line must not remain: the next line would be appended to it.
        with contextlib.suppress(OSError):
            disk.cut(path, begin, sync=False)
        raise
    file.close()
    return begin


def sync_file(disk: Disk, path: str) -> None:
    """Make a file's content durable, no matter who wrote it.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    disk.size(path)
    file = disk.append_to(path)
    try:
        file.sync()
    finally:
        file.close()


def mend(disk: Disk, path: str) -> int:
    """Cut off an incomplete last line, and return the new length; 0 for a missing file."""
    try:
        size = end = disk.size(path)
    except FileNotFoundError:
        return 0
    if size > LARGEST_BYTES or not disk.has_file(path):
        make_way(disk, path)
        return 0
    # A short read first, as the last line is usually whole; then larger ones.
    looked_bytes = _LINE_BYTES
    while end > 0:
        begin, looked_bytes = max(0, end - looked_bytes), _CHUNK_BYTES
        found = disk.read(path, begin, end - begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    if end < size:
        disk.cut(path, end, sync=False)
    return end


def try_writing(disk: Disk, path: str) -> None:
    """Write and remove a small file, to test whether writes succeed."""
    # Not zeros, which a compressing file system would store without using space.
    disk.write(path, hashlib.shake_256(path.encode()).digest(_CHUNK_BYTES), sync=True)
    disk.remove(path)


def _checked(disk: Disk, fresh: str, check: Callable[[str], None]) -> None:
    try:
        check(fresh)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(fresh)
        raise
