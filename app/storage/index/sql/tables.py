"""Tables of the index, all of whose rows can be rebuilt from the folders.

Instants are texts of one fixed form (`2026-02-10T14:30:00.000Z`), which sort by time in every database.
"""

from __future__ import annotations

from typing import Any

import sqlmodel
from sqlalchemy import BigInteger, CheckConstraint, Index, false, text, true

METADATA = sqlmodel.SQLModel.metadata  # Tables that result from all migrations.

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
        # Lists are newest first. Each of these indexes ends with that order, so that a page is read from its first row
        # on.
        Index("ix_runs_newest", "created_at", "run_id"),
        Index("ix_runs_status", "status", "created_at", "run_id"),
        Index("ix_runs_recipe", "recipe_id", "created_at", "run_id"),
        Index("ix_runs_recipe_status", "recipe_id", "status", "created_at", "run_id"),
        Index("ix_runs_ended", "status", "completed_at"),
        Index("ix_runs_parent", "parent_run_id"),
        Index("ix_runs_session", "session_id", "created_at", "run_id"),
        # Recovery queries the unfinished runs at every start, and they are few among many.
        Index(
            "ix_runs_unfinished",
            "created_at",
            "run_id",
            sqlite_where=text(_UNFINISHED),
            postgresql_where=text(_UNFINISHED),
        ),
        # Rows that the previous release wrote. A service counts them, after which there are none.
        Index(
            "ix_runs_uncounted",
            "created_at",
            "run_id",
            sqlite_where=text(_UNCOUNTED),
            postgresql_where=text(_UNCOUNTED),
        ),
    )

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64)  # Name of its folder.
    recipe_id: str  # Recipe that the run executes.
    dialect: str  # Language of the recipe.
    status: str = sqlmodel.Field(max_length=16)  # State; errs only towards unfinished.
    created_at: str = sqlmodel.Field(max_length=24)  # Time at which the run was accepted.
    updated_at: str = sqlmodel.Field(max_length=24)  # Time of its last move.
    completed_at: str | None = sqlmodel.Field(default=None, max_length=24)
    """Time at which the run ended; set if and only if it is finished."""
    description: str  # Its task, as text.
    priority: int  # -100 to 100; a higher priority starts first.
    session_id: str  # Work session that its receipts belong to.
    parent_run_id: str | None = None  # Run that started it.
    error_code: str | None = None  # Code of the error of a failed or parked run.
    owner: str = sqlmodel.Field(max_length=8)  # Owner that continues the run.
    working_dir: str  # Workspace.
    exclusive_workspace: bool  # Whether no other run may use the workspace meanwhile.
    idempotency_key: str | None = sqlmodel.Field(default=None, unique=True)
    """Key that finds the run of a repeated request."""
    request_sha256: str | None = None  # Hash of the request that started the run.
    started_at: str | None = sqlmodel.Field(default=None, max_length=24)
    """Time at which a process first took up the run."""
    reason: str | None = None  # Why a paused run is paused.
    input_tokens: int | None = sqlmodel.Field(default=None, sa_type=BigInteger)  # Tokens read.
    output_tokens: int | None = sqlmodel.Field(default=None, sa_type=BigInteger)  # Tokens written.
    cost_usd: float | None = None  # Sum of the reported prices.
    cost_estimated_usd: float | None = None  # Sum of the estimates for calls without a reported price.
    search: str | None = None  # Text for searches, case-folded.
    concurrency_key: str | None = None  # Key that limits how many runs are under way at a time.
    concurrency_limit: int | None = None  # That limit.
    concurrency_policy: str | None = sqlmodel.Field(default=None, max_length=16)
    """What happens when the limit is reached."""
    pinned: bool = sqlmodel.Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether retention keeps the run."""
    counted: bool = sqlmodel.Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether the columns since `started_at` are known; the previous release does not write them."""


