"""Thousands of unfinished runs at the start of a service: it serves at once, and continues all within its limit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import bootstrap, settings
from app.services import requests
from tests.acceptance import drafting
from tests.acceptance.forked_service import Service

LIMIT = 8
"""Default number of active runs of a service."""


@pytest.mark.parametrize(
    "count", [40, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])], ids=["some", "all"]
)
def test_unfinished_runs_neither_delay_the_service_nor_exceed_its_limit(tmp_path: Path, count: int) -> None:
    """A service answers before it has taken up more than eight of many runs, and ends them all, eight at a time."""
    project = drafting.make_project(tmp_path / "project", brief={"hang": True})
    run_ids = asyncio.run(accepted(project, count))
    service, http = started(project)
    pending = len(listed(http, "pending"))
    taken = [run_id for run_id in run_ids if drafting.taken(project, run_id)]
    service.kill()
    drafting.say(project)
    service, http = started(project)
    busiest = watch(http, count)
    assert service.stop() == 0

    assert len(taken) <= LIMIT
    assert pending >= min(count, 1000) - LIMIT
    assert 1 <= busiest <= LIMIT
    recorded = drafting.recorded(project)
    assert len(recorded) == len({(run_id, key) for run_id, key, _ in recorded})
    assert {run_id for run_id, _, _ in recorded} == set(run_ids)


def started(project: Path) -> tuple[Service, httpx.Client]:
    """Start a service and wait until it answers."""
    service = Service(project)
    http = service.http()
    assert http is not None
    assert http.get("/healthz").status_code == 200
    return service, http


async def accepted(project: Path, count: int) -> list[str]:
    """Accept runs in a process that executes none of them."""
    chosen = settings.load({}, project=project, home=project)
    async with bootstrap.build(chosen) as room:
        starts = [room.starter.prepare_now(requests.StartRequest(recipe_id="short")) for _ in range(count)]
        return [(await room.store.create(start)).run_id for start in starts]


def watch(http: httpx.Client, count: int) -> int:
    """Wait until every run is done, and return the highest number of runs seen running at the same time."""
    busiest = 0
    while True:
        busiest = max(busiest, len(listed(http, "running")))
        waiting = listed(http, "pending") or listed(http, "running")
        if not waiting:
            break
        http.get(f"/api/runs/{waiting[0]['run_id']}", params={"wait": 1})
    assert len(listed(http, "done")) == min(count, 1000)
    return busiest


def listed(http: httpx.Client, status: str) -> list[dict[str, Any]]:
    """Return the runs in a state."""
    found: list[dict[str, Any]] = json.loads(http.get("/api/runs", params={"status": status, "limit": 1000}).content)
    return found
