"""An SQLite file as the index, over the standard library's `sqlite3`."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.storage.index.sql import database, migrations

_BUSY_SECONDS = 1
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")
_HAS_VERSION = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"


class SqliteFile:
    """`Database` over a file, which is created if it is missing.

    The file uses write-ahead logging (WAL), so that readers in other processes never wait. `synchronous` is NORMAL: a
    power cut may undo the newest moves, whose rows then err towards unfinished and are read again from the folders. The
    one move that would err the other way, out of a finished state, is written with FULL (`durable`).
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[_Session]:
        with _translated():
            connection = self._connected()
            connection.execute("BEGIN")
            try:
                yield _Session(connection)
            finally:
                _end(connection)

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[_Session]:
        with _translated():
            connection = self._connected()
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield _Session(connection)
                connection.execute("COMMIT")
            finally:
                _end(connection)

    def migrate(self) -> bool:
        with self.writing() as session:
            version = _version(session)
            # A new file gets the newest tables at once, without the migrations.
            if version is None:
                for statement in migrations.statements():
                    session.execute(statement)
                session.execute(migrations.NOTE_VERSION, {"version": migrations.HEAD})
            elif version == migrations.HEAD:
                session.execute(migrations.DATE_LABELS)
        if version in (None, migrations.HEAD):
            return version is None
        # Imported only for tables of another version; those of an earlier one are migrated.
        from app.storage.index.sql import servers

        other = servers.Server(database.url_of(self._path))
        try:
            return other.migrate()
        finally:
            other.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                for pragma in _PRAGMAS:
                    connection.execute(f"PRAGMA {pragma}")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


class _Session:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        return self._connection.execute(sql, values or {}).fetchall()

    def execute(self, sql: str, parameters: database.Parameters = None) -> int:
        if parameters is None or isinstance(parameters, Mapping):
            return self._connection.execute(sql, parameters or {}).rowcount
        return self._connection.executemany(sql, parameters).rowcount


def _end(connection: sqlite3.Connection) -> None:
    # Some failures, such as a full disk, have ended the transaction already.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _version(session: _Session) -> str | None:
    if not session.rows(_HAS_VERSION):
        return None
    rows = session.rows("SELECT version_num FROM alembic_version")
    return str(rows[0][0]) if rows else None


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise database.IntegrityFault(error) from error
    except sqlite3.OperationalError as error:
        raise database.OperationalFault(error) from error
    except sqlite3.DatabaseError as error:
        raise database.DatabaseFault(error) from error
