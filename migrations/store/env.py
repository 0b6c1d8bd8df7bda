"""Run the migrations of a store on Postgres, on the connection that the program hands over."""

from __future__ import annotations

from alembic import context

SCHEMA = "control_room"

context.configure(connection=context.config.attributes["connection"], version_table_schema=SCHEMA)
context.run_migrations()
