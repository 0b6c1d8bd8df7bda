"""Migrations: bring a database up to the tables of this version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import resources

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from app.storage.index.sql import sessions

HEAD = "20261126_pins_of_runs"  # Newest migration; a test compares it with the folder `migrations/`.

NEW = "sqlite.sql"
"""File with the statements for the tables of a new SQLite file; `scripts/publish_index.py` writes it."""

NOTE_VERSION = "INSERT INTO alembic_version VALUES (:version)"  # Records that a new file has the newest tables.

DATE_LABELS = (
    "UPDATE run_labels SET created_at = (SELECT created_at FROM runs WHERE runs.run_id = run_labels.run_id)"
    " WHERE created_at IS NULL"
)
"""Dates the labels that the previous release has written in the meantime."""


def migrate(engine: Engine) -> bool:
    """Bring the tables up to date, and return whether the database had none.

    A database of a later version is not changed: migrations only add until the version after them is gone. Alembic is
    imported only to change the tables of an earlier version.
    """
    from app.storage.index.sql import sessions

    with sessions.writing(engine) as session:
        connection = session.connection
        version = _version(connection)
        if version is None and connection.dialect.name == "sqlite":
            _create(session)
        elif version is None or (version != HEAD and version in _known()):
            upgrade(connection)
        elif version == HEAD:
            session.execute(DATE_LABELS)
        return version is None


def statements_of(connection: Connection) -> str:
    """Return the statements that make the tables of an SQLite file."""
    from sqlalchemy import text

    made = connection.execute(text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")).scalars()
    return "".join(f"{statement};\n\n" for statement in made)


def upgrade(connection: Connection) -> None:
    """Run the migrations that a database lacks."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resources.bundled("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def statements() -> Sequence[str]:
    """Return the statements that make the tables of a new SQLite file."""
    return (resources.bundled("migrations") / NEW).read_text(encoding="utf-8").split(";\n\n")[:-1]


def _create(session: sessions.WriteSession) -> None:
    for statement in statements():
        session.connection.exec_driver_sql(statement)
    session.execute(NOTE_VERSION, {"version": HEAD})


def _version(connection: Connection) -> str | None:
    from sqlalchemy import inspect, text

    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(resources.bundled("migrations"))).walk_revisions()}
