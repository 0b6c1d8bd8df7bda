"""Tables of the index. Everything in them can be made again from the folders.

Instants are texts of one fixed form (`2026-02-10T14:30:00.000Z`), which sort as times do in every database.
"""

from __future__ import annotations

from typing import Any

import sqlmodel
from sqlalchemy import BigInteger, CheckConstraint, Index, false, text, true

METADATA = sqlmodel.SQLModel.metadata  # What the migrations lead to.

_STATES = "'pending', 'running', 'waiting', 'paused', 'done', 'failed', 'cancelled'"
_FINISHED = "'done', 'failed', 'cancelled'"
_UNFINISHED = f"status NOT IN ({_FINISHED})"
_UNDATED = "created_at IS NULL"
_UNCOUNTED = "NOT counted"


class RunRow(sqlmodel.SQLModel, table=True):
    """One run."""

    __tablename__ = "runs"
    __table_args__: Any = (
        CheckConstraint(f"status IN ({_STATES})", name="ck_runs_status"),
        CheckConstraint(f"(status IN ({_FINISHED})) = (completed_at IS NOT NULL)", name="ck_runs_completed"),
        CheckConstraint("owner IN ('service', 'process', 'foreign')", name="ck_runs_owner"),
        CheckConstraint("priority BETWEEN -100 AND 100", name="ck_runs_priority"),
        # Lists come newest first: each of these ends with that order, so that a page is read where it begins.
        Index("ix_runs_newest", "created_at", "run_id"),
        Index("ix_runs_status", "status", "created_at", "run_id"),
        Index("ix_runs_recipe", "recipe_id", "created_at", "run_id"),
        Index("ix_runs_recipe_status", "recipe_id", "status", "created_at", "run_id"),
        Index("ix_runs_ended", "status", "completed_at"),
        Index("ix_runs_parent", "parent_run_id"),
        Index("ix_runs_session", "session_id", "created_at", "run_id"),
        # Recovery asks for these at every start, and they are few among many.
        Index(
            "ix_runs_unfinished",
            "created_at",
            "run_id",
            sqlite_where=text(_UNFINISHED),
            postgresql_where=text(_UNFINISHED),
        ),
        # Those that the release before has written; a service counts them, and there are none of them then.
        Index(
            "ix_runs_uncounted",
            "created_at",
            "run_id",
            sqlite_where=text(_UNCOUNTED),
            postgresql_where=text(_UNCOUNTED),
        ),
    )

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64)  # Name of its folder.
    recipe_id: str  # Recipe it executes.
    dialect: str  # Language of the recipe.
    status: str = sqlmodel.Field(max_length=16)  # Where it stands; errs only towards unfinished.
    created_at: str = sqlmodel.Field(max_length=24)  # When it was accepted.
    updated_at: str = sqlmodel.Field(max_length=24)  # When it last moved.
    completed_at: str | None = sqlmodel.Field(default=None, max_length=24)
    """When it ended; set if and only if it is finished."""
    description: str  # Its task, as text.
    priority: int  # -100 to 100; higher goes first.
    session_id: str  # Work session that its receipts belong to.
    parent_run_id: str | None = None  # Run that started it.
    error_code: str | None = None  # Code of the error of a failed or parked run.
    owner: str = sqlmodel.Field(max_length=8)  # Who continues it.
    working_dir: str  # Workspace.
    exclusive_workspace: bool  # Whether it holds its workspace alone.
    idempotency_key: str | None = sqlmodel.Field(default=None, unique=True)
    """Key under which a repeated request finds it."""
    request_sha256: str | None = None  # Hash of the request that made it.
    started_at: str | None = sqlmodel.Field(default=None, max_length=24)
    """When a process took it up for the first time."""
    reason: str | None = None  # Why a paused run rests.
    input_tokens: int | None = sqlmodel.Field(default=None, sa_type=BigInteger)  # Tokens read.
    output_tokens: int | None = sqlmodel.Field(default=None, sa_type=BigInteger)  # Tokens written.
    cost_usd: float | None = None  # Sum of the reported prices.
    cost_estimated_usd: float | None = None  # Sum of the estimates for calls without a reported price.
    search: str | None = None  # What searches look through, folded.
    concurrency_key: str | None = None  # Key that limits how many runs of it are under way.
    concurrency_limit: int | None = None  # How many those are.
    concurrency_policy: str | None = sqlmodel.Field(default=None, max_length=16)
    """What happens at that limit."""
    pinned: bool = sqlmodel.Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether it is never pruned."""
    counted: bool = sqlmodel.Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether the columns since `started_at` are known; the release before does not write them."""


