"""Run versions: the numbers by which a poll learns that a run has changed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

_NUMBERS_KEPT = 10_000


class RunVersions:
    """Give each change of a run a number; numbers rise over all runs and live as long as the process."""

    def __init__(self, kept: int = _NUMBERS_KEPT) -> None:
        self._kept = kept
        self._latest = 0
        self._floor = 0
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def note(self, run_id: str) -> None:
        """Note that a run has changed."""
        self._latest += 1
        self._numbers[run_id] = self._latest
        self._numbers.move_to_end(run_id)
        if len(self._numbers) > self._kept:
            _, self._floor = self._numbers.popitem(last=False)
        if run_id in self._waiting:
            _wake(self._waiting[run_id])

    def number(self, run_id: str) -> int:
        """Return a run's present number; a run whose number was dropped may seem changed once more, never unchanged."""
        return self._numbers.get(run_id, self._floor)

    async def differs(self, run_id: str, since: int) -> int:
        """Wait until a run's number is another one than `since`, and return it."""
        while (number := self.number(run_id)) == since:
            await self._next(run_id)
        return number

    def wake_all(self) -> None:
        """Let every run seem changed, so that no poll waits."""
        self._latest += 1
        self._floor = self._latest
        self._numbers.clear()
        for waiting in self._waiting.values():
            _wake(waiting)

    async def _next(self, run_id: str) -> None:
        woken = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(woken)
        try:
            await woken
        finally:
            waiting.discard(woken)
            if not waiting and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]


def _wake(waiting: set[asyncio.Future[None]]) -> None:
    for woken in waiting:
        if not woken.done():
            woken.set_result(None)
