"""Receipts as lists show them, and which of them are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain import plain

_LISTED = ("receipt_id", "session_id", "run_id", "key", "tool", "sha256", "started_at", "completed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptQuery:
    """Which receipts a list shows: those of a session in the order in which they were written."""

    run_id: str | None = None
    """Only receipts of this run, which may be deleted."""
    session_id: str | None = None
    """Only receipts of this work session."""
    limit: int = 100
    """Most receipts to return, 1 to 1,000."""
    cursor: tuple[str, int] | None = None
    """`(session_id, offset_bytes)` of the last receipt of the page before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedReceipt:
    """A receipt without its arguments and payload."""

    facts: Mapping[str, plain.Json]
    """What lists show."""
    position: tuple[str, int]
    """Its place in the order of lists, for cursors."""


def listed(receipt: Mapping[str, Any], position: tuple[str, int]) -> ListedReceipt:
    """Return a receipt as lists show it."""
    facts = {name: receipt.get(name) for name in _LISTED} | {"failed": receipt.get("error") is not None}
    return ListedReceipt(facts=facts, position=position)
