"""DBOS with its system database on SQLite.

Durability is that of SQLite with `synchronous=FULL`: each commit is synced, and each step is a commit. The program
sets `journal_mode=WAL` before the start; DBOS leaves SQLite at its slower default.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import sqlalchemy
from dbos import DBOS

from bench.others.inside import meter

_FOR_EVER_SECONDS = 86_400.0
_arrived = asyncio.Semaphore(0)


@DBOS.step()
async def nothing() -> None:
    """Do nothing."""


@DBOS.workflow()
async def steps(count: int) -> None:
    """Execute a number of no-op steps."""
    for _ in range(count):
        await nothing()


@DBOS.workflow()
async def gate() -> None:
    """Wait for a person."""
    _arrived.release()
    await DBOS.recv_async("answer", timeout_seconds=_FOR_EVER_SECONDS)


class Engine:
    """DBOS in this process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parked: list[Any] = []

    async def run(self) -> None:
        """Execute a workflow of no-op steps."""
        await steps(self._count)

    async def park(self, count: int) -> None:
        """Start workflows that wait."""
        for _ in range(count):
            self._parked.append(await DBOS.start_workflow_async(gate))
        for _ in range(count):
            await _arrived.acquire()


@contextlib.asynccontextmanager
async def opened(order: meter.Order) -> AsyncIterator[Engine]:
    """Launch DBOS on a fresh database."""
    database = order.place / "dbos.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", _sync_each_commit)
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{database}", "log_level": "ERROR"})
    DBOS.launch()
    yield Engine(order.steps)


def _sync_each_commit(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=FULL")


if __name__ == "__main__":
    meter.serve(opened)