class RunUsageRow(sqlmodel.SQLModel, table=True):
    """Usage of a run's calls of one agent with one model in one period."""

    __tablename__ = "run_usage"
    __table_args__: Any = (Index("ix_run_usage_quarter", "quarter"),)

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64)
    """Run; no foreign key, since a rewritten row keeps its sums."""
    quarter: str = sqlmodel.Field(primary_key=True, max_length=24)  # Start of the period.
    agent_id: str = sqlmodel.Field(primary_key=True)  # Agent; empty if the journal names none.
    model: str = sqlmodel.Field(primary_key=True)
    """Model or tier as requested; empty for the backend's default."""
    calls: int  # Calls that reported their usage.
    input_tokens: int = sqlmodel.Field(sa_type=BigInteger)  # Tokens read.
    output_tokens: int = sqlmodel.Field(sa_type=BigInteger)  # Tokens written.
    cost_usd: float | None = None  # Sum of the reported prices.
    calls_without_price: int  # Calls without a reported price.
    cost_estimated_usd: float | None = None  # Sum of the estimates for the calls without a price.
    calls_silent: int = sqlmodel.Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Further calls, which did not report their usage, including interrupted ones."""
    tokens_reserved: int = sqlmodel.Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    """Tokens that were reserved for interrupted calls."""
    cost_reserved_usd: float = sqlmodel.Field(default=0.0, sa_column_kwargs={"server_default": text("0")})
    """Price that was reserved for interrupted calls."""


class RunOrderRow(sqlmodel.SQLModel, table=True):
    """One order to a run, from a line of its journal."""

    __tablename__ = "run_orders"
    __table_args__: Any = (
        Index("ix_run_orders_newest", "at", "run_id", "file", "line"),
        Index("ix_run_orders_author", "author_name", "at", "run_id", "file", "line"),
    )

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64)
    """Run that the order belongs to; no foreign key, since a rewritten row keeps its orders."""
    target: str  # Target of the order: the run, or the session of a plan.
    file: str = sqlmodel.Field(primary_key=True, max_length=16)  # File of the run that contains the order.
    line: int = sqlmodel.Field(primary_key=True)  # Number of the order's line.
    at: str = sqlmodel.Field(max_length=24)  # Time of the order.
    action: str  # Action that was ordered.
    author: str  # Author of the order, as JSON.
    details: str  # Details, as JSON.
    author_name: str | None = None  # Name of the author.


class RunLabelRow(sqlmodel.SQLModel, table=True):
    """One label of a run."""

    __tablename__ = "run_labels"
    __table_args__: Any = (
        Index("ix_run_labels_value", "name", "value", "created_at", "run_id"),
        # Labels that the previous release wrote. A start dates them, after which there are none.
        Index("ix_run_labels_undated", "run_id", sqlite_where=text(_UNDATED), postgresql_where=text(_UNDATED)),
    )

    run_id: str = sqlmodel.Field(primary_key=True, max_length=64, foreign_key="runs.run_id", ondelete="CASCADE")
    """Run that has the label."""
    name: str = sqlmodel.Field(primary_key=True)  # Name of the label.
    value: str  # Value of the label.
    created_at: str | None = sqlmodel.Field(default=None, max_length=24)
    """Time at which the run was accepted, so that the runs of a label can be read in the order of a list."""


class ReceiptRow(sqlmodel.SQLModel, table=True):
    """Position of one receipt; it outlives its run."""

    __tablename__ = "receipts"
    __table_args__: Any = (
        Index("ix_receipts_session", "session_id", "offset_bytes"),
        Index("ix_receipts_run", "run_id", "session_id", "offset_bytes"),
    )

    receipt_id: str = sqlmodel.Field(primary_key=True, max_length=64)  # The receipt.
    session_id: str  # Work session whose file contains the receipt.
    run_id: str = sqlmodel.Field(max_length=64)  # Run whose step the receipt proves.
    offset_bytes: int  # Offset of its line in that file.


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

    issue_id: str = sqlmodel.Field(primary_key=True, max_length=200)  # Id of the issue, which names its file.
    run_id: str | None = sqlmodel.Field(default=None, max_length=64)  # Run that opened the issue or that it is about.
    title: str  # One line.
    status: str  # `open` or `closed`.
    created_at: str | None = None  # Time at which the issue was opened.
    session_id: str | None = None  # Work session that it belongs to.
    kind: str | None = None  # Kind of the issue.
    severity: str | None = None  # Severity of the issue.
    recipe_id: str | None = None  # Recipe whose check found it.
    key: str | None = None  # Key of the step that opened the issue.
    updated_at: str | None = sqlmodel.Field(default=None, max_length=24)  # Time of the last change.
    revision: int = sqlmodel.Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Number of its changes."""
    marked: bool = sqlmodel.Field(default=True, sa_column_kwargs={"server_default": true()})
    """Whether the file may differ from the row, as for rows of the previous release, so that a start reads it."""
