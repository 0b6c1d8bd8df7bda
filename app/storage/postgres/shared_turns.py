"""Turns of several processes that share a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.storage import layout
from app.storage.disk.worker_threads import Workers
from app.storage.postgres import journals
from app.storage.postgres.database import Database
from app.storage.postgres.disk import PostgresDisk
from app.storage.shared_turns import DiskTurns


class PostgresTurns(DiskTurns):
    """Turns that query once which journals have changed."""

    def __init__(self, database: Database, disk: PostgresDisk, workers: Workers, folder: str) -> None:
        super().__init__(disk, workers, folder)
        self._database = database

    async def versions(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        """Return the numbers of the last changes of the journals of each run."""
        folders = [layout.run_folder(run_id) for run_id in run_ids]
        found = await self._workers.run(lambda: self._database.read(lambda cursor: journals.versions(cursor, folders)))
        return {run_id: found.get(folder) for run_id, folder in zip(run_ids, folders, strict=True)}
