"""Run ids that chance draws twice."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

import httpx
import pytest

from app import bootstrap, clock, main
from tests.integration import served
from tests.integration.project import Project

FIRST, SECOND, THIRD = (f"20260210T143000Z-draws{number}" for number in (1, 2, 3))


class Drawn(clock.RandomIds):
    """Identifiers whose run ids are drawn by a test."""

    def __init__(self, drawn: Iterator[str]) -> None:
        super().__init__()
        self._drawn = drawn

    def run_id(self, at: datetime) -> str:
        """Return the next id of the test."""
        return next(self._drawn)


@pytest.fixture
def drawn() -> list[str]:
    """Return the ids still to be drawn; the last one is drawn again and again."""
    return []


@pytest.fixture
async def service(project: Project, drawn: list[str]) -> AsyncIterator[served.Served]:
    """Serve a project whose run ids are drawn by the test."""

    def draws() -> Iterator[str]:
        while True:
            yield drawn.pop(0) if len(drawn) > 1 else drawn[0]

    platform = dataclasses.replace(bootstrap.real_platform({}), ids=Drawn(draws()))
    app = main.create_app(served.chosen(project, stop_grace_seconds=0.05), platform)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), served.client(transport, f"http://{served.HOST}") as http:
        yield served.Served(project, http, app)


async def test_a_run_whose_id_is_taken_gets_another(service: served.Served, drawn: list[str]) -> None:
    """A start, or a fork, whose random id belongs to another run already gets the next id that is free."""
    drawn += [FIRST, FIRST, SECOND, FIRST, SECOND, THIRD]
    ran = [(await service.run("quick"))["run_id"] for _ in range(2)]
    forked = await service.http.post(f"/api/runs/{FIRST}/fork", json={})
    ended = await service.until(forked.json()["run_id"], "done")

    assert ran == [FIRST, SECOND]
    assert (forked.status_code, ended["run_id"], ended["forked_from"]) == (201, THIRD, FIRST)
    starts = [service.project.data / "runs" / run_id / "start.json" for run_id in (FIRST, SECOND, THIRD)]
    assert [str(path.parent) in path.read_text(encoding="utf-8") for path in starts] == [True] * 3


async def test_no_run_is_replaced_where_every_id_is_taken(service: served.Served, drawn: list[str]) -> None:
    """A start is refused if each id that is drawn belongs to a run; that run stays as it is."""
    drawn += [FIRST]
    before = await service.run("quick")
    refused = await service.http.post("/api/runs", json={"recipe_id": "quick"})

    assert (refused.status_code, refused.json()["code"]) == (409, "run_exists")
    assert await service.show(FIRST) == before
