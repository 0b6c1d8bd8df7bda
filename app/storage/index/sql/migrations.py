"""Migrations: bring a database up to the tables of this version."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, inspect, text

from app import resources
from app.storage.index.sql.sessions import writing

HEAD = "20261126_pins_of_runs"  # Newest migration; a test compares it with the folder `migrations/`.

NEW = "sqlite.sql"
"""What makes the tables of a new SQLite file; `scripts/publish_index.py` writes it from the migrations."""

_NOTE_VERSION = text("INSERT INTO alembic_version VALUES (:version)")
_DATE_LABELS = text(
    "UPDATE run_labels SET created_at = (SELECT created_at FROM runs WHERE runs.run_id = run_labels.run_id)"
    " WHERE created_at IS NULL"
)
"""Dates the labels that the release before has written since it was last this one's turn."""


def migrate(engine: Engine) -> bool:
    """Bring the tables up to date, and return whether there were none.

    A database of a later version is left as it is: migrations only add until the version after them is gone. Alembic
    is loaded only where tables of an earlier version are to be changed.
    """
    with writing(engine) as session:
        connection = session.connection
        found = _version(connection)
        if found is None and connection.dialect.name == "sqlite":
            _create(connection)
        elif found is None or (found != HEAD and found in _known()):
            upgrade(connection)
        elif found == HEAD:
            connection.execute(_DATE_LABELS)
        return found is None


def statements_of(connection: Connection) -> str:
    """Return the statements that make the tables of an SQLite file."""
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


def _create(connection: Connection) -> None:
    for statement in (resources.bundled("migrations") / NEW).read_text(encoding="utf-8").split(";\n\n")[:-1]:
        connection.exec_driver_sql(statement)
    connection.execute(_NOTE_VERSION, {"version": HEAD})


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(resources.bundled("migrations"))).walk_revisions()}
