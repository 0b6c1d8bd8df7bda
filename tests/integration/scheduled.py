"""A service of a project whose clock moves only when a test moves it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from app import bootstrap, clock, main
from tests.integration import served
from tests.integration.project import Project
from tests.unit.worker import recording

BEGIN = datetime(2026, 2, 10, 14, 30, tzinfo=UTC)
"""When the clock begins: a Tuesday."""


_TURNS = 30


class Scheduled(served.Served):
    """A client of the service, with its clock."""

    time: clock.FakeClock
    probes: recording.RecordingProbes

    async def add(self, **body: Any) -> dict[str, Any]:
        """Create a trigger, by default of the recipe `quick`, and return it."""
        answer = await self.http.post("/api/triggers", json={"recipe_id": "quick"} | body)
        assert answer.status_code == 201, answer.text
        added: dict[str, Any] = answer.json()
        return added

    async def trigger(self, trigger_id: str) -> dict[str, Any]:
        """Return a trigger."""
        shown: dict[str, Any] = (await self.http.get(f"/api/triggers/{trigger_id}")).json()
        return shown

    async def results(self, trigger_id: str, count: int) -> list[dict[str, Any]]:
        """Wait until a trigger has handled `count` occurrences, and return their results, oldest first."""
        found = await self.until_so(trigger_id, lambda shown: len(shown["history"]) >= count)
        return list(reversed(found["history"]))

    async def until_so(self, trigger_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a condition is true for a trigger, and return the trigger."""
        async with asyncio.timeout(served.WAIT_SECONDS):
            while not holds(shown := await self.trigger(trigger_id)):
                await served.moment()
        return shown

    async def until(self, run_id: str, *statuses: str, step: str | None = None) -> dict[str, Any]:
        """Poll until a run has one of the states, or is at a step; a long poll would wait for this clock."""
        async with asyncio.timeout(served.WAIT_SECONDS):
            while True:
                shown = await self.show(run_id)
                open_steps = [one["key"] for one in shown["steps"] if one["status"] == "running"]
                if shown["status"] in statuses or step in open_steps:
                    return shown
                await served.moment()

    async def args(self, run_id: str) -> dict[str, Any]:
        """Return the arguments that a run was started with."""
        start = json.loads((self.project.data / "runs" / run_id / "start.json").read_text())
        return dict(start["args"])

    async def runs(self) -> list[dict[str, Any]]:
        """Return all runs, oldest first."""
        return list(reversed((await self.http.get("/api/runs")).json()))

    async def advance(self, seconds: float) -> None:
        """Move time forward once the scheduler sleeps, and let the scheduler wake up if its sleep is over."""
        async with asyncio.timeout(served.WAIT_SECONDS):
            while self.probes.count("triggers.idle") == self.probes.count("triggers.woken"):
                await served.moment()
        self.time.advance(seconds)
        # Between the end of a sleep and the next sleep, the scheduler needs fewer turns of the loop than this.
        for _ in range(_TURNS):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def in_process(
    project: Project,
    time: clock.FakeClock | None = None,
    make_store: Callable[..., bootstrap.Store] | None = None,
    **overrides: Any,
) -> AsyncIterator[Scheduled]:
    """Serve a project to a client in this process.

    Args:
        make_store: Makes the run store; None: run folders.
    """
    time = time or clock.FakeClock(BEGIN)
    probes = recording.RecordingProbes()
    platform = dataclasses.replace(bootstrap.real_platform({}), clock=time, probes=probes)
    if make_store is not None:
        platform = dataclasses.replace(platform, make_store=make_store)
    app = main.create_app(served.chosen(project, **({"stop_grace_seconds": 0} | overrides)), platform)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), served.client(transport, f"http://{served.HOST}") as http:
        service = Scheduled(project, http, app)
        service.time, service.probes = time, probes
        yield service
