"""Indexes in the order of the lists, for each filter; labels know when their run was accepted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_lists_in_order"
down_revision = "20261121_first_index"
branch_labels = None
depends_on = None

_NEWEST = ["created_at", "run_id"]
_UNDATED = "created_at IS NULL"


def upgrade() -> None:
    """Make every index of a list end with its order."""
    op.create_index("ix_runs_status", "runs", ["status", *_NEWEST])
    op.create_index("ix_runs_recipe_status", "runs", ["recipe_id", "status", *_NEWEST])
    op.drop_index("ix_runs_recipe", "runs")
    op.create_index("ix_runs_recipe", "runs", ["recipe_id", *_NEWEST])
    op.add_column("run_labels", sa.Column("created_at", sa.String(24), nullable=True))
    op.execute("UPDATE run_labels SET created_at = (SELECT created_at FROM runs WHERE runs.run_id = run_labels.run_id)")
    op.drop_index("ix_run_labels_value", "run_labels")
    op.create_index("ix_run_labels_value", "run_labels", ["name", "value", *_NEWEST])
    where = sa.text(_UNDATED)
    op.create_index("ix_run_labels_undated", "run_labels", ["run_id"], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """Leave what the first tables had."""
    op.drop_index("ix_run_labels_undated", "run_labels")
    op.drop_index("ix_run_labels_value", "run_labels")
    op.create_index("ix_run_labels_value", "run_labels", ["name", "value"])
    op.drop_column("run_labels", "created_at")
    op.drop_index("ix_runs_recipe", "runs")
    op.create_index("ix_runs_recipe", "runs", ["recipe_id", "created_at"])
    op.drop_index("ix_runs_recipe_status", "runs")
    op.drop_index("ix_runs_status", "runs")
