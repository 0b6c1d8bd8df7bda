"""Rows of runs show their pins, and the orders that made session plans are listed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126_pins_of_runs"
down_revision = "20261126_orders_to_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; pins of earlier releases are read from their folders behind the next start."""
    op.add_column("runs", sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE runs SET counted = FALSE")


def downgrade() -> None:
    """Leave what the table before had."""
    op.drop_column("runs", "pinned")
