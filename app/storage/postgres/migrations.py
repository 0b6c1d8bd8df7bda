"""Migrations: update the tables of a store to this version, or report why that is impossible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import app
from app import errors, resources
from app.storage.postgres.database import SCHEMA, Connection, Database, is_broken_off, is_standby, standby

if TYPE_CHECKING:
    import psycopg

HEAD = "20261126_leases"  # Newest migration; a test compares it with the folder `migrations/store/`.
OLDEST_SERVER = 13  # Oldest version of Postgres that is supported.

_VERSION = f"SELECT version_num FROM {SCHEMA}.alembic_version"


def migrate(database: Database, connection: Connection) -> None:
    """Create or update the tables; only for the owner of the store.

    Raises:
        errors.ConfigurationError: `store_newer` or `store_unusable`.
    """
    _check_server(database, connection)
    version = _version_of(connection)
    if version == HEAD:
        return
    if version is not None and version not in _known():
        raise _newer(database, version)
    # The migrations record their version in a table of the schema.
    with connection.transaction():
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    _upgrade(database)


def identity(database: Database, connection: Connection) -> str:
    """Return the identity of a store that is only read.

    Raises:
        errors.ConfigurationError: `store_newer`, or `store_unusable` if it is not of this version.
    """
    _check_server(database, connection)
    version = _version_of(connection)
    if version is not None and version not in _known():
        raise _newer(database, version)
    row = connection.execute(f"SELECT identity FROM {SCHEMA}.store").fetchone() if version == HEAD else None
    if row is None:
        message = f"there is no store of this version in {database.shown} yet; start its service once"
        raise errors.ConfigurationError(message, code="store_unusable")
    return str(row[0])


def holder(connection: Connection) -> dict[str, Any]:
    """Return the last owner of the store: `pid`, `host`, `since`, `shared`; empty if unknown."""
    if _version_of(connection) is None:
        return {}
    row = connection.execute(f"SELECT holder FROM {SCHEMA}.store").fetchone()
    known = json.loads(row[0]) if row is not None and row[0] else {}
    return {name: known.get(name) for name in ("pid", "host", "since", "shared")}


def refused(database: Database, error: psycopg.Error) -> errors.ConfigurationError:
    """Return the error for a store that cannot be opened: `store_away` if it may be reachable later."""
    if is_standby(error):
        return errors.ConfigurationError(standby(database.shown), code="store_away")
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    # A server that answers reports a refusal with FATAL. Only while it starts, stops or is full does that count as
    # away.
    answered = error.sqlstate is not None or "FATAL" in reason
    away = (
        not answered
        or is_broken_off(error)
        or any(
            words in reason for words in ("starting up", "shutting down", "recovery", "too many", "connection slots")
        )
    )
    what = "cannot be reached" if away else "cannot be used"
    message = f"the store {database.shown} {what}: {reason}; CONTROL_ROOM_STORE_URL names it"
    return errors.ConfigurationError(message, code="store_away" if away else "store_unusable")


def _check_server(database: Database, connection: Connection) -> None:
    version = connection.info.server_version // 10000
    if version < OLDEST_SERVER:
        message = f"the store {database.shown} is on Postgres {version}; version {OLDEST_SERVER} or later is needed"
        raise errors.ConfigurationError(message, code="store_unusable")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        message = f"the database {database.shown} has the encoding {encoding}; create one with UTF8"
        raise errors.ConfigurationError(message, code="store_unusable")


def _version_of(connection: Connection) -> str | None:
    row = connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.alembic_version",)).fetchone()
    if row is None or row[0] is None:
        return None
    version = connection.execute(_VERSION).fetchone()
    return None if version is None else str(version[0])


def _newer(database: Database, version: str) -> errors.ConfigurationError:
    message = (
        f"the store {database.shown} has tables of a later version ({version}); this is Control Room {app.__version__}."
        " Use the version that wrote it, or a copy of the database from before that upgrade"
    )
    return errors.ConfigurationError(message, code="store_newer", detail={"found": version, "known": HEAD})


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(_folder())).walk_revisions()}


def _upgrade(database: Database) -> None:
    from alembic import command
    from alembic.config import Config

    from app.storage.index.sql import sessions

    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    engine = sessions.connect(database.url)
    try:
        with sessions.writing(engine) as session:
            config.attributes["connection"] = session.connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def _folder() -> Any:
    return resources.bundled("migrations", "store")
