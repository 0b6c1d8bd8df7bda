"""Patience: how long a stop waits for what is in flight."""

from __future__ import annotations

import asyncio

from app import clock


class GracePeriod:
    """A grace that can be cut short while it runs."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._lost = asyncio.Event()
        self._limits: set[asyncio.Task[None]] = set()

    def limit(self, seconds: float) -> None:
        """End the grace in so many seconds from now, or earlier if that was said before."""
        self._limits.add(asyncio.create_task(self._lose(seconds)))

    async def wait_for(self, resting: asyncio.Task[None]) -> None:
        """Wait until a task is over or the grace is."""
        lost = asyncio.create_task(self._lost.wait())
        await asyncio.wait((resting, lost), return_when=asyncio.FIRST_COMPLETED)
        for waiting in (lost, *self._limits):
            waiting.cancel()

    async def _lose(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._lost.set()
