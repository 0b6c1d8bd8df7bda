"""Probes that a test can await, and at which it can act."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

Act = Callable[[], None]


class RecordingProbes:
    """Record which points were passed; `probes.Probes` for tests. Create it on the loop of the test."""

    def __init__(self) -> None:
        self.passed_points: list[str] = []
        """Every passing, in order."""
        self._counts: Counter[str] = Counter()
        self._acts: dict[tuple[str, int], Act] = {}
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._waiting: dict[tuple[str, int], asyncio.Event] = {}

    def reach(self, point: str) -> None:
        """Record a passing, on whichever thread it happens."""
        if threading.get_ident() == self._home:
            self._note(point)
        else:
            self._loop.call_soon_threadsafe(self._note, point)

    def at(self, point: str, nth: int, act: Act) -> None:
        """Call a function at the nth passing of a point."""
        self._acts[(point, nth)] = act

    async def passed(self, point: str, times: int = 1) -> None:
        """Wait until a point was passed this many times."""
        if self._counts[point] < times:
            await asyncio.wait_for(self._waiting.setdefault((point, times), asyncio.Event()).wait(), 60)

    def count(self, point: str) -> int:
        """Return how often a point was passed."""
        return self._counts[point]

    def _note(self, point: str) -> None:
        self.passed_points.append(point)
        self._counts[point] += 1
        nth = (point, self._counts[point])
        if nth in self._waiting:
            self._waiting[nth].set()
        act = self._acts.pop(nth, None)
        if act is not None:
            act()
