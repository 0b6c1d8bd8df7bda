"""The disk port: the few things storage asks of a file system, so that one code serves real folders and their twin.

Paths are relative to the data directory, with `/` between their parts. Everything here blocks and raises `OSError`.
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
"""Largest file that is loaded as a whole: a sparse file takes no room on the disk, but fills the memory."""

_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 1024  # Most lines are shorter.
_IN_THE_WAY = (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)


Signature: TypeAlias = tuple[int, ...]
"""A value that changes whenever a file is replaced or changed, for callers that cache its content."""


class SyncRefused(OSError):
    """A file could not be synced; its content may nevertheless be complete."""


class ServerAway(OSError):
    """The server behind this disk cannot be reached now."""


class LeaseLost(OSError):
    """Another process has taken the folder over; what this one writes there is refused."""


class AppendFile(Protocol):
    """An append-only file, held by its only writer."""

    def write(self, content: bytes) -> None:
        """Append all of the content; a short write raises too."""

    def sync(self) -> None:
        """Make what was written durable."""

    def close(self) -> None:
        """Close the file; nothing more is written."""


class Lock(Protocol):
    """A folder held against other writers."""

    def release(self) -> None:
        """Release it; harmless if it was released already."""


class Syncer(Protocol):
    """Make many files durable at once."""

    def sync(self, paths: Callable[[], Iterable[str]]) -> None:
        """Make files and folders durable, regardless of their writer: these, or all. Missing ones are passed
        over.
        """

    def close(self) -> None:
        """Release the disk."""


class Disk(Protocol):
    """Files and folders below one data directory; folders are 0700, files 0600."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Return a file's content from an offset, at most `size` bytes of it."""

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        """Sync a file and return what the disk itself holds of it from an offset, not what memory remembers after a
        failed sync.

        Raises:
            SyncRefused: it could not be synced.
        """

    def size(self, path: str) -> int:
        """Return a file's length."""

    def signature(self, path: str) -> Signature:
        """Return a stamp of a regular file that every change alters.

        Raises:
            FileNotFoundError: there is no regular file.
        """

    def changed_at(self, path: str) -> int:
        """Return a number that any later change of a file or folder raises; it can be compared with those of others.

        Raises:
            FileNotFoundError, NotADirectoryError: there is nothing.
        """

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""

    def has_file(self, path: str) -> bool:
        """Return whether a regular file is there."""

    def has_folder(self, path: str) -> bool:
        """Return whether a folder is there."""

    def add_folder(self, path: str) -> bool:
        """Make a folder and return whether it is new."""

    def append_to(self, path: str) -> AppendFile:
        """Open a file for appending; it is made if it is missing."""

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        """Make or overwrite a file."""

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        """Shorten a file."""

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder, replacing a file of the new name."""

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""

    def syncer(self, folders: Iterable[str]) -> Syncer:
        """Return a syncer that makes many files durable at once, and reports writes that fail from now on.

        Args:
            folders: Folders that may lie on file systems of their own.
        """

    def boot_id(self) -> str:
        """Return a value that changes whenever unsynced writes may have been lost."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all that is in it."""

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        """Lock a folder; None if another process holds it and `wait` is not set."""


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
        at: Beginning of the names of the points passed, e.g. `storage.snapshot`.
        check: Called with the temporary file at the last moment before the rename; nothing changes if that raises.
    """
    reach = reach or probes.NoProbes().reach
    folder, slash, name = path.rpartition("/")
    # A name of its own beside the file: a rename is atomic only within a file system.
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
    # The rename is durable once its folder is.
    if sync:
        disk.sync_folder(folder)


def make_way(disk: Disk, path: str) -> None:
    """Move aside what is in the way of a projection: a folder, or a file too large to be loaded."""
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
    """Append lines to a projection, all or none of them, behind its last whole line; return where they begin.

    Args:
        new: Whether the file is known to be missing.
    """
    begin = 0 if new else mend(disk, path)
    file = disk.append_to(path)
    try:
        file.write(content)
        if sync:
            file.sync()
    except OSError:
        file.close()
        # Half a line must not stay: the next one would be appended to it.
        with contextlib.suppress(OSError):
            disk.cut(path, begin, sync=False)
        raise
    file.close()
    return begin


def sync_file(disk: Disk, path: str) -> None:
    """Make a file's content durable, regardless of its writer.

    Raises:
        FileNotFoundError: there is no such file.
    """
    disk.size(path)
    file = disk.append_to(path)
    try:
        file.sync()
    finally:
        file.close()


def mend(disk: Disk, path: str) -> int:
    """Cut off a last line that is incomplete, and return the length then; 0 for a missing file."""
    try:
        size = end = disk.size(path)
    except FileNotFoundError:
        return 0
    if size > LARGEST_BYTES or not disk.has_file(path):
        make_way(disk, path)
        return 0
    # Short at first, as the last line is usually whole; then in larger pieces.
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
    # Not zeros, which a compressing file system would store without room.
    disk.write(path, hashlib.shake_256(path.encode()).digest(_CHUNK_BYTES), sync=True)
    disk.remove(path)


def _checked(disk: Disk, fresh: str, check: Callable[[str], None]) -> None:
    try:
        check(fresh)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(fresh)
        raise
