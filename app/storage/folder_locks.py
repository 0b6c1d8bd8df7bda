"""Turns at a folder: what must not mix is done by one at a time, over all processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from app.storage.disk.disk_port import Disk
from app.storage.disk.worker_threads import Workers


class FolderLocks:
    """Let one at a time work on a folder.

    Of a process only one waits for the others, so that no more than one of its threads is held up by them.
    """

    def __init__(self, disk: Disk, folder: str, threads: Workers) -> None:
        self._disk = disk
        self._folder = folder
        self._threads = threads
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Have the folder alone. For work that is not cut off (`workers.uncut`), since a lock that comes later stays
        held.
        """
        async with self._turn:
            lock = await self._threads.run(lambda: self._disk.lock(self._folder, wait=True))
            try:
                yield
            finally:
                if lock is not None:
                    lock.release()
