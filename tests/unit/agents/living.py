"""Living processes."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path


def children(pid: int | None = None) -> set[int]:
    """Return the living children of a process; by default of this one."""
    return set(_children(pid or os.getpid()))


def ended_within(handle: int, seconds: float) -> bool:
    """Return whether the process of an `os.pidfd_open` descriptor ends in time."""
    return bool(select.select([handle], [], [], seconds)[0])


def spent(pid: int) -> int:
    """Return the processor time that a process has spent so far, in ticks."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile; its children then belong to another thread.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                if _state(int(child)) not in ("Z", "X", None):
                    yield int(child)


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
