"""Rows of runs show when they started, why they rest and what they cost; they can be searched, and usage added up."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "20261124_facts_of_runs"
down_revision = "20261123_issue_severity"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, Any] = {
    "started_at": sa.String(24),
    "reason": sa.String(),
    "input_tokens": sa.BigInteger(),
    "output_tokens": sa.BigInteger(),
    "cost_usd": sa.Float(),
    "search": sa.String(),
}


def upgrade() -> None:
    """Add columns and the sums; rows are not counted, so that a service reads their folders behind its start."""
    for name, kind in _COLUMNS.items():
        op.add_column("runs", sa.Column(name, kind, nullable=True))
    op.add_column("runs", sa.Column("counted", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_runs_ended", "runs", ["status", "completed_at"])
    where = sa.text("NOT counted")
    op.create_index("ix_runs_uncounted", "runs", ["created_at", "run_id"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "run_usage",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("quarter", sa.String(24), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("calls_without_price", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "quarter", "agent_id", "model"),
    )
    op.create_index("ix_run_usage_quarter", "run_usage", ["quarter"])


def downgrade() -> None:
    """Leave what the tables before had."""
    op.drop_table("run_usage")
    op.drop_index("ix_runs_uncounted", "runs")
    op.drop_index("ix_runs_ended", "runs")
    for name in ("counted", *reversed(_COLUMNS)):
        op.drop_column("runs", name)
