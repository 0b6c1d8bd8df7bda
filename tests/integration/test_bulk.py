"""Orders to many runs: by id or by a filter with the expected count; each run takes the order separately."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration import served
from tests.integration.project import Project


async def ordered(service: served.Served, **body: Any) -> httpx.Response:
    """Send an order and return the answer."""
    return await service.http.post("/api/runs/bulk", json=body)


async def test_each_run_takes_or_refuses_an_order(project: Project) -> None:
    """Runs that can take the order do; the others are listed with the problem that an order to each would return."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        done = (await service.run("quick"))["run_id"]
        working = await service.start("unguarded")
        await service.until(working, step="draft")
        answer = await ordered(service, action="cancel", run_ids=[working, done, "never", working, "../x"], expected=4)
        single = await service.http.post(f"/api/runs/{done}/cancel")
        status = (await service.show(working))["status"]
    found = answer.json()
    refused = {one["run_id"]: one["problem"] for one in found["refused"]}

    assert (answer.status_code, found["matched"]) == (200, 4)
    assert found["done"] == [{"run_id": working, "status": "cancelled"}]
    assert status == "cancelled"
    assert refused[done] == single.json()
    assert {run_id: problem["code"] for run_id, problem in refused.items()} == {
        done: "wrong_state",
        "never": "run_not_found",
        "../x": "run_not_found",
    }


async def test_a_filter_needs_the_count_that_was_seen(service: served.Served) -> None:
    """A dry run counts the runs; a wrong expected count deletes no run; the right count deletes just these runs."""
    kept = (await service.run("quick", labels={"book": "two"}))["run_id"]
    for _ in range(2):
        await service.run("quick", labels={"book": "one"})
    chosen = {"label": "book:one", "status": ["done", "failed"]}
    counted = await ordered(service, action="delete", filter=chosen, dry_run=True)
    differs = await ordered(service, action="delete", filter=chosen, expected=3)
    before = len((await service.http.get("/api/runs")).json())
    deleted = await ordered(service, action="delete", filter=chosen, expected=2)
    after = [row["run_id"] for row in (await service.http.get("/api/runs")).json()]

    assert counted.json() == {"matched": 2, "done": [], "refused": []}
    assert (differs.status_code, differs.json()["code"], before) == (409, "bulk_count_differs", 3)
    assert differs.json()["facts"] == {"matched": 2, "expected": 3}
    assert [one["status"] for one in deleted.json()["done"]] == [None, None]
    assert after == [kept]


async def test_runs_are_paused_and_sent_on_together(project: Project) -> None:
    """Pause, unpause and resume can be sent to several runs as one order."""
    project.say("draft", hang=True)
    async with served.in_process(project, max_running=1) as service:
        first = await service.start("unguarded")
        await service.until(first, step="draft")
        second = await service.start("quick")
        paused = await ordered(service, action="pause", run_ids=[second])
        shown = await service.until(second, "paused")
        unpaused = await ordered(service, action="unpause", run_ids=[second])
        await ordered(service, action="cancel", run_ids=[second])
        await service.until(second, "cancelled")
        resumed = await ordered(service, action="resume", run_ids=[second, first])

    assert paused.json()["refused"] == unpaused.json()["refused"] == []
    assert shown["reason"] == "paused_by_person"
    assert [one["run_id"] for one in resumed.json()["done"]] == [second]
    assert [one["problem"]["code"] for one in resumed.json()["refused"]] == ["wrong_state"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"action": "explode", "run_ids": ["a"]}, "$.action"),
        ({"action": "cancel"}, "$"),
        ({"action": "cancel", "run_ids": ["a"], "filter": {}}, "$"),
        ({"action": "delete", "filter": {}}, "$"),
        ({"action": "cancel", "run_ids": []}, "$.run_ids"),
        ({"action": "cancel", "run_ids": ["x"] * 1001}, "$.run_ids"),
        ({"action": "cancel", "run_ids": ["x" * 65]}, "$.run_ids[0]"),
        ({"action": "cancel", "run_ids": ["\x00"]}, "$.run_ids[0]"),
        ({"action": "cancel", "run_ids": [7]}, "$.run_ids[0]"),
        ({"action": "cancel", "filter": {"status": ["done"] * 1000}, "expected": 1}, "$.filter.status"),
        ({"action": "cancel", "filter": {"statuses": ["done"]}, "expected": 1}, "$.filter.statuses"),
        ({"action": "cancel", "filter": {"q": "%" * 201}, "expected": 1}, "$.filter.q"),
        ({"action": "cancel", "filter": {"created_after": "2026-02-10"}, "expected": 1}, "$.filter.created_after"),
        ({"action": "cancel", "filter": {}, "expected": -1}, "$.expected"),
        ({"action": "cancel", "filter": {}, "expected": "1"}, "$.expected"),
        ({"action": "cancel", "filter": {}, "dry_run": "yes"}, "$.dry_run"),
    ],
)
async def test_absurd_orders_are_refused(service: served.Served, body: dict[str, Any], path: str) -> None:
    """An order that makes no sense is refused with its place, and reaches no run."""
    answer = await service.http.post("/api/runs/bulk", json=body)

    assert (answer.status_code, [flaw["path"] for flaw in answer.json()["flaws"]]) == (400, [path])
