"""Sums of usage hold estimated prices, calls that reported nothing, and what was reserved for calls cut off."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "20261125_estimates_of_usage"
down_revision = "20261124_facts_of_runs"
branch_labels = None
depends_on = None

_COUNTS: dict[str, Any] = {
    "calls_silent": sa.Integer(),
    "tokens_reserved": sa.BigInteger(),
    "cost_reserved_usd": sa.Float(),
}


def upgrade() -> None:
    """Add the columns; runs of earlier releases have neither estimates nor reservations."""
    for table in ("runs", "run_usage"):
        op.add_column(table, sa.Column("cost_estimated_usd", sa.Float(), nullable=True))
    for name, kind in _COUNTS.items():
        op.add_column("run_usage", sa.Column(name, kind, nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    """Leave what the tables before had."""
    for name in reversed(_COUNTS):
        op.drop_column("run_usage", name)
    for table in ("run_usage", "runs"):
        op.drop_column(table, "cost_estimated_usd")
