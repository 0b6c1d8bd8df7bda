"""Routes are loaded beside the loop: some requests are answered without them, and all others wait for them."""

from __future__ import annotations

import asyncio
import threading

import fastapi
import pytest

from app.api import late_routes
from tests.integration import served
from tests.integration.project import Project


class Loads:
    """Counts loads of the routes."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = threading.Event()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Return the counter of loads."""
    found, usual = Loads(), late_routes.LateRoutes._load

    def load(routes: late_routes.LateRoutes) -> fastapi.FastAPI:
        found.count += 1
        found.begun.set()
        return usual(routes)

    monkeypatch.setattr(late_routes.LateRoutes, "_load", load)
    return found


async def test_probes_and_polls_need_no_routes(project: Project, loads: Loads) -> None:
    """A ready service answers liveness, readiness and polls of runs before its routes are loaded."""
    async with served.in_process(project) as service:
        answers = [
            await service.http.get(path) for path in ("/healthz", "/readyz", "/api/runs/20260210T143000Z-abc123")
        ]
        head = await service.http.head("/readyz")
        before = loads.count
        routed = [await service.http.get(path) for path in ("/healthz?x=1", "/readyz?x=1")]

    assert [answer.status_code for answer in answers] == [200, 200, 404]
    assert answers[1].json()["status"] == "ready"
    assert answers[2].json()["code"] == "run_not_found"
    assert head.status_code == 200
    assert before == 0
    assert [answer.status_code for answer in routed] == [400, 400]
    assert loads.count == 1


async def test_requests_wait_for_the_routes(project: Project, loads: Loads) -> None:
    """Requests before the load of the routes get the same answers as later ones, and share one load."""
    paths = ("/api/runs", "/api/agents", "/api/gates", "/api/nothing", "/openapi.json", "/api/runs?limit=x")
    async with served.in_process(project) as service:
        gone = asyncio.create_task(service.http.get("/api/tools"))
        assert await asyncio.to_thread(loads.begun.wait, served.WAIT_SECONDS)
        gone.cancel()
        first = await asyncio.gather(*(service.http.get(path) for path in paths))
        started = await service.http.post("/api/runs", json={"recipe_id": "quick"})
        again = [await service.http.get(path) for path in paths[1:]]

    assert [answer.status_code for answer in first] == [200, 200, 200, 404, 200, 400]
    assert started.status_code == 201
    assert [answer.content for answer in again] == [answer.content for answer in first[1:]]
    assert loads.count == 1


async def test_a_load_that_fails_is_repeated(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the routes cannot be loaded, waiting requests get a 500, and the next request loads them."""
    usual = late_routes.LateRoutes._load

    def fails(_: late_routes.LateRoutes) -> fastapi.FastAPI:
        monkeypatch.setattr(late_routes.LateRoutes, "_load", usual)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(late_routes.LateRoutes, "_load", fails)
    async with served.in_process(project) as service:
        refused, answered = [await service.http.get("/api/agents") for _ in range(2)]

    assert refused.status_code == 500
    assert refused.json()["code"] == "internal_error"
    assert answered.status_code == 200
