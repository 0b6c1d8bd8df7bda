"""Run migrations on the connection that the program hands over."""

from __future__ import annotations

from alembic import context

from app.storage.index.sql import tables

context.configure(
    connection=context.config.attributes["connection"], target_metadata=tables.METADATA, render_as_batch=True
)
context.run_migrations()
