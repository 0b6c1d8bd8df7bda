"""Commits: write a file so that its name leads either to the whole new text or to the earlier content."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = ".control-room-commit.tmp"
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})  # No hard links here.


def put(folder: int, name: str, content: bytes, *, overwrite: bool) -> None:
    """Write a file by way of a temporary one in the same folder, synced before it gets its name.

    The temporary file has one name per folder, so a crash leaves at most one behind, and the next write removes it.
    A lock on the folder makes writers take turns.

    Raises:
        FileExistsError: the name is taken and `overwrite` is false.
        OSError: the file system refused; the folder is unchanged.
    """
    with _turn(folder):
        if not overwrite:
            require_free(folder, name)
        try:
            _write(folder, content, _mode_of(folder, name))
            _publish(folder, name, overwrite)
        finally:
            # After a rename the temporary name is gone; after a link it is a second name of the file.
            _remove_temporary(folder)
        # A new name is durable only when its folder is synced.
        os.fsync(folder)


@contextmanager
def _turn(folder: int) -> Iterator[None]:
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        _remove_temporary(folder)
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def require_free(folder: int, name: str) -> None:
    """Raise FileExistsError if the folder has an entry of this name."""
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _mode_of(folder: int, name: str) -> int | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None


def _write(folder: int, content: bytes, mode: int | None) -> None:
    descriptor = os.open(_TEMPORARY, _NEW, 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file:
        # Before the file gets its name: a private file must not be readable for others even for a moment.
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _publish(folder: int, name: str, overwrite: bool) -> None:
    if overwrite:
        os.replace(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        # Unlike a rename, a link never replaces a file that a process without our lock has just made.
        os.link(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        require_free(folder, name)
        os.rename(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove_temporary(folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_TEMPORARY, dir_fd=folder)
