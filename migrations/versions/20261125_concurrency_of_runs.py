"""Rows of runs show their concurrency key."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "20261125_concurrency_of_runs"
down_revision = "20261125_estimates_of_usage"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, Any] = {
    "concurrency_key": sa.String(),
    "concurrency_limit": sa.Integer(),
    "concurrency_policy": sa.String(16),
}


def upgrade() -> None:
    """Add the columns; runs of earlier releases have no key."""
    for name, kind in _COLUMNS.items():
        op.add_column("runs", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    """Leave what the table before had."""
    for name in reversed(_COLUMNS):
        op.drop_column("runs", name)
