"""Families of processes in tests: how they are started, and which processes are alive."""

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
    """Start a process that has a mark only in its environment."""
    process = subprocess.Popen(["/bin/sleep", "60"], env={process_markers.VARIABLE: mark})
    while not Path(f"/proc/{process.pid}/environ").read_bytes():
        # The environment of a new program can be read a moment after its start.
        os.sched_yield()
    return process


def running(folder: Path) -> dict[str, int]:
    """Return the living processes of a family, by kind, with their ids in this namespace."""
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
    """Wait until processes of these kinds are alive and write, and return their ids in this namespace."""
    await until(lambda: all((folder / f"{kind}.trace").exists() for kind in kinds))
    alive = running(folder)
    return {kind: alive.get(kind) or int((folder / kind).read_text()) for kind in kinds}


def living(pids: dict[str, int]) -> set[str]:
    """Return the kinds whose process is alive."""
    return {kind for kind, pid in pids.items() if process_tree.process(pid) is not None}


def _words(pid: str) -> list[str]:
    try:
        # Other processes on this machine may have arguments that are not UTF-8.
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Poll until a condition holds."""
    for _ in range(int(seconds / _LOOK_SECONDS)):
        if holds():
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError("it did not come to hold")
