"""The run store: runs, their journals line by line, and every other file as a row with its content in chunks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261123_first_store"
down_revision = None
branch_labels = None
depends_on = None

SCHEMA = "control_room"


def upgrade() -> None:
    """Create the tables; run 0 stands for everything that is not in a run's folder."""
    op.execute(sa.schema.CreateSequence(sa.Sequence("changes", schema=SCHEMA)))
    _create_store()
    _create_runs()
    _create_journals()
    _create_files()
    op.execute(sa.text(f"INSERT INTO {SCHEMA}.runs (id, place, parent, epoch) VALUES (0, '', '', 0)"))
    op.execute(sa.text(f"INSERT INTO {SCHEMA}.store (id, epoch) VALUES (1, 0)"))


def downgrade() -> None:
    """Drop the tables."""
    for table in ("chunks", "files", "lines", "journals", "runs", "store"):
        op.drop_table(table, schema=SCHEMA)
    op.execute(sa.schema.DropSequence(sa.Sequence("changes", schema=SCHEMA)))


def _create_store() -> None:
    op.create_table(
        "store",
        sa.Column("id", sa.Integer(), sa.CheckConstraint("id = 1"), primary_key=True),
        sa.Column("identity", sa.Text()),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text()),
        schema=SCHEMA,
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(start=1), primary_key=True),
        sa.Column("place", sa.Text(collation="C"), nullable=False, unique=True),
        sa.Column("parent", sa.Text(collation="C"), nullable=False, index=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        schema=SCHEMA,
    )


def _create_journals() -> None:
    op.create_table(
        "journals",
        _run(),
        sa.Column("journal", sa.Text(collation="C"), primary_key=True),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text()),
        _version(),
        sa.CheckConstraint("(head IS NULL) = (lines = 0)", name="journals_head"),
        schema=SCHEMA,
    )
    op.create_table(
        "lines",
        sa.Column("run", sa.BigInteger(), primary_key=True),
        sa.Column("journal", sa.Text(collation="C"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("begins_at", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run", "journal"], [f"{SCHEMA}.journals.run", f"{SCHEMA}.journals.journal"], ondelete="CASCADE"
        ),
        schema=SCHEMA,
    )


def _create_files() -> None:
    op.create_table(
        "files",
        _run(),
        sa.Column("folder", sa.Text(collation="C"), primary_key=True),
        sa.Column("name", sa.Text(collation="C"), primary_key=True),
        sa.Column("is_folder", sa.Boolean(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        _version(),
        schema=SCHEMA,
    )
    op.create_table(
        "chunks",
        sa.Column("run", sa.BigInteger(), primary_key=True),
        sa.Column("folder", sa.Text(collation="C"), primary_key=True),
        sa.Column("name", sa.Text(collation="C"), primary_key=True),
        sa.Column("begins_at", sa.BigInteger(), primary_key=True),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run", "folder", "name"],
            [f"{SCHEMA}.files.run", f"{SCHEMA}.files.folder", f"{SCHEMA}.files.name"],
            ondelete="CASCADE",
            onupdate="CASCADE",
        ),
        schema=SCHEMA,
    )


def _run() -> sa.Column[int]:
    runs = sa.ForeignKey(f"{SCHEMA}.runs.id", ondelete="CASCADE")
    return sa.Column("run", sa.BigInteger(), runs, primary_key=True)


def _version() -> sa.Column[int]:
    return sa.Column("version", sa.BigInteger(), nullable=False, server_default=sa.text(f"nextval('{SCHEMA}.changes')"))
