"""The database: its connections, and its errors translated into errors of a disk."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

from app import clock, errors, extras
from app.storage import layout, postgres_connections
from app.storage.disk import disk_port

if TYPE_CHECKING:
    import psycopg

SCHEMA = layout.STORE_SCHEMA  # Schema of all tables.
OWNER_LOCK = 0x434F4E54524F4C  # Advisory lock that the session of the one writing process holds.

EPOCH_LOCK = OWNER_LOCK + 1
"""Advisory lock that every writing transaction shares, and that a new owner takes alone to begin an epoch."""

MIGRATION_LOCK = OWNER_LOCK + 2  # Advisory lock of a process that creates or updates the tables.

LEADER_LOCK = OWNER_LOCK + 3
"""Advisory lock of the one service that works for triggers, notifications and retention, among those of a store."""

CHANNEL = SCHEMA  # Channel on which processes that share the store announce their commits.

REPEAT_SECONDS = 10.0
"""Time for which a transaction is repeated that the server rolls back in favour of others."""

BROKEN_OFF = ("40001", "40P01")
"""Codes of the server for that: a failed serialisation or a deadlock; the transaction has no effect."""

_AWAY = ("08", "57P")  # Classes of codes: failed connections, and servers that stop or start.
STANDBY = "25006"  # Code of a server that refuses writes because it follows another server.

T = TypeVar("T")
Cursor: TypeAlias = "psycopg.Cursor[Any]"
Connection: TypeAlias = "psycopg.Connection[Any]"

_PAUSE_SECONDS = 0.02
_GUARD = f"SELECT pg_advisory_xact_lock_shared({EPOCH_LOCK}); SELECT epoch FROM {SCHEMA}.store"


class Fenced(OSError):
    """Another process owns the store now; this one must not write any more."""


class Database:
    """Connections of one process; one thread at a time uses each."""

    def __init__(self, url: str) -> None:
        self.shown = shown(url)
        """Its address without the password."""
        self.url = url
        """Its address."""
        self._dsn = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._idle: list[Connection] = []
        self._guard = threading.Lock()
        # Real time: the injected clock of a test stands still, and would never end the wait of a thread for the server.
        self.clock = clock.SystemClock()
        """Times the waits for the server."""
        self._closing = threading.Event()

    def connect(self) -> Connection:
        """Open a connection that commits each statement on its own outside of a transaction."""
        connection = self._opened()
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened(self) -> Connection:
        import psycopg
        from psycopg import conninfo

        options = postgres_connections.options(conninfo.conninfo_to_dict(self._dsn))
        return psycopg.connect(conninfo.make_conninfo(self._dsn, **options), autocommit=True)

    def read(self, job: Callable[[Cursor], T]) -> T:
        """Run a job that only reads; a connection that was lost meanwhile is replaced once.

        Args:
            job: Repeated if the server rolls it back.

        Raises:
            OSError: the database cannot be read now.
        """
        return self._used(lambda connection, _: _read(connection, job))

    def write(self, epoch: int, job: Callable[[Cursor], T]) -> T:
        """Run a job in a transaction of an epoch; it is not repeated if its commit may have succeeded.

        Args:
            job: Repeated if the server rolls it back, or the connection is lost before its commit.

        Raises:
            Fenced: the epoch is over.
            OSError: the commit failed, or may have failed.
        """

        def write(connection: Connection, committing: Callable[[], None]) -> T:
            try:
                self._begin(connection, epoch)
                with connection.cursor(binary=True) as cursor:
                    result = job(cursor)
                # From here on the process cannot know whether a lost connection has committed.
                committing()
                connection.execute("COMMIT")
            except BaseException:
                if not is_lost(connection):
                    connection.execute("ROLLBACK")
                raise
            return result

        return self._used(write)

    def check_epoch(self, cursor: Cursor, epoch: int) -> None:
        """Make sure that an epoch lasts until the end of the transaction.

        Raises:
            Fenced: it is over.
        """
        self._guard_epoch(cursor.connection.execute(_GUARD), epoch)

    def _begin(self, connection: Connection, epoch: int) -> None:
        # One message, since the creation of a run has many small transactions.
        begun = connection.execute(f"BEGIN; {_GUARD}")
        begun.nextset()
        self._guard_epoch(begun, epoch)

    def _guard_epoch(self, guard: Cursor, epoch: int) -> None:
        # Two statements in one message: the second must read newer data than the lock.
        guard.nextset()
        row = guard.fetchone()
        if row is None or int(row[0]) != epoch:
            raise self.fenced()

    def fenced(self) -> Fenced:
        """Return the error of a process that no longer owns the store."""
        message = f"the store {self.shown} was taken over by another process; this one writes nothing any more"
        return Fenced(errno.EPERM, message)

    def close(self) -> None:
        """Close every idle connection now, and each used one as soon as it is returned."""
        self._closing.set()
        self.discard()

    def discard(self) -> None:
        """Close the idle connections; a restarted server knows none of them."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _used(self, job: Callable[[Connection, Callable[[], None]], T]) -> T:
        import psycopg

        until = self.clock.monotonic() + REPEAT_SECONDS
        while True:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            known, asked = connection is not None, threading.Event()
            try:
                if connection is None:
                    connection = self._opened()
                    _prepare(connection)
                result = job(connection, asked.set)
            except psycopg.Error as error:
                if connection is not None and is_standby(error):
                    # The address may lead to another server now.
                    connection.close()
                lost = connection is not None and is_lost(connection)
                self._give_back(connection)
                if lost:
                    self.discard()
                # The server closed a connection that was idle; another one is opened at once.
                if lost and known and not asked.is_set():
                    continue
                is_passing = (lost and not asked.is_set()) or is_broken_off(error) or is_standby(error)
                if is_passing and self.clock.monotonic() < until:
                    # Interrupted when the store is closed.
                    self._closing.wait(_PAUSE_SECONDS)
                    continue
                raise self.fault(error) from error
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)
            return result

    def _give_back(self, connection: Connection | None) -> None:
        if connection is None:
            return
        with self._guard:
            if not (self._closing.is_set() or is_lost(connection)):
                self._idle.append(connection)
                return
        with contextlib.suppress(Exception):
            connection.close()

    def fault(self, error: Exception) -> OSError:
        """Return an error of the database as an error of a disk."""
        state, reason = (
            getattr(error, "sqlstate", None) or "",
            str(error).strip().partition("\n")[0] or type(error).__name__,
        )
        if state == "53100":
            return OSError(errno.ENOSPC, f"no space is left for the store {self.shown}")
        if state in BROKEN_OFF:
            message = f"the store {self.shown} broke off every try of a write for {REPEAT_SECONDS:.0f} s: {reason}"
            return OSError(errno.EIO, f"{message}; look for other programs that lock its tables")
        if state == STANDBY:
            return disk_port.ServerAway(errno.EIO, standby(self.shown))
        kind = disk_port.ServerAway if _is_away(error, state) else OSError
        return kind(errno.EIO, f"the store {self.shown}: {reason}")


