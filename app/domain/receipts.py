"""Receipts: proofs of tool executions, as they are stored and listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

from app.domain import plain, shapes
from app.domain.access import Scope

_LISTED = ("receipt_id", "session_id", "run_id", "key", "tool", "sha256", "started_at", "completed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptQuery:
    """Selects the receipts of a list: those of a session in the order in which they were written."""

    run_id: str | None = None  # Only receipts of this run, which may be deleted.
    session_id: str | None = None  # Only receipts of this work session.
    scope: Scope | None = None  # Only receipts of runs of this scope that still exist; None: of any.
    limit: int = 100  # Most receipts to return, 1 to 1,000.
    cursor: tuple[str, int] | None = None
    """`(session_id, offset_bytes)` of the last receipt of the previous page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedReceipt(shapes.Shape):
    """A receipt without its arguments and payload."""

    published_as: ClassVar[str] = "ReceiptListed"

    receipt_id: str  # Id of the receipt.
    session_id: str  # Work session of the receipt.
    run_id: str  # Run that executed the tool.
    key: str | None  # Step that it proves.
    tool: str | None  # Tool that was executed.
    sha256: str | None  # Hash of the payload; None if the tool failed.
    started_at: shapes.Instant | None  # When the execution began.
    completed_at: shapes.Instant | None  # When the execution ended.
    failed: bool  # Whether the tool failed.
    position: tuple[str, int] = shapes.internal()  # Place in the order of lists, for cursors.


@shapes.open_ended
class Receipt(TypedDict):
    """Proof of a tool execution."""

    receipt_id: str  # Id of the receipt.
    session_id: str  # Work session of the receipt.
    run_id: str  # Run that executed the tool.
    key: str  # Step that it proves.
    tool: str | None  # Tool that was executed.
    args: plain.Json  # Arguments of the tool.
    payload: plain.Json  # Result of the tool.
    sha256: str | None  # Hash of the payload; None if the tool failed.
    started_at: shapes.Instant  # When the execution began.
    completed_at: shapes.Instant  # When it ended.
    intact: bool
    """Whether it matches the journal of its run or, if the run was deleted, its own hash."""
    alteration: str | None  # What differs; None if it is intact.


def listed(receipt: Mapping[str, Any], position: tuple[str, int]) -> ListedReceipt:
    """Return a receipt as lists show it."""
    facts: dict[str, Any] = {name: receipt.get(name) for name in _LISTED}
    return ListedReceipt(**facts, failed=receipt.get("error") is not None, position=position)
