"""Spending of several processes: the turn in which one of them reserves, and which journals have changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from app.storage import layout
from app.storage.disk.disk_port import Lock
from app.storage.disk.worker_threads import Workers
from app.storage.postgres import journals
from app.storage.postgres.database import Database
from app.storage.postgres.disk import PostgresDisk


class PostgresSpending:
    """`spending.SharedSpending` over a database."""

    def __init__(self, database: Database, disk: PostgresDisk, workers: Workers) -> None:
        self._database = database
        self._disk = disk
        self._workers = workers

    async def turn(self) -> Lock:
        """Wait until no other process reserves, and keep the others from it."""
        taking = asyncio.ensure_future(self._workers.run(self._take))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_release)
            raise

    async def versions(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        """Return what differs for each run as soon as its journals have."""
        folders = [layout.run_folder(run_id) for run_id in run_ids]
        found = await self._workers.run(lambda: self._database.read(lambda cursor: journals.versions(cursor, folders)))
        return {run_id: found.get(folder) for run_id, folder in zip(run_ids, folders, strict=True)}

    def _take(self) -> Lock:
        self._disk.add_folder(layout.SPENDING)
        lock = self._disk.lock(layout.SPENDING, wait=True)
        if lock is None:
            raise OSError("the store is closed")
        return lock


def _release(taking: asyncio.Future[Lock]) -> None:
    with contextlib.suppress(BaseException):
        taking.result().release()
