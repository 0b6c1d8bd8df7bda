"""Rows: the only mapping between the tables of the index and their values; a test checks that it is complete."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.domain import issues, plain
from app.domain.authors import RunOrder
from app.domain.records import Usage
from app.domain.usage_sums import UsageSum
from app.engine import stores
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun, ReceiptPlace

SUMMARY = tuple(
    name for name in stores.RunSummary.__slots__ if name not in ("labels", "started_by", "usage", "unreadable")
)
"""Columns of `runs` that a summary shows, in its order; labels and orders have tables, `unreadable` is never stored."""

USAGE = ("input_tokens", "output_tokens", "cost_usd", "cost_estimated_usd")
"""Columns of `runs` with the sums of its usage."""

RUN = (*SUMMARY, *USAGE, "idempotency_key", "request_sha256")  # Columns of `runs` that are read.

WRITTEN = (*RUN, "search", "counted")
"""Columns of `runs` that are written: also the text for searches, and whether this release has written the row."""

SUM = tuple(item.name for item in dataclasses.fields(UsageSum))  # Columns of `run_usage` except the run.
LABEL = ("run_id", "name", "value", "created_at")  # Columns of `run_labels`.
RECEIPT = tuple(item.name for item in dataclasses.fields(ReceiptPlace))  # Columns of `receipts`.

ORDER = tuple(item.name for item in dataclasses.fields(RunOrder))
"""Columns of `run_orders` except `author_name`, which only filters lists."""

ISSUE = tuple(issues.IssueSummary.__slots__)
"""Columns of `issues` except `marked`: the file may differ from a marked row."""


def run_of(row: Sequence[Any], labels: Mapping[str, str], started_by: str | None) -> IndexedRun:
    """Return a run from its columns, its labels, and the author of its start order as JSON."""
    fields = dict(zip(RUN, row, strict=True))
    key, request_sha256 = fields.pop("idempotency_key"), fields.pop("request_sha256")
    usage = Usage(**{name: fields.pop(name) for name in USAGE})
    # SQLite has no boolean type.
    fields |= {name: bool(fields[name]) for name in ("exclusive_workspace", "pinned")}
    starter = None if started_by is None else json.loads(started_by)
    summary = stores.RunSummary(**fields, labels=labels, usage=usage, started_by=starter)
    return IndexedRun(summary=summary, idempotency_key=key, request_sha256=request_sha256)


def run_values(run: IndexedRun) -> dict[str, Any]:
    """Return the columns of a run."""
    values = {name: getattr(run.summary, name) for name in SUMMARY}
    values |= {name: getattr(run.summary.usage, name) for name in USAGE}
    values |= {"idempotency_key": run.idempotency_key, "request_sha256": run.request_sha256}
    return values | {"search": index_port.searched(run.summary), "counted": True}


def sum_values(run_id: str, usage: UsageSum) -> dict[str, Any]:
    """Return the columns of one part of a run's usage."""
    return {"run_id": run_id, **{name: getattr(usage, name) for name in SUM}}


def label_values(run: stores.RunSummary) -> Iterator[dict[str, Any]]:
    """Yield the columns of a run's labels, each with the run's creation time, by which lists are sorted."""
    for name, value in run.labels.items():
        yield {"run_id": run.run_id, "name": name, "value": value, "created_at": run.created_at}


def receipt_of(row: Sequence[Any]) -> ReceiptPlace:
    """Return the position of a receipt from its columns."""
    return ReceiptPlace(**dict(zip(RECEIPT, row, strict=True)))


def receipt_values(place: ReceiptPlace) -> dict[str, Any]:
    """Return the columns of a receipt's position."""
    return {name: getattr(place, name) for name in RECEIPT}


def order_of(row: Sequence[Any]) -> RunOrder:
    """Return an order from its columns."""
    fields = dict(zip(ORDER, row, strict=True))
    return RunOrder(**fields | {name: json.loads(fields[name]) for name in ("author", "details")})


def order_values(order: RunOrder) -> dict[str, Any]:
    """Return the columns of an order."""
    values = {name: getattr(order, name) for name in ORDER} | {"at": index_port.instant(order.at)}
    values |= {name: plain.encode(values[name]).decode() for name in ("author", "details")}
    return values | {"author_name": order.author.get("name")}


def issue_of(row: Sequence[Any]) -> issues.IssueSummary:
    """Return an issue from its columns."""
    return issues.IssueSummary(**dict(zip(ISSUE, row, strict=True)))


def issue_values(issue: issues.IssueSummary) -> dict[str, Any]:
    """Return the columns of an issue, unmarked: the row matches the file."""
    return {name: getattr(issue, name) for name in ISSUE} | {"marked": False}