def _is_away(error: Exception, state: str) -> bool:
    import psycopg

    # A server that refuses a statement reports a code.
    is_passing = not state or state.startswith(_AWAY)
    return is_passing and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _prepare(connection: Connection) -> None:
    # With a stricter default, a transaction would still see the epoch from before it waited for its lock.
    connection.execute("SET default_transaction_isolation TO 'read committed'")


def is_broken_off(error: Exception) -> bool:
    """Return whether the server has rolled a transaction back that would succeed if repeated."""
    return getattr(error, "sqlstate", None) in BROKEN_OFF


def is_standby(error: Exception) -> bool:
    """Return whether a write was sent to a server that follows another one; a fail-over ends that."""
    return getattr(error, "sqlstate", None) == STANDBY


def is_lost(connection: Connection) -> bool:
    """Return whether a connection is unusable."""
    return bool(connection.closed or connection.broken)


def shown(url: str) -> str:
    """Return an address without password and options, for messages."""
    try:
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        name = f"{user.partition(':')[0]}{at}{host}"
        return urlunsplit((parts.scheme.partition("+")[0], name, parts.path, "", ""))
    except ValueError:
        return "postgresql://…"


def standby(shown_address: str) -> str:
    """Return the message about an address that leads to a server without writes."""
    return (
        f"the store {shown_address} takes no writes: if it leads to a standby, promote it, or name all servers in"
        " CONTROL_ROOM_STORE_URL and end it with ?target_session_attrs=read-write; otherwise"
        " default_transaction_read_only is on for the server, the database or the user: switch it off"
    )


def missing_driver() -> errors.ConfigurationError:
    """Return the error of an installation that lacks the driver."""
    message = f"a store on Postgres needs its driver, which is not installed: {extras.install('postgres')}"
    return errors.ConfigurationError(message, code="store_unusable")


def _read(connection: Connection, job: Callable[[Cursor], T]) -> T:
    with connection.cursor(binary=True) as cursor:
        return job(cursor)
