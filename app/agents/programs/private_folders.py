"""Private folders: files that only a program and this service read, for the time of one call."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.engine import workspace_faults

_PREFIX = "control-room-agent-"


@contextlib.contextmanager
def made(wanted: bool) -> Iterator[Path | None]:
    """Make a folder that other users cannot read, and remove it with its content afterwards.

    The first call of a process also removes the folders that killed processes left.
    """
    if not wanted:
        yield None
        return
    place = tempfile.gettempdir()
    with workspace_faults.waiting(place):
        _remove_left(place)
        folder, lock = _new()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def fill(folder: Path | None, files: Mapping[str, str]) -> None:
    """Write texts into a private folder."""
    for name, text in files.items():
        assert folder is not None
        with workspace_faults.waiting(str(folder)):
            (folder / name).write_text(text, encoding="utf-8", errors="replace")


def read(folder: Path | None, name: str | None) -> bytes:
    """Return the content of a file in a private folder; empty if there is none."""
    if folder is None or name is None:
        return b""
    try:
        return (folder / name).read_bytes()
    except OSError:
        return b""


def _new() -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            lock = _locked(folder)
        except OSError as error:
            if workspace_faults.passes(error.errno):
                folder.rmdir()
                raise
            # The file system has no locks, so that no other process removes the folder, either.
            return folder, None
        # Another process may take it for one that is left before it is locked.
        if lock is not None:
            return folder, lock


@functools.cache
def _remove_left(place: str) -> None:
    # The system releases the lock of a process that is killed. A name alone proves nothing in a folder of all users.
    for folder in Path(place).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and (lock := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return the lock of a folder as a descriptor; None if another process has it, or has removed the folder.

    Raises:
        OSError: the folder cannot be opened now, or its file system has no locks.
    """
    with contextlib.ExitStack() as closing, contextlib.suppress(BlockingIOError, FileNotFoundError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        closing.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(folder), os.fstat(lock)):
            closing.pop_all()
            return lock
    return None
