"""A project with recipes that ask people, and the real service for it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from app import bootstrap
from app.api import service
from app.dialects import registry
from app.main import _key_ring, _services
from tests.integration import served
from tests.integration.asking_dialect import ASKING, Step
from tests.integration.project import Project

SHIP: tuple[Step, ...] = (
    {"check": "look", "path": "Story/Scenes/SCN-the-arrival.md"},
    {"gate": "ship", "prompt": "Ship it?"},
    {"check": "after", "path": "Story/Scenes/SCN-the-bridge.md"},
)
"""Check a file, ask a person, continue."""


def platform(environ: Mapping[str, str] | None = None) -> bootstrap.Platform:
    """Return the real platform with the `asking` dialect added."""
    return dataclasses.replace(bootstrap.real_platform(environ or {}), dialects={**registry.DIALECTS, "asking": ASKING})


def add(project: Project, recipe_id: str, *steps: Step) -> None:
    """Write a recipe of the project."""
    document = {"recipe_id": recipe_id, "steps": list(steps)}
    project.write(f".control-room/recipes/asking/{recipe_id}.json", json.dumps(document))


class Asked(served.Served):
    """The service of a project whose recipes ask people."""

    def __init__(self, project: Project, http: httpx.AsyncClient, application: bootstrap.Application) -> None:
        super().__init__(project, http)
        self.application = application
        """The application that the service serves."""

    async def gates(self, **query: Any) -> list[dict[str, Any]]:
        """Return the inbox."""
        answer = await self.http.get("/api/gates", params=query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    async def asks(self, run_id: str) -> dict[str, Any]:
        """Wait until a run waits, and return its first gate."""
        await self.until(run_id, "waiting")
        return (await self.gates(run_id=run_id))[0]

    async def answer(
        self, gate: Mapping[str, Any], decision: str, key: str | None = None, **body: Any
    ) -> httpx.Response:
        """Answer a gate."""
        headers = {"Idempotency-Key": key} if key else {}
        return await self.http.post(
            f"/api/gates/{gate['gate_id']}", json={"decision": decision} | body, headers=headers
        )


@contextlib.asynccontextmanager
async def in_process(project: Project, **overrides: Any) -> AsyncIterator[Asked]:
    """Serve a project to a client in this process."""
    chosen = served.chosen(project, **({"stop_grace_seconds": 0.5} | overrides))
    async with bootstrap.build(chosen, bootstrap.OpenMode(address="http://127.0.0.1:8000"), platform()) as application:
        ring = _key_ring(chosen)
        app = service.create(chosen.server, ring=ring)
        app.state.services = _services(application, chosen.server, ring)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with served.client(transport, f"http://{served.HOST}") as http:
            yield Asked(project, http, application)
        application.runs.stopping.set()
