"""The machine's own rates, measured without the program."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import children, figures

LINE = b"x" * 299 + b"\n"
"""The line that is appended, as long as a small journal line."""

_SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class Appender:
    """A fresh file to which the calling thread appends lines, each synced before the next."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"appends-{time.perf_counter_ns()}"
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def seconds(self, count: int) -> float:
        """Append a number of lines and return the time that all of them took."""
        began = time.perf_counter()
        for _ in range(count):
            os.write(self._descriptor, LINE)
            _SYNC(self._descriptor)
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def append_seconds(folder: Path, count: int) -> float:
    """Return the mean time of one bare append with its sync, over a number of appends to a fresh file."""
    appender = Appender(folder)
    try:
        return appender.seconds(count) / count
    finally:
        appender.close()


def append_rates(seconds: float) -> figures.Raw:
    """Return the two figures that express the mean time of one append."""
    return {"append_ms": seconds * 1000, "appends_per_second": 1 / seconds}


async def spawns_per_second(count: int, at_a_time: int) -> float:
    """Return how many processes that do nothing Python's standard event loop spawns and awaits in a second."""
    words = ("-m", "bench.bare_spawns", str(count), str(at_a_time))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=children.ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return float(told)
