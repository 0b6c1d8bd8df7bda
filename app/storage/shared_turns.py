"""Turns of several processes: let one process at a time decide, and show which journals have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from app.storage import layout
from app.storage.disk.disk_port import Disk, Lock, Signature
from app.storage.disk.worker_threads import Workers


class DiskTurns:
    """`shared_turns.SharedTurns` over the disk that the processes share."""

    def __init__(self, disk: Disk, workers: Workers, folder: str) -> None:
        """Args:
        folder: Folder that the process locks during its turn.
        """
        self._disk = disk
        self._workers = workers
        self._folder = folder

    async def turn(self) -> Lock:
        """Wait until no other process decides, and keep the others waiting until the lock is released."""
        acquiring = asyncio.ensure_future(self._workers.run(self._acquire))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(_release)
            raise

    async def versions(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        """Return a value for each run that differs as soon as the run's journals have changed."""
        return await self._workers.run(lambda: {run_id: self._version(run_id) for run_id in run_ids})

    def _version(self, run_id: str) -> object:
        return [self._signature(f"{layout.run_folder(run_id)}/{name}") for name in (layout.STEPS, layout.CONTROL)]

    def _signature(self, path: str) -> Signature | None:
        try:
            return self._disk.signature(path)
        except FileNotFoundError:
            return None

    def _acquire(self) -> Lock:
        return acquire(self._disk, self._folder)


def acquire(disk: Disk, folder: str) -> Lock:
    """Wait until no other process has locked a folder, make it if it is missing, and lock it.

    Raises:
        OSError: the store is closed, or away.
    """
    disk.add_folder(folder)
    lock = disk.lock(folder, wait=True)
    if lock is None:
        raise OSError("the store is closed")
    return lock


def _release(acquiring: asyncio.Future[Lock]) -> None:
    if not acquiring.cancelled() and acquiring.exception() is None:
        acquiring.result().release()
