"""
Broods in tests: how they are started, and which of them live.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from app.processes import kin, marks

PROGRAM = Path(__file__).with_name("brood.py")
ALL = ("child", "session", "daemon")
"""The kinds that only their descent or their mark gives away."""

_LOOKS = 4000
_LOOK_SECONDS = 0.005


def argv(folder: Path, *kinds: str) -> tuple[str, ...]:
    """
    Return the command line of a brood.
    """
    return (sys.executable, "-I", "-S", str(PROGRAM), str(folder), *kinds)


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    """
    Start a process that bears a mark in its environment only.
    """
    process = subprocess.Popen(["/bin/sleep", "60"], env={marks.VARIABLE: mark})
    while not Path(f"/proc/{process.pid}/environ").read_bytes():
        # A new program's environment can be read a moment after it has begun.
        os.sched_yield()
    return process


async def born(folder: Path, *kinds: str) -> dict[str, int]:
    """
    Wait until processes of these kinds are there, and return their ids.
    """
    await until(lambda: all((folder / kind).exists() for kind in kinds))
    return {kind: int((folder / kind).read_text()) for kind in kinds}


def living(pids: dict[str, int]) -> set[str]:
    """
    Return the kinds whose process is alive.
    """
    return {kind for kind, pid in pids.items() if kin.process(pid) is not None}


async def until(holds: Callable[[], bool]) -> None:
    """
    Wait until something that nobody tells comes to hold.
    """
    for _ in range(_LOOKS):
        if holds():
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError("it did not come to hold")
