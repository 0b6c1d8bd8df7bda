"""Scopes in any store: lists, counts, issues and receipts contain exactly the runs that a limited key may see."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import issues
from app.domain.access import Scope
from app.domain.issues import IssueQuery
from app.domain.receipts import ReceiptQuery
from app.engine.run_sums import Since, UsageQuery
from app.engine.stores import RunQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness

AT = "2026-02-10T14:30:00.000Z"
RUNS = {
    "a1": ("a", {"book": "one"}),
    "a2": ("a", {"book": "two", "team": "red"}),
    "a0": ("a", {}),
    "b1": ("b", {"book": "one"}),
}


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope(recipes=("a",)), {"a1", "a2", "a0"}),
        (Scope(recipes=("a", "b"), labels=(("book", "one"),)), {"a1", "b1"}),
        (Scope(labels=(("book", "one"), ("book", "two"))), {"a1", "a2", "b1"}),
        (Scope(labels=(("book", "two"), ("team", "red"))), {"a2"}),
        (Scope(recipes=("nothing' OR '1'='1",)), set()),
    ],
)
async def test_only_what_a_scope_covers_is_found(harness: StoreHarness, scope: Scope, expected: set[str]) -> None:
    """A scope narrows lists, counts, issues and receipts to its own runs."""
    store = await harness.open()
    facts: dict[str, Any] = {"title": "x", "body": "", "kind": "dod", "session_id": "s", "receipts": []}
    for run_id, (recipe_id, labels) in RUNS.items():
        await store.create(store_harness.start(run_id, recipe_id=recipe_id, labels=labels))
        log = await store.open(run_id)
        record = await log.append_step(store_harness.step("s", receipt_id=f"rcpt_{run_id}"))
        await log.add_receipt(record)
        await log.flush()
        await log.close()
        await store.issues.open(issues.made(f"iss_{run_id}", AT, **facts, run_id=run_id))
    await store.issues.open(issues.made("iss_free", AT, **facts, run_id=None))
    await harness.settle()
    found = await store.list_runs(RunQuery(scope=scope))
    labelled = await store.list_runs(RunQuery(scope=scope, label=("book", "one")))
    totals = await store.totals(Since(failed=AT, today="2026-02-10T00:00:00.000Z", scope=scope), ())
    sums, total = await store.sum_usage(UsageQuery(runs=RunQuery(scope=scope)), {})
    of_issues = await store.issues.list(IssueQuery(scope=scope))
    of_receipts = await store.list_receipts(ReceiptQuery(scope=scope))

    assert {run.run_id for run in found} == expected
    assert {run.run_id for run in labelled} == expected & {"a1", "b1"}
    assert (sum(totals.by_status.values()), totals.created) == (len(expected), len(expected))
    assert (sums, total.runs) == ({}, 0)
    assert {issue.run_id for issue in of_issues} == expected
    assert {receipt.run_id for receipt in of_receipts} == expected
