"""Leases: which process of several writes a run now, and the number that fences those that had it before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126_leases"
down_revision = "20261123_first_store"
branch_labels = None
depends_on = None

SCHEMA = "control_room"


def upgrade() -> None:
    """Add the lease of a run to its row."""
    op.add_column("runs", sa.Column("lease", sa.BigInteger(), nullable=False, server_default="0"), schema=SCHEMA)
    op.add_column("runs", sa.Column("holder", sa.BigInteger()), schema=SCHEMA)
    op.add_column("runs", sa.Column("held_until", sa.DateTime(timezone=True)), schema=SCHEMA)
    op.create_check_constraint("runs_held", "runs", "(holder IS NULL) = (held_until IS NULL)", schema=SCHEMA)


def downgrade() -> None:
    """Drop it."""
    op.drop_constraint("runs_held", "runs", schema=SCHEMA)
    for column in ("held_until", "holder", "lease"):
        op.drop_column("runs", column, schema=SCHEMA)
