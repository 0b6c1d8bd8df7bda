"""Issues have a severity and the recipe that found them: lists filter by both."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261123_issue_severity"
down_revision = "20261123_receipts_in_order"
branch_labels = None
depends_on = None

_COLUMN = {"severity": "severity", "recipe": "recipe_id"}


def upgrade() -> None:
    """Add columns and indexes; all rows are marked, so that a start reads their files."""
    for name, column in _COLUMN.items():
        op.add_column("issues", sa.Column(column, sa.String(), nullable=True))
        op.create_index(f"ix_issues_{name}", "issues", [column, "created_at", "issue_id"])
    op.execute(sa.text("UPDATE issues SET marked = true"))


def downgrade() -> None:
    """Leave what the tables before had."""
    for name, column in _COLUMN.items():
        op.drop_index(f"ix_issues_{name}", "issues")
        op.drop_column("issues", column)
