"""Migrations: bring a database up to the tables of this version."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, inspect, text

from app import resources
from app.storage.index.sql.sessions import writing

HEAD = "20261125_concurrency_of_runs"
"""Newest migration; a test compares it with the folder `migrations/`."""

_DATE_LABELS = text(
    "UPDATE run_labels SET created_at = (SELECT created_at FROM runs WHERE runs.run_id = run_labels.run_id)"
    " WHERE created_at IS NULL"
)
"""Dates the labels that the release before has written since it was last this one's turn."""


def migrate(engine: Engine) -> bool:
    """Bring the tables up to date, and return whether there were none.

    A database of a later version is left as it is: migrations only add until the version after them is gone. Alembic
    is loaded only where there is something to do.
    """
    with writing(engine) as session:
        connection = session.connection
        found = _version(connection)
        if found is None or (found != HEAD and found in _known()):
            _upgrade(connection)
        elif found == HEAD:
            connection.execute(_DATE_LABELS)
        return found is None


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(resources.bundled("migrations"))).walk_revisions()}


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resources.bundled("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
