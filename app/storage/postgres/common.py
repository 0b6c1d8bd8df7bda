"""Common files: files that all processes of a store share besides its runs, as rows with a copy on each machine.

The row is the authority. Processes read the copy, so that a read never waits for a server, and the last known content
remains valid while the server is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path

from app import errors
from app.engine import aio, outages
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Signature
from app.storage.disk.os_disk import OsDisk
from app.storage.disk.worker_threads import Workers
from app.storage.postgres import rows
from app.storage.postgres.database import Database
from app.storage.postgres.disk import PostgresDisk

COMPARE_SECONDS = 0.25  # Time between two checks for changes by other processes.
_KEPT = ("budgets.json", "keys.json", "policies.json", "prices.json")
NAMES = (*_KEPT, "rate_limits.json")  # The files; the last one contains nothing that a move to the store must keep.

_ADOPTED = ".taken"

_log = logging.getLogger(__name__)


class CommonFiles:
    """Keeps the copies of common files up to date; its methods wait for the server, and are meant for a thread."""

    def __init__(self, database: Database, disk: PostgresDisk, data_directory: Path) -> None:
        self._database = database
        self._disk = disk
        self._own = OsDisk(data_directory)
        self._copies = OsDisk(data_directory / layout.COMMON)
        self._known: dict[str, tuple[int | None, Signature | None]] = {}
        self._turn = threading.Lock()
        self._following: asyncio.Task[None] | None = None

    def adopt(self) -> None:
        """Move the files of a data directory that had its runs in folders into the store, and make the copies.

        Raises:
            errors.ConfigurationError: `common_file_differs`, the store has other content already.
            OSError: the store or the data directory cannot be read or written.
        """
        disk_port.make_folder(self._own, layout.COMMON)
        if any(map(self._own.has_file, _KEPT)):
            lock = self._disk.lock(layout.AUDIT, wait=True)
            assert lock is not None
            try:
                for name in filter(self._own.has_file, _KEPT):
                    self._adopt(name)
            finally:
                lock.release()
        self.pull()

    def put(self, name: str, content: bytes) -> None:
        with self._turn:
            self._disk.write(name, content, sync=True)
        self.pull()

    def pull(self) -> None:
        """Update the copies.

        Raises:
            OSError: the store cannot be read, or a copy cannot be written.
        """
        with self._turn:
            versions = self._database.read(lambda cursor: rows.versions(cursor, NAMES))
            for name in NAMES:
                version = versions.get(name)
                if self._known.get(name) != (version, self._copy(name)):
                    self._renew(name, is_there=version is not None)
                    self._known[name] = version, self._copy(name)

    def follow(self, workers: Workers) -> None:
        """Keep the copies up to date from now on."""
        self._following = asyncio.create_task(self._follow(workers), name="common files")

    async def stop(self) -> None:
        """Stop following, and wait for it."""
        if self._following is not None:
            await aio.end(self._following)

    def _adopt(self, name: str) -> None:
        content = self._own.read(name)
        if not self._disk.has_file(name):
            self._disk.write(name, content, sync=True)
        elif self._disk.read(name) != content:
            raise _differs(name)
        self._own.rename(name, f"{name}{_ADOPTED}")

    async def _follow(self, workers: Workers) -> None:
        outage = outages.Outage(
            _log,
            "keys, budgets, prices, policies and pauses known before still count: %s",
            "keys, budgets, prices, policies and pauses are read again",
        )
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            try:
                await workers.run(self.pull)
                outage.worked()
            except OSError as error:
                outage.failed(error)

    def _copy(self, name: str) -> Signature | None:
        try:
            return self._copies.signature(name)
        except FileNotFoundError:
            return None

    def _renew(self, name: str, *, is_there: bool) -> None:
        if is_there:
            # Processes on one machine share its copies, so each uses a temporary name of its own.
            fresh = f".{name}.{os.getpid()}-{id(self):x}.new"
            self._copies.write(fresh, self._disk.read(name), sync=False)
            self._copies.rename(fresh, name)
            return
        with contextlib.suppress(FileNotFoundError):
            self._copies.remove(name)


def _differs(name: str) -> errors.ConfigurationError:
    message = (
        f"{name} of this data directory differs from the one that all services of the store share: remove it, or,"
        " if it is the right one, keep a copy, remove it, and give the service its content by a command"
    )
    return errors.ConfigurationError(message, code="common_file_differs", detail={"file": name})
