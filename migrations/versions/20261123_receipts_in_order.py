"""Receipts can be listed by run and by session: an index for each, in the order of lists."""

from __future__ import annotations

from alembic import op

revision = "20261123_receipts_in_order"
down_revision = "20261122_runs_of_sessions"
branch_labels = None
depends_on = None

_ORDER = ["session_id", "offset_bytes"]


def upgrade() -> None:
    """Add the indexes."""
    op.create_index("ix_receipts_session", "receipts", _ORDER)
    op.create_index("ix_receipts_run", "receipts", ["run_id", *_ORDER])


def downgrade() -> None:
    """Leave what the tables before had."""
    for name in ("run", "session"):
        op.drop_index(f"ix_receipts_{name}", "receipts")
