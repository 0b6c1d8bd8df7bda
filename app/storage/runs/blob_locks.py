"""Turns at a run's blobs: branches write theirs side by side, except where one could be in the other's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class BlobLocks:
    """Let one at a time write blobs that may be the same, which have one file; the first of all is written alone."""

    def __init__(self) -> None:
        self._first = asyncio.Lock()
        self._there = False
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, size_bytes: int) -> AsyncIterator[None]:
        """Write a blob of a length. For work that is not cut off, since a thread goes on with it."""
        if not self._there:
            async with self._first:
                if not self._there:
                    # Its folder is new, and goes again if it cannot be made durable.
                    yield
                    self._there = True
                    return
        async with self._locks.setdefault(size_bytes, asyncio.Lock()):
            yield
