"""Orders to runs are listed from the index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126_orders_to_runs"
down_revision = "20261125_concurrency_of_runs"
branch_labels = None
depends_on = None

_PLACE = ["at", "run_id", "file", "line"]


def upgrade() -> None:
    """Add the table; orders to runs of earlier releases are read from their folders behind the next start."""
    op.create_table(
        "run_orders",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("file", sa.String(16), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(24), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("details", sa.String(), nullable=False),
        sa.Column("author_name", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "file", "line"),
    )
    op.create_index("ix_run_orders_newest", "run_orders", _PLACE)
    op.create_index("ix_run_orders_author", "run_orders", ["author_name", *_PLACE])
    op.execute("UPDATE runs SET counted = FALSE")


def downgrade() -> None:
    """Leave what the tables before had."""
    op.drop_table("run_orders")
