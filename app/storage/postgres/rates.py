"""The document of rates in a database."""

from __future__ import annotations

from app import clock
from app.storage.disk.worker_threads import Workers
from app.storage.postgres.database import Cursor, Database
from app.storage.postgres.disk import PostgresDisk
from app.storage.rate_document import RateDocument


class PostgresRates(RateDocument):
    """The document by the clock of the database, since the clocks of several machines differ."""

    def __init__(self, database: Database, disk: PostgresDisk, workers: Workers, time: clock.Clock) -> None:
        super().__init__(disk, workers, time)
        self._database = database

    def _now(self) -> float:
        return self._database.read(_seconds)


def _seconds(cursor: Cursor) -> float:
    row = cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])
