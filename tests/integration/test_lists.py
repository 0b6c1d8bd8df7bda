"""Lists: entity tags, long polls, progress, and HEAD for every GET."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.integration import served
from tests.integration.project import Project
from tests.unit.api import gateways

LISTS = (
    "/api/runs",
    "/api/gates",
    "/api/issues",
    "/api/sessions",
    "/api/audit/receipts",
    "/api/recipes",
    "/api/tools",
    "/api/agents",
)


@pytest.mark.parametrize("path", [*LISTS, "/api/runs/{run_id}/logs", "/api/runs/{run_id}/steps"])
async def test_an_unchanged_list_is_not_sent_again(service: served.Served, path: str) -> None:
    """Every list has an entity tag, and answers 304 to a request with this tag."""
    run_id = (await service.run("quick"))["run_id"]
    first = await service.http.get(path.format(run_id=run_id))
    again = await service.http.get(path.format(run_id=run_id), headers={"If-None-Match": first.headers["ETag"]})
    other = await service.http.get(path.format(run_id=run_id), headers={"If-None-Match": '"other"'})

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert (other.status_code, other.headers["ETag"]) == (200, first.headers["ETag"])


async def test_a_list_is_waited_for(service: served.Served) -> None:
    """A poll with the present entity tag is answered when a run starts, and contains it."""
    known = (await service.http.get("/api/runs")).headers["ETag"]
    waiting = asyncio.create_task(service.http.get("/api/runs?wait=20", headers={"If-None-Match": known}))
    blind = asyncio.create_task(service.http.get("/api/runs?wait=20"))
    await asyncio.sleep(0)
    run_id = await service.start("quick")

    assert run_id in [run["run_id"] for run in (await waiting).json()]
    assert run_id in [run["run_id"] for run in (await blind).json()]


async def test_a_list_without_news_is_a_304(service: served.Served) -> None:
    """A poll without a change is answered when its time is over, or at once if the service stops."""
    known = {"If-None-Match": (await service.http.get("/api/issues")).headers["ETag"]}
    over = await service.http.get("/api/issues?wait=0.1", headers=known)
    service.release()
    released = await service.http.get("/api/issues?wait=60", headers=known)

    assert (over.status_code, released.status_code) == (304, 304)


async def test_a_row_shows_finished_and_total_steps(project: Project) -> None:
    """A row shows the finished and total steps of a run while it works, at its end and after a restart."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        done = (await service.run("quick"))["run_id"]
        working = await service.start("unguarded")
        await service.until(working, step="draft")
        before = await _progress(service)
        await service.http.post(f"/api/runs/{working}/cancel")
        await service.until(working, "cancelled")
    async with served.in_process(project) as service:
        after = await _progress(service)

    assert before == {done: (1, 1), working: (1, 2)}
    assert after == before


async def _progress(service: served.Served) -> dict[str, tuple[int, int]]:
    rows = (await service.http.get("/api/runs")).json()
    return {row["run_id"]: (row["current_step_index"], row["total_steps"]) for row in rows}


@pytest.mark.timeout(60)
async def test_every_get_has_a_head(project: Project) -> None:
    """HEAD has status and headers of GET without a body, also for polls, refusals and streams without an end."""
    project.say("draft", hang=True)
    async with served.on_a_port(project) as service:
        run_id = await service.start("unguarded")
        await service.until(run_id, step="draft")
        paths = [*LISTS, f"/api/runs/{run_id}", "/api/runs/none", "/healthz", "/readyz", "/openapi.json", "/nothing"]
        for path in [*paths, f"/api/runs/{run_id}/steps"]:
            got, head = await service.http.get(path), await service.http.head(path)

            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert _compared_headers(head) == _compared_headers(got), path
        stream = await service.http.head(f"/api/runs/{run_id}/events")
        other = await service.http.head(f"/api/runs/{run_id}/cancel")
        await service.http.post(f"/api/runs/{run_id}/cancel")

    assert stream.headers["content-type"].startswith("text/event-stream")
    assert other.status_code == 405


