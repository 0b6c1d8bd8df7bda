"""Lists: entity tags, long polls, progress, and the heads of everything that can be got."""

from __future__ import annotations

import asyncio

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
    """Every list has an entity tag, and answers 304 to who names it."""
    run_id = (await service.run("quick"))["run_id"]
    first = await service.http.get(path.format(run_id=run_id))
    again = await service.http.get(path.format(run_id=run_id), headers={"If-None-Match": first.headers["ETag"]})
    other = await service.http.get(path.format(run_id=run_id), headers={"If-None-Match": '"other"'})

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert (other.status_code, other.headers["ETag"]) == (200, first.headers["ETag"])


async def test_a_list_is_waited_for(service: served.Served) -> None:
    """A poll that knows the present list is answered when a run has come, and says which."""
    known = (await service.http.get("/api/runs")).headers["ETag"]
    waiting = asyncio.create_task(service.http.get("/api/runs?wait=20", headers={"If-None-Match": known}))
    blind = asyncio.create_task(service.http.get("/api/runs?wait=20"))
    await asyncio.sleep(0)
    run_id = await service.start("quick")

    assert run_id in [run["run_id"] for run in (await waiting).json()]
    assert run_id in [run["run_id"] for run in (await blind).json()]


async def test_a_list_without_news_is_a_304(service: served.Served) -> None:
    """A poll is answered when its time is over, or at once where the service stops."""
    known = {"If-None-Match": (await service.http.get("/api/issues")).headers["ETag"]}
    over = await service.http.get("/api/issues?wait=0.1", headers=known)
    service.release()
    released = await service.http.get("/api/issues?wait=60", headers=known)

    assert (over.status_code, released.status_code) == (304, 304)


async def test_rows_tell_how_far_runs_have_come(project: Project) -> None:
    """A row shows the finished and all steps of a run, while it works, when it has ended and after a restart."""
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
    """HEAD has status and headers of GET and no body, also of polls, refusals and of streams that go on."""
    project.say("draft", hang=True)
    async with served.on_a_port(project) as service:
        run_id = await service.start("unguarded")
        await service.until(run_id, step="draft")
        paths = [*LISTS, f"/api/runs/{run_id}", "/api/runs/none", "/healthz", "/readyz", "/openapi.json", "/nothing"]
        for path in [*paths, f"/api/runs/{run_id}/steps"]:
            got, head = await service.http.get(path), await service.http.head(path)

            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert _told(head) == _told(got), path
        stream = await service.http.head(f"/api/runs/{run_id}/events")
        other = await service.http.head(f"/api/runs/{run_id}/cancel")
        await service.http.post(f"/api/runs/{run_id}/cancel")

    assert stream.headers["content-type"].startswith("text/event-stream")
    assert other.status_code == 405


async def test_a_head_needs_no_server_to_drop_the_body() -> None:
    """What answers in process, too, sees no body."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["method"].encode()})

    transport = httpx.ASGITransport(gateways.behind(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert ((await http.head("/")).content, (await http.get("/")).content) == (b"", b"GET")


def _told(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in ("date", "transfer-encoding")}
