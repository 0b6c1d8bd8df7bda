"""Broods in tests: how they are started, and which of them live."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from app.processes import process_markers, process_tree

PROGRAM = Path(__file__).with_name("process_family.py")
ALL = ("child", "session", "daemon")
"""The kinds that only their descent or their mark gives away."""

_LOOK_SECONDS = 0.005


def argv(folder: Path, *kinds: str) -> tuple[str, ...]:
    """Return the command line of a family."""
    return (sys.executable, "-I", "-S", str(PROGRAM), str(folder), *kinds)


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    """Start a process that bears a mark in its environment only."""
    process = subprocess.Popen(["/bin/sleep", "60"], env={process_markers.VARIABLE: mark})
    while not Path(f"/proc/{process.pid}/environ").read_bytes():
        # A new program's environment can be read a moment after it has begun.
        os.sched_yield()
    return process


def running(folder: Path) -> dict[str, int]:
    """Return the processes of a family that are alive, by their kinds and with the ids that we know them by."""
    found = {}
    for name in os.listdir("/proc"):
        words = _words(name) if name.isdigit() else []
        if str(PROGRAM) in words and str(folder) in words:
            found[words[-1][2:] if words[-1].startswith("--") else "parent"] = int(name)
    return found


def written(folder: Path) -> int:
    """Return how much a family has written so far."""
    return sum(path.stat().st_size for path in folder.glob("*.trace"))


async def born(folder: Path, *kinds: str) -> dict[str, int]:
    """Wait until processes of these kinds are there and write, and return their ids as we know them."""
    await until(lambda: all((folder / f"{kind}.trace").exists() for kind in kinds))
    alive = running(folder)
    return {kind: alive.get(kind) or int((folder / kind).read_text()) for kind in kinds}


def living(pids: dict[str, int]) -> set[str]:
    """Return the kinds whose process is alive."""
    return {kind for kind, pid in pids.items() if process_tree.process(pid) is not None}


def _words(pid: str) -> list[str]:
    try:
        # Others on this machine may have been given words that are no UTF-8.
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something that nobody tells comes to hold."""
    for _ in range(int(seconds / _LOOK_SECONDS)):
        if holds():
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError("it did not come to hold")