class RunUsageRow(sqlmodel.SQLModel, table=True):
    """What calls of one agent with one model cost a run in one period."""

    __tablename__ = "run_usage"
    __table_args__: Any = (Index("ix_run_usage_quarter", "quarter"),)

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64)
    """Run; no foreign key, since a row that is written anew keeps its sums."""
    quarter: str = sqlmodel.Field(primary_key=True, max_length=24)  # Instant at which the period begins.
    agent_id: str = sqlmodel.Field(primary_key=True)  # Agent; empty where the journal names none.
    model: str = sqlmodel.Field(primary_key=True)
    """Model or tier as it was asked for; empty for the backend's default."""
    calls: int  # Calls that reported their usage.
    input_tokens: int = sqlmodel.Field(sa_type=BigInteger)  # Tokens read.
    output_tokens: int = sqlmodel.Field(sa_type=BigInteger)  # Tokens written.
    cost_usd: float | None = None  # Sum of the reported prices.
    calls_without_price: int  # Calls without a reported price.
    cost_estimated_usd: float | None = None  # Sum of the estimates for those.
    calls_silent: int = sqlmodel.Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Further calls, which reported nothing; those that were cut off among them."""
    tokens_reserved: int = sqlmodel.Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    """Tokens that were reserved for calls that were cut off."""
    cost_reserved_usd: float = sqlmodel.Field(default=0.0, sa_column_kwargs={"server_default": text("0")})
    """Price that was reserved for them."""


class RunOrderRow(sqlmodel.SQLModel, table=True):
    """One order to a run, as a line of its journal has it."""

    __tablename__ = "run_orders"
    __table_args__: Any = (
        Index("ix_run_orders_newest", "at", "run_id", "file", "line"),
        Index("ix_run_orders_author", "author_name", "at", "run_id", "file", "line"),
    )

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64)
    """Run that it was given to; no foreign key, since a row that is written anew keeps its orders."""
    target: str  # What it was about: the run, or the session of a plan.
    file: str = sqlmodel.Field(primary_key=True, max_length=16)  # File of the run that holds it.
    line: int = sqlmodel.Field(primary_key=True)  # Number of its line.
    at: str = sqlmodel.Field(max_length=24)  # When it was given.
    action: str  # What was ordered.
    author: str  # Who gave it, as JSON.
    details: str  # More about it, as JSON.
    author_name: str | None = None  # Name of who gave it.


class RunLabelRow(sqlmodel.SQLModel, table=True):
    """One label of a run."""

    __tablename__ = "run_labels"
    __table_args__: Any = (
        Index("ix_run_labels_value", "name", "value", "created_at", "run_id"),
        # Those that the release before has written; a start dates them, and there are none of them then.
        Index("ix_run_labels_undated", "run_id", sqlite_where=text(_UNDATED), postgresql_where=text(_UNDATED)),
    )

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64, foreign_key="runs.run_id", ondelete="CASCADE")
    """Run that carries it."""
    name: str = sqlmodel.Field(primary_key=True)  # Its name.
    value: str  # Its value.
    created_at: str | None = sqlmodel.Field(default=None, max_length=24)
    """When its run was accepted, so that the runs of a label are found in the order of a list."""


class ReceiptRow(sqlmodel.SQLModel, table=True):
    """Position of one receipt; it outlives its run."""

    __tablename__ = "receipts"
    __table_args__: Any = (
        Index("ix_receipts_session", "session_id", "offset_bytes"),
        Index("ix_receipts_run", "run_id", "session_id", "offset_bytes"),
    )

    receipt_id: str = sqlmodel.Field(primary_key=True, max_length=64)  # The receipt.
    session_id: str  # Work session whose file holds it.
    run_id: str = sqlmodel.Field(max_length=64)  # Run that it proves a step of.
    offset_bytes: int  # Where its line begins in that file.


class IssueRow(sqlmodel.SQLModel, table=True):
    """One issue."""

    __tablename__ = "issues"
    __table_args__: Any = (
        Index("ix_issues_newest", "created_at", "issue_id"),
        Index("ix_issues_status", "status", "created_at", "issue_id"),
        Index("ix_issues_run", "run_id", "created_at", "issue_id"),
        Index("ix_issues_session", "session_id", "created_at", "issue_id"),
        Index("ix_issues_kind", "kind", "created_at", "issue_id"),
        Index("ix_issues_severity", "severity", "created_at", "issue_id"),
        Index("ix_issues_recipe", "recipe_id", "created_at", "issue_id"),
    )

    issue_id: str = sqlmodel.Field(primary_key=True, max_length=200)  # Its id; names its file.
    run_id: str | None = sqlmodel.Field(default=None, max_length=64)  # Run that made it, or that it is about.
    title: str  # One line.
    status: str  # `open` or `closed`.
    created_at: str | None = None  # When it was made.
    session_id: str | None = None  # Work session that it belongs to.
    kind: str | None = None  # What sort of issue it is.
    severity: str | None = None  # How bad it is.
    recipe_id: str | None = None  # Recipe whose check found it.
    key: str | None = None  # Step that made it.
    updated_at: str | None = sqlmodel.Field(default=None, max_length=24)  # When it was last changed.
    revision: int = sqlmodel.Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Number of its changes."""
    marked: bool = sqlmodel.Field(default=True, sa_column_kwargs={"server_default": true()})
    """Whether its file may say something else, as that of the release before does, so that a start reads it."""
