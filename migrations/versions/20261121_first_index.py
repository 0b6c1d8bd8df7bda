"""The first tables: runs, their labels, receipts and issues."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261121_first_index"
down_revision = None
branch_labels = None
depends_on = None

_STATES = "'pending', 'running', 'waiting', 'paused', 'done', 'failed', 'cancelled'"
_FINISHED = "'done', 'failed', 'cancelled'"
_UNFINISHED = f"status NOT IN ({_FINISHED})"


def upgrade() -> None:
    """Make the tables."""
    _add_runs()
    op.create_table(
        "run_labels",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name"),
    )
    op.create_index("ix_run_labels_value", "run_labels", ["name", "value"])
    op.create_table(
        "receipts",
        sa.Column("receipt_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("offset_bytes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("receipt_id"),
    )
    op.create_table(
        "issues",
        sa.Column("issue_id", sa.String(200), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=True),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("issue_id"),
    )
    op.create_index("ix_issues_run", "issues", ["run_id"])


def downgrade() -> None:
    """Remove the tables; the folders hold everything."""
    for table in ("issues", "receipts", "run_labels", "runs"):
        op.drop_table(table)


def _add_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("recipe_id", sa.String(), nullable=False),
        sa.Column("dialect", sa.String(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.String(24), nullable=False),
        sa.Column("updated_at", sa.String(24), nullable=False),
        sa.Column("completed_at", sa.String(24), nullable=True),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("parent_run_id", sa.String(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("owner", sa.String(8), nullable=False),
        sa.Column("working_dir", sa.String(), nullable=False),
        sa.Column("exclusive_workspace", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("request_sha256", sa.String(), nullable=True),
        sa.CheckConstraint(f"status IN ({_STATES})", name="ck_runs_status"),
        sa.CheckConstraint(f"(status IN ({_FINISHED})) = (completed_at IS NOT NULL)", name="ck_runs_completed"),
        sa.CheckConstraint("owner IN ('service', 'process', 'foreign')", name="ck_runs_owner"),
        sa.CheckConstraint("priority BETWEEN -100 AND 100", name="ck_runs_priority"),
        sa.PrimaryKeyConstraint("run_id"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_runs_newest", "runs", ["created_at", "run_id"])
    op.create_index("ix_runs_recipe", "runs", ["recipe_id", "created_at"])
    op.create_index("ix_runs_parent", "runs", ["parent_run_id"])
    op.create_index(
        "ix_runs_unfinished",
        "runs",
        ["created_at", "run_id"],
        sqlite_where=sa.text(_UNFINISHED),
        postgresql_where=sa.text(_UNFINISHED),
    )
