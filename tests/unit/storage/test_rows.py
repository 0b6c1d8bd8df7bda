"""Rows: one mapping writes and reads each column of each table of the index."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import sqlmodel

from app.domain import issues, records, usage_sums
from app.engine import stores
from app.storage.index import index_port, rows
from app.storage.index.sql import tables

STARTER = {"name": "anna", "claimed": False, "via": "key"}
RUN = index_port.IndexedRun(
    summary=stores.RunSummary(
        run_id="run",
        recipe_id="recipe",
        dialect="dialect",
        status="done",
        created_at="2026-02-10T14:30:00.000Z",
        updated_at="2026-02-10T14:30:01.000Z",
        completed_at="2026-02-10T14:30:02.000Z",
        description="description",
        labels={"book": "one", "part": "two"},
        priority=5,
        session_id="session",
        parent_run_id="parent",
        error_code="error",
        owner="process",
        working_dir="/folder",
        exclusive_workspace=True,
        concurrency_key="deploy",
        concurrency_limit=2,
        concurrency_policy="reject",
        started_at="2026-02-10T14:30:00.500Z",
        reason="paused_by_person",
        usage=records.Usage(input_tokens=10, output_tokens=5, cost_usd=0.25),
        pinned=True,
        started_by=STARTER,
    ),
    idempotency_key="key",
    request_sha256="request",
)
SUM = usage_sums.UsageSum(
    quarter="2026-02-10T14:30:00.000Z",
    agent_id="agent",
    model="model",
    calls=3,
    input_tokens=10,
    output_tokens=5,
    cost_usd=0.25,
    calls_without_price=1,
)
RECEIPT = index_port.ReceiptPlace(receipt_id="receipt", session_id="session", run_id="run", offset_bytes=7)
ISSUE = issues.IssueSummary(
    issue_id="issue",
    title="title",
    status="open",
    kind="finding",
    severity="high",
    recipe_id="recipe",
    run_id="run",
    session_id="session",
    key="key",
    created_at="2026-02-10T14:30:00.000Z",
    updated_at="2026-02-10T14:30:01.000Z",
    revision=3,
)


@pytest.mark.parametrize(
    ("table", "written"),
    [
        (tables.RunRow, rows.run_values(RUN)),
        (tables.RunUsageRow, rows.sum_values("run", SUM)),
        (tables.RunLabelRow, next(rows.label_values(RUN.summary))),
        (tables.ReceiptRow, rows.receipt_values(RECEIPT)),
        (tables.IssueRow, rows.issue_values(ISSUE)),
    ],
    ids=["runs", "run_usage", "run_labels", "receipts", "issues"],
)
def test_every_column_is_written(table: type[sqlmodel.SQLModel], written: dict[str, Any]) -> None:
    """Exactly the columns of its table are written of a value."""
    assert set(written) == set(table.model_fields)


def test_every_column_is_read() -> None:
    """A written value is read back with every field."""
    run, receipt, issue = rows.run_values(RUN), rows.receipt_values(RECEIPT), rows.issue_values(ISSUE)
    labels = {label["name"]: label["value"] for label in rows.label_values(RUN.summary)}

    assert rows.run_of([run[name] for name in rows.RUN], labels, json.dumps(STARTER)) == RUN
    assert rows.receipt_of([receipt[name] for name in rows.RECEIPT]) == RECEIPT
    assert rows.issue_of([issue[name] for name in rows.ISSUE]) == ISSUE


@pytest.mark.parametrize("value", [RUN.summary, RECEIPT, ISSUE], ids=["run", "receipt", "issue"])
def test_every_field_is_tried(value: Any) -> None:
    """The values above have no field at its default, so that a missing column would be noticed."""
    optional = (field for field in dataclasses.fields(value) if field.name != "unreadable")

    assert all(getattr(value, field.name) not in (field.default, None, "", False) for field in optional)
