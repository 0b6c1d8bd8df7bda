"""Statistics: counts that many clients wait for, sums of usage, and invalid queries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.engine import run_sums
from app.services import statistics
from app.storage.runs.disk_store import DiskStore
from tests.integration import served


async def test_counts_are_waited_for(service: served.Served) -> None:
    """A client with the present counts gets a 304, or waits until a run changes them."""
    first = await service.http.get("/api/stats")
    known = {"If-None-Match": first.headers["ETag"]}
    same = await service.http.get("/api/stats?wait=0.1", headers=known)
    waiting = asyncio.create_task(service.http.get("/api/stats?wait=30", headers=known))
    await service.run("quick")
    heard = await waiting
    async with asyncio.timeout(served.WAIT_SECONDS):
        # The answer contains the free space of the disk, which other processes change.
        while heard.status_code == 304 or sum(heard.json()["runs"].values()) == 0:
            heard = await service.http.get("/api/stats?wait=5", headers={"If-None-Match": heard.headers["ETag"]})
        answer = first
        while answer.status_code == 304 or answer.json()["runs"]["done"] == 0:
            tag = {"If-None-Match": answer.headers["ETag"]}
            answer = await service.http.get("/api/stats?wait=5", headers=tag)
        found = answer.json()

    assert same.status_code == 304
    assert sum(heard.json()["runs"].values()) == 1
    assert set(found) == {"at", "runs", "waits", "failed", "today", "pool", "disk", "service"}
    assert found["service"] == {"engine": "embedded", "project": str(service.project.root), "local_model": False}
    assert (found["today"]["runs"], found["today"]["cost_usd"]) == (1, None)
    assert (found["waits"], found["failed"]["count"]) == ({"gates": 0, "questions": 0, "plans": 0, "parked": 0}, 0)
    assert (found["disk"]["is_full"], found["pool"]["slots"] > 0) == (False, True)


async def test_rows_are_counted_for_all_clients_together(
    service: served.Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many polls of unchanged rows need one count."""
    counts = 0
    counted = DiskStore.totals

    async def totals(store: DiskStore, since: run_sums.Since, aside: list[str]) -> run_sums.Totals:
        nonlocal counts
        counts += 1
        return await counted(store, since, aside)

    await service.run("quick")
    monkeypatch.setattr(statistics, "RECOUNT_SECONDS", 3600.0)
    known = (await service.http.get("/api/stats?today=2026-02-10T00:00:00Z&since=2026-02-10T00:00:00Z")).json()
    monkeypatch.setattr(DiskStore, "totals", totals)
    path = "/api/stats?today=2026-02-10T00:00:00Z&since=2026-02-10T00:00:00Z&wait=0.6"
    polls: list[Any] = await asyncio.gather(*(service.http.get(path) for _ in range(50)))

    assert {poll.status_code for poll in polls} == {200}
    assert known["today"]["since"] == "2026-02-10T00:00:00.000Z"
    assert counts <= 1


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("stats?today=now", "query.today"),
        ("stats?today=2026-02-10T00:00:00", "query.today"),
        ("stats?since=2026-02-10T00:00:00%2B25:00", "query.since"),
        ("stats?wait=61", "query.wait"),
        ("stats?status=done", "query.status"),
        ("usage?by=prompt", "query.by"),
        ("usage?by=label", "query"),
        ("usage?label_key=book", "query"),
        ("usage?by=label&label_key=", "query.label_key"),
        ("usage?utc_offset=Europe/Berlin", "query.utc_offset"),
        ("usage?utc_offset=%2B14:15", "query.utc_offset"),
        ("usage?utc_offset=%2B02:10", "query.utc_offset"),
        ("usage?label=book", "query.label"),
        ("usage?cursor=x", "query.cursor"),
        ("usage?q=" + "%25" * 201, "query.q"),
        ("usage?" + "&".join(["status=done"] * 1000), "query.status"),
    ],
)
async def test_an_invalid_query_is_refused_with_its_place(service: served.Served, path: str, place: str) -> None:
    """An invalid query is refused with its place."""
    answer = await service.http.get(f"/api/{path}")

    assert (answer.status_code, [flaw["path"] for flaw in answer.json()["flaws"]]) == (400, [place])


@pytest.mark.parametrize("by", ["recipe", "agent", "model", "day", "label&label_key='; DROP TABLE runs"])
async def test_usage_without_calls_is_nothing(service: served.Served, by: str) -> None:
    """Runs without agent calls have no row in any grouping; an unchanged answer is a 304."""
    await service.run("quick")
    found = await service.http.get(f"/api/usage?by={by}&q=%25_")
    same = await service.http.get(f"/api/usage?by={by}&q=%25_", headers={"If-None-Match": found.headers["ETag"]})

    assert (found.json()["rows"], found.json()["total"]["calls"], same.status_code) == ([], 0, 304)
