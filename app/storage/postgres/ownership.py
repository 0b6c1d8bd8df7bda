"""Ownership: the right of one process, or of several, to write to the store, and the session that proves it.

The session that commits journals also holds the advisory lock. While it lives, no other session can own the store. When
the session is lost, the lock is lost with it, and nothing is committed before the process holds the lock again in the
same epoch. That also proves that the former session has ended, so that the process can look up whether its last commit
succeeded.

Processes that share a store hold that lock together, so that no single owner can come between them, and share one
epoch. Leases determine which of them writes a run.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from app import errors
from app.domain import plain
from app.storage import data_directory
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

_OWNED = """
SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND (classid::bigint << 32 | objid::bigint) = %s
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""

RECONNECT_SECONDS = 10.0  # Time for which a commit waits for a server that is away.

_TAKE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_REFUSED = ("28", "3D")
_END_FORMER = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %s"

T = TypeVar("T")


class _Held(Exception):
    """Another session still holds the lock."""


class Ownership:
    """The right to write, and the transactions that require it.

    Args:
        holder: Description of this process, for messages to refused ones.
        shared: Whether other processes that share the store may write, too.
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
        self._clock = database.clock
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
        """Become the owner, update the tables, and return the store's identity.

        Args:
            identity: Identity that a new store gets.

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
        """Run a job in a transaction of the session that proves the ownership, and return once it is committed.

        After a lost connection, a deadlock or a failed serialisation the job is repeated: it must check whether it has
        been done already.

        Raises:
            OSError: another process owns the store, or the commit failed or may have failed.
        """
        import psycopg

        with self._turn:
            until = self._clock.monotonic() + self._reconnect_seconds
            while True:
                # Another service owns the store: this process must not write any more.
                if self._fenced:
                    raise self._database.fenced()
                try:
                    connection = self._connected()
                    with connection.transaction(), connection.cursor(binary=True) as cursor:
                        return job(cursor)
                except (psycopg.Error, _Held) as error:
                    # An error of the statement itself would recur each time.
                    if not self._is_worth_repeating(error) or self._clock.monotonic() > until:
                        raise self._database.fault(error) from error
                if self._stopping.wait(_PAUSE_SECONDS):
                    raise OSError("the store is closed")

    def ask(self, query: str, values: tuple[int, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query in the session that proves the ownership, which keeps the locks of the query.

        Raises:
            OSError: the database cannot be queried now.
        """
        return self.transact(lambda cursor: cursor.execute(query, values).fetchone())

    def close(self) -> None:
        """Give up the ownership."""
        self._stopping.set()
        with self._turn:
            self._drop()

    def _is_worth_repeating(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None) or ""
        if is_standby(error):
            # The address may lead to another server now.
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
            if not self._try_lock(connection):
                self._check_epoch(connection)
                # The server has not noticed yet that the former session is gone, which may still execute a statement.
                connection.execute(_END_FORMER, (self._backend,))
                raise _Held("its lock is still held by a session that was lost")
            self._check_epoch(connection)
            # By this lock other processes see that the process with this number lives.
            if self._shared and not _try(connection, "pg_try_advisory_lock", -self.number):
                connection.execute(_END_FORMER, (self._backend,))
                raise _Held("its number is still held by a session that was lost")
        except BaseException:
            connection.close()
            raise
        self._adopt(connection)
        return connection

    def _check_epoch(self, connection: Connection) -> None:
        row = connection.execute(f"SELECT epoch FROM {SCHEMA}.store").fetchone()
        if row is None or int(row[0]) != self.epoch:
            self._fenced = True
            raise self._database.fenced()

    def _acquire(self, connection: Connection) -> None:
        # A killed session ends as soon as the server notices.
        until = self._clock.monotonic() + _TAKE_SECONDS
        while not self._try_lock(connection):
            if self._clock.monotonic() > until:
                raise self._busy(connection)
            self._stopping.wait(_PAUSE_SECONDS)

    def _begin(self, connection: Connection, identity: str) -> None:
        # Of processes that start at the same time, one makes the tables; a process that joins others uses their epoch.
        connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        migrations.migrate(self._database, connection)
        connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (EPOCH_LOCK,))
            # Only processes that share the store may join an owner that shares it.
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
            return data_directory.other_engine(self._database.shown, shared=self._shared, holder=holder)
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

    def _try_lock(self, connection: Connection) -> bool:
        return _try(connection, f"pg_try_advisory_lock{'_shared' if self._shared else ''}", OWNER_LOCK)


def is_owned(cursor: Cursor) -> bool:
    """Return whether a process owns the store now, on any machine."""
    row = cursor.execute(_OWNED, (OWNER_LOCK,)).fetchone()
    return row is not None and bool(row[0])


def is_shared(url: str) -> bool:
    """Return whether the last owner shared the store; False if the server does not answer, which its opener reports."""
    try:
        import psycopg
    except ImportError:
        return False
    try:
        with Database(url).connect() as connection:
            return bool(migrations.holder(connection).get("shared"))
    except psycopg.Error:
        return False


def _try(connection: Connection, function: str, key: int) -> bool:
    row = connection.execute(f"SELECT {function}(%s)", (key,)).fetchone()
    return row is not None and bool(row[0])
