"""The run store on Postgres."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.engine import probes
from app.storage import layout, store_mark
from app.storage.committer import Committer
from app.storage.data_directory import DataDirectory
from app.storage.disk import disk_health
from app.storage.disk.disk_port import Disk
from app.storage.disk.worker_threads import Workers
from app.storage.folder_store import FolderStore
from app.storage.index.index_port import Index
from app.storage.postgres import migrations
from app.storage.postgres.commit_listener import PostgresCommitListener
from app.storage.postgres.committer import PostgresCommitter
from app.storage.postgres.common import CommonFiles
from app.storage.postgres.database import LEADER_LOCK, Database, missing_driver
from app.storage.postgres.disk import PostgresDisk
from app.storage.postgres.ownership import Ownership, is_owned
from app.storage.postgres.rates import PostgresRates
from app.storage.postgres.shared_turns import PostgresTurns
from app.storage.runs.commit_log_lock import CommitLogLock
from app.storage.runs.run_folders import Adopt


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The database of a store, and how the store is opened."""

    url: str  # Address of the database.
    new_identity: str  # Identity that a new store gets.
    looks_only: bool = False  # Whether the store is only read, and so not owned.
    shared: bool = False  # Whether other processes write to it, too, each to the runs that it leases.


class PostgresStore(FolderStore):
    """Runs in a database, with their index beside them; the data directory contains the machine's own files."""

    def __init__(
        self,
        target: Target,
        directory: DataDirectory,
        index: Index,
        *,
        clock: clock.Clock,
        probes: probes.Probes | None = None,
        adopt: Adopt | None = None,
    ) -> None:
        super().__init__(directory, index, clock=clock, probes=probes, adopt=adopt)
        self._target = target
        self.leads = self._leads if target.shared else None
        self.clock_offset = self._clock_offset if target.shared and not target.looks_only else None
        self.is_owned = self._is_owned
        self._database: Database | None = None
        self._ownership: Ownership | None = None
        self._disk: PostgresDisk | None = None
        self._identity = ""

    async def start(self, *, serve: bool = True) -> None:
        """Open the database as its owner, or for reading only.

        Raises:
            errors.ConfigurationError: it cannot be reached or used, or belongs to another data directory.
        """
        if self._database is None:
            await self._others.run(self._connect)
        # The owner's connections would exclude other processes.
        try:
            await super().start(serve=serve)
        except BaseException:
            self._disconnect()
            raise
        if self._ownership is not None and self.common is None:
            await self._share()

    async def write_fault(self) -> errors.StorageFault | None:
        """Return why new runs are refused, after another attempt to write; None if they are accepted."""
        if isinstance(self.commit_listener, PostgresCommitListener) and self.commit_listener.is_cut_off:
            # No write may have been tried since the server went away.
            self._parts.context.disk_health.free = False
        return await super().write_fault()

    async def close(self) -> None:
        """Close all files and release all locks."""
        if self.common is not None:
            await self.common.stop()
        await super().close()

    async def _share(self) -> None:
        assert self._database is not None
        assert self._disk is not None
        common = CommonFiles(self._database, self._disk, self._directory.path)
        try:
            await self._others.run(common.adopt)
        except OSError as error:
            raise disk_health.unusable(self._directory.path, error) from error
        common.follow(self._others)
        self.common = common
        if self._target.shared:
            self.turns = functools.partial(PostgresTurns, self._database, self._disk, self._others)
            self.shared_rates = PostgresRates(self._database, self._disk, self._others, self._clock)

    async def _clock_offset(self) -> float:
        ownership = self._ownership
        assert ownership is not None
        asked = self._clock.now().timestamp()
        row = await self._others.run(lambda: ownership.ask("SELECT extract(epoch FROM clock_timestamp())::float8"))
        answered = self._clock.now().timestamp()
        assert row is not None
        # The database has answered at some moment between the two.
        return max(0.0, asked - float(row[0])) + min(0.0, answered - float(row[0]))

    async def _is_owned(self) -> bool:
        database = self._database
        assert database is not None
        return await self._others.run(lambda: database.read(is_owned))

    async def _leads(self) -> bool:
        # The session that has the lock gets it again; another service gets it after this one has ended.
        ownership = self._ownership
        if ownership is None:
            return False
        row = await self._others.run(lambda: ownership.ask("SELECT pg_try_advisory_lock(%s)", (LEADER_LOCK,)))
        return row is not None and bool(row[0])

    def _connect(self) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise missing_driver() from error
        database = Database(self._target.url)
        if self._target.looks_only:
            try:
                with database.connect() as connection:
                    self._identity = migrations.identity(database, connection)
            except psycopg.Error as error:
                raise migrations.refused(database, error) from error
        else:
            self._directory.prepare()
            store_mark.refuse_folders(self._directory)
            ownership = Ownership(database, self._holder(), shared=self._target.shared)
            self._identity = ownership.acquire(self._target.new_identity)
            self._ownership = ownership
        if self._ownership is not None and self._target.shared:
            self.commit_listener = PostgresCommitListener(database, self._ownership.number, self, self._others)
        self._database = database
        store_mark.keep(self._directory, self._identity, database.shown, looks_only=self._target.looks_only)

    def _holder(self) -> dict[str, Any]:
        since = clock.stamp(self._clock.now())
        return {"pid": os.getpid(), "host": socket.gethostname(), "since": since}

    def _open_disk(self) -> tuple[Disk, str]:
        assert self._database is not None
        disk = self._disk = self._make_disk(self._database, self._ownership)
        if self._ownership is not None:
            for folder in layout.FOLDERS:
                disk.add_folder(folder)
        return disk, self._identity

    def _make_disk(self, database: Database, ownership: Ownership | None) -> PostgresDisk:
        return PostgresDisk(database, ownership, shared=self._target.shared)

    def _make_committer(self, files: Disk, commits: Workers, others: Workers, points: probes.Probes) -> Committer:
        assert self._disk is not None
        self._hold = CommitLogLock(files, serves=self._serves)
        return PostgresCommitter(self._disk, commits, points)

    def _quick_workers(self) -> Workers:
        return self._others

    def _let_go(self) -> None:
        super()._let_go()
        self._disconnect()

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        ownership, self._ownership = self._ownership, None
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.close()
        if ownership is not None:
            ownership.close()
        if database is not None:
            database.close()