async def test_a_head_needs_no_server_to_drop_the_body() -> None:
    """A HEAD in process returns no body either."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["method"].encode()})

    transport = httpx.ASGITransport(gateways.behind(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert ((await http.head("/")).content, (await http.get("/")).content) == (b"", b"GET")


def _compared_headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in ("date", "transfer-encoding")}


async def test_rows_show_time_usage_and_the_live_step(project: Project) -> None:
    """A row shows the present step of its run, its start, its cost, and why it rests, also after a restart."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        done = (await service.run("quick"))["run_id"]
        working = await service.start("unguarded")
        step = next(s for s in (await service.until(working, step="draft"))["steps"] if s["key"] == "draft")
        live = (await _rows(service))[working]
        await service.http.post(f"/api/runs/{working}/pause", json={"interrupt": True})
        await service.until(working, "paused")
        paused = await _rows(service)
    async with served.in_process(project) as service:
        again = await _rows(service)

    facts = {"key": "draft", "step_id": "draft", "started_at": step["started_at"]}
    assert live["live_step"] == facts | {"output_at": step.get("output_at")}
    assert (live["duration_ms"], live["reason"]) == (None, None)
    assert live["started_at"] >= live["created_at"]
    assert (paused[working]["reason"], paused[working]["live_step"]) == ("paused_by_person", None)
    assert paused[done]["duration_ms"] >= 0
    assert paused[done]["usage"] == {"input_tokens": 0, "output_tokens": 0, "cost_usd": None}
    assert again == paused


async def test_rows_of_the_release_before_are_completed(project: Project) -> None:
    """A service completes rows of an earlier release from the folders of their runs, and then finds them by search."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick", description="Look at the Arrival"))["run_id"]
        before = await _rows(service)
    with sqlite3.connect(project.data / "index.db") as index:
        index.execute("UPDATE runs SET started_at = NULL, search = NULL, input_tokens = NULL, counted = false")
    async with served.in_process(project) as service, asyncio.timeout(served.WAIT_SECONDS):
        found = await service.http.get("/api/runs?q=arrival")
        while not found.json():
            known = {"If-None-Match": found.headers["ETag"]}
            found = await service.http.get("/api/runs?q=arrival&wait=5", headers=known)
        after = await _rows(service)

    assert [row["run_id"] for row in found.json()] == [run_id]
    assert after == before


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("status=failed&status=never", "query.status.1"),
        ("&".join(["status=failed"] * 1000), "query.status"),
        ("status=", "query.status.0"),
        ("q=", "query.q"),
        ("q=" + "x" * 201, "query.q"),
        ("q=%00", "query.q"),
        ("created_after=yesterday", "query.created_after"),
        ("created_after=2026-02-10T14:30:00", "query.created_after"),
        ("created_after=2026-02-10T14:30:00%2B99:00", "query.created_after"),
        ("created_before=9999-12-31T23:59:59-23:59", "query.created_before"),
        ("cursor=WyJhIl0", "query.cursor"),
        ("sort=cost", "query.sort"),
    ],
)
async def test_absurd_filters_are_refused(service: served.Served, query: str, path: str) -> None:
    """A filter that makes no sense is refused with its place."""
    answer = await service.http.get(f"/api/runs?{query}")

    assert answer.status_code == 400
    assert path in [error["path"] for error in answer.json()["flaws"]]


async def test_several_states_are_listed_together(service: served.Served) -> None:
    """Repeated states list runs in any of them, and the next page keeps the filter."""
    run_id = (await service.run("quick"))["run_id"]
    found = await service.http.get("/api/runs?status=failed&status=done&limit=1")
    others = await service.http.get("/api/runs?status=failed&status=paused")

    assert [row["run_id"] for row in found.json()] == [run_id]
    assert others.json() == []


async def test_runs_of_one_starter_are_listed(service: served.Served, cli: Any) -> None:
    """The filter accepts an author, or the way in of authors without a name; the command has the filter, too."""
    ours = (await service.run("quick"))["run_id"]
    answer = await service.http.post("/api/runs", json={"recipe_id": "quick"}, headers={"X-Control-Room-Author": "ada"})
    hers = answer.json()["run_id"]
    await service.until(hers, "done")
    found = [
        (await service.http.get("/api/runs", params={"started_by": name})).json() for name in ("ada", "local", "a")
    ]
    too_long = await service.http.get("/api/runs", params={"started_by": "a" * 1_000})
    words = ("runs", "list", "--started-by", "ada", "--json", "--project", str(service.project.root))
    _, printed, _ = await asyncio.to_thread(cli, *words)

    assert [[row["run_id"] for row in rows] for rows in found] == [[hers], [ours], []]
    assert (too_long.status_code, too_long.json()["flaws"][0]["path"]) == (400, "query.started_by")
    assert [row["run_id"] for row in json.loads(printed)] == [hers]


async def _rows(service: served.Served) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in (await service.http.get("/api/runs")).json()}
