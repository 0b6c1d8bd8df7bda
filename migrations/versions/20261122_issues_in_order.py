"""Issues can be listed: what lists show and filter by, each filter with an index in their order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_issues_in_order"
down_revision = "20261122_lists_in_order"
branch_labels = None
depends_on = None

_NEWEST = ["created_at", "issue_id"]
_FILTERS = ("status", "run", "session", "kind")
_COLUMN = {"status": "status", "run": "run_id", "session": "session_id", "kind": "kind"}


def upgrade() -> None:
    """Add the columns; rows of the release before are marked, so that a start reads their files."""
    for name, kind in (("session_id", sa.String()), ("kind", sa.String()), ("key", sa.String())):
        op.add_column("issues", sa.Column(name, kind, nullable=True))
    op.add_column("issues", sa.Column("updated_at", sa.String(24), nullable=True))
    op.add_column("issues", sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("issues", sa.Column("marked", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.drop_index("ix_issues_run", "issues")
    op.create_index("ix_issues_newest", "issues", _NEWEST)
    for name in _FILTERS:
        op.create_index(f"ix_issues_{name}", "issues", [_COLUMN[name], *_NEWEST])


def downgrade() -> None:
    """Leave what the tables before had."""
    for name in (*_FILTERS, "newest"):
        op.drop_index(f"ix_issues_{name}", "issues")
    op.create_index("ix_issues_run", "issues", ["run_id"])
    for name in ("marked", "revision", "updated_at", "key", "kind", "session_id"):
        op.drop_column("issues", name)
