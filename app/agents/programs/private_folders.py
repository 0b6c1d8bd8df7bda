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

    The first call of a process also removes the folders that killed processes have left.
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


def _new() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Another process may take it for one that is left before it is locked.
        if (lock := _locked(folder)) is not None:
            return folder, lock


@functools.cache
def _remove_left(place: str) -> None:
    # The system releases the lock of a process that is killed. A name alone proves nothing in a folder of all users.
    with os.scandir(place) as found:
        left = [each for each in found if each.name.startswith(_PREFIX) and each.is_dir(follow_symlinks=False)]
    for each in left:
        with contextlib.suppress(OSError):
            if (
                each.stat(follow_symlinks=False).st_uid == os.geteuid()
                and (lock := _locked(Path(each.path))) is not None
            ):
                shutil.rmtree(each.path, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return the lock of a folder as a descriptor; None if another process has it, or has removed the folder."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(folder), os.fstat(lock)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
