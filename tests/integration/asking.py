"""A small language whose recipes ask people, a project with such recipes, and the real service over it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import httpx

from app import bootstrap, errors
from app.api import service
from app.dialects import registry
from app.domain import file_operations, library, operations, plain, runs
from app.engine import ports
from app.main import _key_ring, _services
from tests.integration import served
from tests.integration.project import Project

Step = Mapping[str, Any]


class Asking:
    """A dialect whose steps are `{"gate": key, …fields of the gate, "stops": whether a denial fails the run}`,
    `{"check": key, "path": a file that must be there}`, `{"timer": key, "seconds": s}`, `{"child": key, "recipe_id"}`,
    `{"files": key, "pattern"}`, `{"tool": key, "name", "args", "retry_seconds"}`, `{"speak": key, "session"}` and
    `{"gather": {name: […]}}`.
    """

    name = "asking"
    driver_version = 1
    file_suffixes = (".json",)

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a recipe."""
        document = json.loads(source)
        schema: dict[str, plain.Json] = {"type": "object", "properties": {}}
        return library.Recipe(
            recipe_id=document.get("recipe_id", stem),
            dialect=self.name,
            label="Ask",
            document=document,
            args_schema=schema,
        )

    def check(self, recipe: library.Recipe, definition_cache: library.Library) -> list[errors.Flaw]:
        """Find nothing."""
        return []

    def flaws(self, source: str, stem: str, definition_cache: library.Library) -> list[errors.Flaw]:
        """Find nothing."""
        return []

    def freeze(self, recipe: library.Recipe, definition_cache: library.Library) -> dict[str, plain.Json]:
        """Return nothing."""
        return {}

    def json_schema(self) -> dict[str, plain.Json]:
        """Return the schema of anything."""
        return {}

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Execute the steps."""
        await self._steps(ctx, ctx.run.recipe["steps"])
        return runs.Ending()

    async def _steps(self, ctx: ports.Context, steps: Sequence[Step]) -> None:
        for step in steps:
            await self._step(ctx, step)

    async def _step(self, ctx: ports.Context, step: Step) -> None:
        match step:
            case {"gate": key}:
                fields = {name: value for name, value in step.items() if name not in ("gate", "stops")}
                question: dict[str, Any] = {"prompt": f"{key}?"} | {
                    name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
                }
                answer: Any = (await ctx.gate(key, operations.Gate(**question))).output
                if answer["denied"] and step.get("stops", True):
                    raise errors.RunFailed(f"{key} was denied", code="denied", causes=(key,), key=key)
            case {"check": key, "path": path}:
                found: Any = (await ctx.perform(key, operations.Check(check="file_exists", subject=path))).output
                if not found["holds"]:
                    raise errors.RunFailed(f"{path} is missing", code="missing", causes=(key,), key=key)
            case {"timer": key, "seconds": seconds}:
                await ctx.timer(key, seconds)
            case {"child": key, "recipe_id": recipe_id}:
                await ctx.perform(key, operations.ChildRun(recipe_id=recipe_id))
            case {"files": key, "pattern": pattern}:
                await ctx.perform(key, file_operations.WaitForFiles(pattern=pattern, poll_ms=50))
            case {"tool": key, "name": tool, "args": args, "retry_seconds": seconds}:
                again = operations.RetryPolicy(max_attempts=2, initial_seconds=seconds, max_seconds=seconds)
                await ctx.perform(key, operations.ToolCall(tool=tool, args=args, retry=again))
            case {"speak": key}:
                speech = operations.AgentCall(
                    agent_id="writer-1", backend="said", prompt=("Speak.",), agent_session_id=step.get("session")
                )
                await ctx.perform(key, speech)
            case {"gather": branches}:
                await ctx.gather({name: self._steps(ctx, steps) for name, steps in branches.items()})


ASKING = cast(ports.Dialect, Asking())

SHIP: tuple[Step, ...] = (
    {"check": "look", "path": "Story/Scenes/SCN-the-arrival.md"},
    {"gate": "ship", "prompt": "Ship it?"},
    {"check": "after", "path": "Story/Scenes/SCN-the-bridge.md"},
)
"""Look, ask, go on."""


def platform(environ: Mapping[str, str] | None = None) -> bootstrap.Platform:
    """Return the real world, in which recipes of this language are understood too."""
    return dataclasses.replace(bootstrap.real_platform(environ or {}), dialects={**registry.DIALECTS, "asking": ASKING})


def add(project: Project, recipe_id: str, *steps: Step) -> None:
    """Write a recipe."""
    document = {"recipe_id": recipe_id, "steps": list(steps)}
    project.write(f".control-room/recipes/asking/{recipe_id}.json", json.dumps(document))


class Asked(served.Served):
    """The service over such a project."""

    def __init__(self, project: Project, http: httpx.AsyncClient, application: bootstrap.Application) -> None:
        super().__init__(project, http)
        self.application = application
        """What it is served from."""

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
        application.runs.release()
