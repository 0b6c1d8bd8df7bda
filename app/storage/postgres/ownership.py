"""Ownership: the right to write to the store, of one process or shared by several, and the session that proves it.

The session that commits journals also holds the advisory lock. As long as it lives, no other session can own the
store; when it is lost, the lock is lost with it, and nothing is committed before it is held again in the same epoch.
Holding it again also proves that the former session has ended, so that the fate of its last commit can be looked up.

Processes that share a store hold that lock together, so that no single owner comes between them, and begin one epoch
for all. Which of them writes a run is the matter of leases.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from app import clock, errors
from app.domain import plain
from app.storage.postgres import migrations
from app.storage.postgres.database import (
    EPOCH_LOCK,
    MIGRATION_LOCK,
    OWNER_LOCK,
    SCHEMA,
    Connection,
    Cursor,
    Database,
    is_broken_off,
    is_lost,
    is_standby,
)

RECONNECT_SECONDS = 10.0  # How long a commit waits for a server that is away.

_TAKE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_REFUSED = ("28", "3D")
_END_FORMER = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %s"

T = TypeVar("T")


class _Held(Exception):
    """The lock is not free yet."""


class Ownership:
    """The right to write, and the transactions that need it to be certain.

    Args:
        holder: Description of this process, for messages to refused ones.
        shared: Whether others that share it, too, may write beside this process.
    """

    def __init__(
        self,
        database: Database,
        holder: Mapping[str, plain.Json],
        *,
        shared: bool = False,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        self._database = database
        self._shared = shared
        self._holder = json.dumps({**holder, "shared": shared})
        self._reconnect_seconds = reconnect_seconds
        self._clock = clock.SystemClock()
        self._turn = threading.RLock()
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        self._backend = 0
        self._fenced = False
        self._identity = ""
        self.epoch = 0
        """Number of this ownership; the first is 1."""
        self.number = 0
        """Number of this process among those that share the store."""

    def acquire(self, identity: str) -> str:
        """Become the owner, bring the tables up to date, and return the store's identity.

        Args:
            identity: What a store that is new is called.

        Raises:
            errors.ConfigurationError: `store_away`, `store_busy`, `other_engine`, `store_newer` or `store_unusable`.
        """
        import psycopg

        try:
            connection = self._database.connect()
            try:
                self._acquire(connection)
                self._begin(connection, identity)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise migrations.refused(self._database, error) from error
        self._adopt(connection)
        return self._identity

    def transact(self, job: Callable[[Cursor], T]) -> T:
        """Do something in a transaction of the session that proves the ownership, and return once it is committed.

        After a lost connection, a deadlock or a failed serialisation it is done again: the job must look whether it
        has been done already.

        Raises:
            OSError: another process owns the store, it could not be committed, or it is not known whether it was.
        """
        import psycopg

        with self._turn:
            until = self._clock.monotonic() + self._reconnect_seconds
            while True:
                # Another service has the store: nothing of this one may be written any more.
                if self._fenced:
                    raise self._database.fenced()
                try:
                    connection = self._connected()
                    with connection.transaction(), connection.cursor(binary=True) as cursor:
                        return job(cursor)
                except (psycopg.Error, _Held) as error:
                    # A fault of the statement itself would come back each time.
                    if not self._is_worth_repeating(error) or self._clock.monotonic() > until:
                        raise self._database.fault(error) from error
                if self._stopping.wait(_PAUSE_SECONDS):
                    raise OSError("the store is closed")

    def ask(self, query: str, values: tuple[int, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query of the session that proves the ownership, which keeps what it locks.

        Raises:
            OSError: the database cannot be asked now.
        """
        return self.transact(lambda cursor: cursor.execute(query, values).fetchone())

    def close(self) -> None:
        """Give the ownership up."""
        self._stopping.set()
        with self._turn:
            self._drop()

    def _is_worth_repeating(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None) or ""
        if is_standby(error):
            # The address may lead to another server by now.
            self._drop()
        if self._connection is None or is_lost(self._connection):
            self._drop()
            return not state.startswith(_REFUSED)
        return is_broken_off(error) or isinstance(error, _Held)

    def _connected(self) -> Connection:
        if self._connection is not None and not is_lost(self._connection):
            return self._connection
        self._drop()
        connection = self._database.connect()
        try:
            if not self._locked(connection):
                self._look(connection)
                # The server has not noticed yet that the former session is gone, which may still be at work.
                connection.execute(_END_FORMER, (self._backend,))
                raise _Held("its lock is still held by a session that was lost")
            self._look(connection)
            # Other processes see by this lock that the number is alive.
            if self._shared and not _try(connection, "pg_try_advisory_lock", -self.number):
                connection.execute(_END_FORMER, (self._backend,))
                raise _Held("its number is still held by a session that was lost")
        except BaseException:
            connection.close()
            raise
        self._adopt(connection)
        return connection

    def _look(self, connection: Connection) -> None:
        row = connection.execute(f"SELECT epoch FROM {SCHEMA}.store").fetchone()
        if row is None or int(row[0]) != self.epoch:
            self._fenced = True
            raise self._database.fenced()

    def _acquire(self, connection: Connection) -> None:
        # A session that was killed ends as soon as the server notices.
        until = self._clock.monotonic() + _TAKE_SECONDS
        while not self._locked(connection):
            if self._clock.monotonic() > until:
                raise self._busy(connection)
            self._stopping.wait(_PAUSE_SECONDS)

    def _begin(self, connection: Connection, identity: str) -> None:
        # Of processes that begin at once, one makes the tables; a process that joins others shares their epoch.
        connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        migrations.migrate(self._database, connection)
        connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (EPOCH_LOCK,))
            # Only processes that share may share with a holder that does.
            joins = self._shared and bool(migrations.holder(connection).get("shared"))
            row = connection.execute(
                f"UPDATE {SCHEMA}.store SET epoch = epoch + %s, identity = coalesce(identity, %s), holder = %s"
                f" RETURNING epoch, identity, nextval('{SCHEMA}.changes')",
                (0 if joins else 1, identity, self._holder),
            ).fetchone()
        assert row is not None
        self.epoch, self._identity, self.number = int(row[0]), str(row[1]), int(row[2])
        if self._shared:
            _try(connection, "pg_try_advisory_lock", -self.number)

    def _busy(self, connection: Connection) -> errors.ConfigurationError:
        holder = migrations.holder(connection)
        if self._shared or holder.pop("shared", False):
            first, second = (
                ("an embedded engine executes", "it") if self._shared else ("workers on Temporal execute", "them")
            )
            message = f"{first} the runs of {self._database.shown}: stop {second} first, since two would repeat steps"
            return errors.ConfigurationError(message, code="other_engine", detail=holder)
        who = f"process {holder['pid']} on {holder['host']}" if holder.get("pid") else "another process"
        since = f" since {holder['since']}" if holder.get("since") else ""
        message = f"the store {self._database.shown} is owned by {who}{since}; a store has one service at a time"
        return errors.ConfigurationError(message, code="store_busy", detail=holder)

    def _adopt(self, connection: Connection) -> None:
        self._connection = connection
        self._backend = connection.info.backend_pid

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _locked(self, connection: Connection) -> bool:
        return _try(connection, f"pg_try_advisory_lock{'_shared' if self._shared else ''}", OWNER_LOCK)


def _try(connection: Connection, function: str, key: int) -> bool:
    row = connection.execute(f"SELECT {function}(%s)", (key,)).fetchone()
    return row is not None and bool(row[0])
