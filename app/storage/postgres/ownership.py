"""Ownership: the right of one process to write to the store, and the session that proves it.

The session that commits journals also holds the advisory lock. As long as it lives, nobody else can own the store; when
it is lost, the lock is lost with it, and nothing is committed before it is held again in the same epoch. Holding it
again also proves that the former session has ended, so that what became of its last commit can be looked up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from app import clock, errors
from app.domain import plain
from app.storage.postgres import migrations
from app.storage.postgres.database import EPOCH_LOCK, OWNER_LOCK, SCHEMA, Connection, Cursor, Database, is_lost

RECONNECT_SECONDS = 10.0
"""How long a commit waits for a server that is away."""

_TAKE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_REPEATABLE = "40"
_REFUSED = ("28", "3D")
_END_FORMER = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %s"

T = TypeVar("T")


class _Held(Exception):
    """The lock is not free yet."""


class Ownership:
    """The right to write, and the transactions that need it to be certain."""

    def __init__(
        self, database: Database, holder: Mapping[str, plain.Json], *, reconnect_seconds: float = RECONNECT_SECONDS
    ) -> None:
        """Args: holder: Who this is, for whoever is refused."""
        self._database = database
        self._holder = json.dumps(dict(holder))
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

    def take(self, identity: str) -> str:
        """Become the owner, bring the tables up to date, and return the store's identity.

        Args:
            identity: What a store that is new is called.

        Raises:
            errors.ConfigurationError: `store_away`, `store_busy`, `store_newer` or `store_unusable`.
        """
        import psycopg

        try:
            connection = self._database.connect()
            try:
                self._take(connection)
                migrations.migrate(self._database, connection)
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
                if self._fenced:
                    raise self._database.fenced()
                try:
                    connection = self._connected()
                    with connection.transaction(), connection.cursor(binary=True) as cursor:
                        return job(cursor)
                except (psycopg.Error, _Held) as error:
                    if not self._is_worth_repeating(error) or self._clock.monotonic() > until:
                        raise self._database.fault(error) from error
                if self._stopping.wait(_PAUSE_SECONDS):
                    raise OSError("the store is closed")

    def close(self) -> None:
        """Give the ownership up."""
        self._stopping.set()
        with self._turn:
            self._drop()

    def _is_worth_repeating(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None) or ""
        if self._connection is None or is_lost(self._connection):
            self._drop()
            return not state.startswith(_REFUSED)
        return state.startswith(_REPEATABLE) or isinstance(error, _Held)

    def _connected(self) -> Connection:
        if self._connection is not None and not is_lost(self._connection):
            return self._connection
        self._drop()
        connection = self._database.connect()
        try:
            if not _locked(connection):
                self._look(connection)
                # The server has not noticed yet that the former session is gone, which may still be at work.
                connection.execute(_END_FORMER, (self._backend,))
                raise _Held("its lock is still held by a session that was lost")
            self._look(connection)
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

    def _take(self, connection: Connection) -> None:
        # A session that was killed ends as soon as the server notices.
        until = self._clock.monotonic() + _TAKE_SECONDS
        while not _locked(connection):
            if self._clock.monotonic() > until:
                raise self._busy(connection)
            self._stopping.wait(_PAUSE_SECONDS)

    def _begin(self, connection: Connection, identity: str) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (EPOCH_LOCK,))
            row = connection.execute(
                f"UPDATE {SCHEMA}.store SET epoch = epoch + 1, identity = coalesce(identity, %s), holder = %s"
                " RETURNING epoch, identity",
                (identity, self._holder),
            ).fetchone()
        assert row is not None
        self.epoch, self._identity = int(row[0]), str(row[1])

    def _busy(self, connection: Connection) -> errors.ConfigurationError:
        holder = migrations.holder(connection)
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


def _locked(connection: Connection) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (OWNER_LOCK,)).fetchone()
    return row is not None and bool(row[0])
