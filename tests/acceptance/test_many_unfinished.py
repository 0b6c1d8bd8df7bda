"""
Thousands of unfinished runs at the start of a service: it serves at once, and continues them all within its limit.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import bootstrap, settings
from app.control import requests
from tests.acceptance import drafting
from tests.acceptance.forked_service import Service

READY_SECONDS = 2.0
"""How much longer than without any run a start may take."""


@pytest.mark.parametrize(
    "count", [120, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])], ids=["some", "all"]
)
def test_unfinished_runs_neither_delay_the_service_nor_exceed_its_limit(tmp_path: Path, count: int) -> None:
    """With so many unfinished runs a service answers in time, and ends them all, never more than eight at once."""
    for name in ("warming", "idle"):
        idle, _, idle_seconds = started(drafting.make_project(tmp_path / name))
        assert idle.stop() == 0
    project = drafting.make_project(tmp_path / "project")
    run_ids = asyncio.run(accepted(project, count))
    service, http, seconds = started(project)
    busiest = watch(http, count)
    assert service.stop() == 0

    assert seconds - idle_seconds < READY_SECONDS
    assert 1 <= busiest <= 8
    executed = [key for run_id in run_ids for _, key, _ in drafting.begun(project, run_id)]
    assert len(executed) == len(run_ids) * len(set(executed))
    assert {run_id for run_id, _, _ in drafting.recorded(project)} == set(run_ids)


def started(project: Path) -> tuple[Service, httpx.Client, float]:
    """
    Start a service, and return after how many seconds it answered.
    """
    begun = time.monotonic()
    service = Service(project)
    http = service.http()
    assert http is not None
    assert http.get("/healthz").status_code == 200
    return service, http, time.monotonic() - begun


async def accepted(project: Path, count: int) -> list[str]:
    """
    Accept runs in a process that executes none of them.
    """
    chosen = settings.load({}, project=project, home=project)
    async with bootstrap.build(chosen) as room:
        starts = [room.starter.prepare(requests.StartRequest(recipe_id="short")) for _ in range(count)]
        return [(await room.store.create(start)).run_id for start in starts]


def watch(http: httpx.Client, count: int) -> int:
    """
    Wait until every run is done, and return how many were seen running at a time.
    """
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
    """
    Return runs in a state.
    """
    found: list[dict[str, Any]] = json.loads(http.get("/api/runs", params={"status": status, "limit": 1000}).content)
    return found
