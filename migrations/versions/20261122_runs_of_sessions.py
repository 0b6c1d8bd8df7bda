"""Runs of a session can be listed: an index in the order of lists."""

from __future__ import annotations

from alembic import op

revision = "20261122_runs_of_sessions"
down_revision = "20261122_issues_in_order"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    op.create_index("ix_runs_session", "runs", ["session_id", "created_at", "run_id"])


def downgrade() -> None:
    """Leave what the tables before had."""
    op.drop_index("ix_runs_session", "runs")
