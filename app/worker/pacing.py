"""Pacing: how much begins in one turn of the event loop, so that a run of many branches lets others go first."""

from __future__ import annotations

import asyncio
from collections import deque

BEGUN_AT_ONCE = 16
"""Tries that begin in one turn of the loop."""


class Pace:
    """Let a few begin in each turn of the loop, in the order in which they came."""

    def __init__(self) -> None:
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait until this turn of the loop has room."""
        if self._begun >= BEGUN_AT_ONCE or self._waiting:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place
            return
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next)
        self._begun += 1

    def _next(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < BEGUN_AT_ONCE:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next)
