"""Transactions of readers and writers. The code that opened a transaction ends it, never a query."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import URL, Connection, Engine, ExceptionContext, TextClause, event, text

from app.storage import layout, postgres_connections
from app.storage.index.sql import database

_SEARCH_PATH = """
SELECT set_config('search_path', coalesce(string_agg(quote_ident(name), ', ' ORDER BY place), 'public'), false)
FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place) WHERE name <> %s
"""

_STANDBY = "25006"  # Code of a server that refuses writes because it follows another server.


class ReadSession:
    """A transaction that only reads: `reads.Connection` over SQLAlchemy."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        return self._connection.execute(_parsed(sql), values).all()


class WriteSession(ReadSession):
    """A transaction that also writes; the code that opened it commits it."""

    @property
    def connection(self) -> Connection:
        """Return the connection, for migrations."""
        return self._connection

    def execute(self, sql: str, parameters: database.Parameters = None) -> int:
        return self._connection.execute(_parsed(sql), parameters).rowcount


def connect(url: str) -> Engine:
    """Return the engine of a database, for use by one thread."""
    where = address(url)
    sqlite = where.get_backend_name() == "sqlite"
    connect_args: dict[str, Any] = {"check_same_thread": False, "timeout": 1}
    engine = sqlalchemy.create_engine(
        where,
        connect_args=connect_args if sqlite else postgres_connections.options(where.query),
        # One thread uses the engine; a second connection would wait for the lock of the first.
        pool_size=1,
        max_overflow=0,
        # A server may have closed an idle connection.
        pool_pre_ping=not sqlite,
    )
    if sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "connect", _leave_store)
        event.listen(engine, "handle_error", _leave_standby)
    return engine


def address(url: str) -> URL:
    """Return the address of a database; a Postgres address without a driver gets that of the extra `postgres`."""
    found = parsed(url)
    plainly = found.drivername in ("postgres", "postgresql")
    return found.set(drivername="postgresql+psycopg") if plainly else found


def parsed(url: str) -> URL:
    """Return an address parsed, without a change of its driver.

    Raises:
        sqlalchemy.exc.ArgumentError: the address is invalid.
    """
    return sqlalchemy.make_url(_with_hosts_as_options(url))


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[ReadSession]:
    """Open a transaction that only reads."""
    with engine.connect() as connection:
        yield ReadSession(connection)


@contextlib.contextmanager
def writing(engine: Engine, *, durable: bool = False) -> Iterator[WriteSession]:
    """Open a transaction that writes, and commit it if nothing is raised.

    Args:
        durable: Whether the committed transaction must survive a power cut.
    """
    options = {"writes": True, "durable": durable}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield WriteSession(connection)


@functools.lru_cache(maxsize=256)
def _parsed(sql: str) -> TextClause:
    # SQLAlchemy caches compiled SQL by statement object, so the same text must give the same object.
    return text(sql)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _leave_store(connection: Any, _: Any) -> None:
    """Remove the schema of the store from the search path.

    Store and index both have a table `runs`, and Postgres looks first in the schema that has the role's name.
    """
    cursor = connection.cursor()
    cursor.execute(_SEARCH_PATH, (layout.STORE_SCHEMA,))
    cursor.close()
    connection.commit()


def _leave_standby(context: ExceptionContext) -> None:
    # The address may lead to another server now.
    if getattr(context.original_exception, "sqlstate", None) == _STANDBY:
        context.is_disconnect = True


def _with_hosts_as_options(url: str) -> str:
    """Return an address of several Postgres servers in the form that SQLAlchemy accepts."""
    scheme, _, rest = url.partition("://")
    place, _, database = rest.partition("/")
    user, at, hosts = place.rpartition("@")
    if not scheme.startswith("postgres") or "," not in hosts:
        return url
    name, _, options = database.partition("?")
    found = "&".join([*(f"host={host}" for host in hosts.split(",")), *filter(None, [options])])
    return f"{scheme}://{user}{at}/{name}?{found}"


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("writes"):
        connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if options.get('durable') else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")
