"""Turns: what is decided about one run is decided one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLock:
    """Hand out turns, first come first served, for each run by itself."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    @asynccontextmanager
    async def of(self, run_id: str) -> AsyncIterator[None]:
        """Wait for a run's turn and keep it for the block."""
        lock = self._locks.setdefault(run_id, asyncio.Lock())
        self._wanted[run_id] = self._wanted.get(run_id, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._wanted[run_id] -= 1
            if not self._wanted[run_id]:
                del self._wanted[run_id], self._locks[run_id]
