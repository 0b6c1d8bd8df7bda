"""A harness for engines: a project with recipes in every language, and the steps that the tests share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from app import bootstrap, settings
from app.domain import plans, states
from app.services import gate_inbox, gates, requests
from app.services.plans import requests as plan_requests
from tests.integration import conferring, temporal_server
from tests.integration import project as projects
from tests.unit.dialects.agent_recipes import recipe_harness

SERVE = bootstrap.OpenMode(address="http://127.0.0.1:1")
WORK = bootstrap.OpenMode(works=True)

RECIPES: dict[str, Any] = {
    "parent": {
        "steps": [
            {"id": "first", "type": "bash", "command": "echo hello", "output": "said"},
            {"id": "below", "type": "recipe", "recipe": "child"},
        ]
    },
    "child": {"steps": [{"id": "nap", "type": "bash", "command": "echo rested | tee -a rested", "output": "rest"}]},
    "once": {
        "steps": [
            {"id": "first", "type": "bash", "command": "echo x >> first; while [ ! -e go ]; do sleep 0.05; done"},
            {"id": "second", "type": "bash", "command": "echo y >> second; test -e good", "retry": {"max_attempts": 1}},
        ]
    },
    "asking": {
        "stages": [
            {
                "name": "one",
                "steps": [{"id": "a", "type": "bash", "command": "echo one", "output": "one"}],
                "approval": {"required": True, "prompt": "Go on?", "timeout": 0, "default": "deny"},
            },
            {"name": "two", "steps": [{"id": "b", "type": "bash", "command": "echo two >> two", "output": "two"}]},
        ]
    },
}
"""Recipes in the language `amplifier`."""

WORKFLOW = """version: "1.1.1"
name: sorting
steps:
  - name: look
    command: ["sh", "-c", "echo looked"]
  - name: sort
    command: ["sh", "-c", "echo sorted > sorted"]
"""


def project(root: Path) -> projects.Project:
    """Create a project with a team that can confer, and with a recipe in each language."""
    made = conferring.made(root)
    for step, reply in recipe_harness.STRAIGHT.items():
        made.say(step, text=reply)
    for name, content in RECIPES.items():
        whole = {"schema": "1.7", "name": name, "description": name, "version": "1.0.0"} | content
        made.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
    made.write(".control-room/recipes/orchestrate/sorting.yaml", WORKFLOW)
    made.write(".control-room/recipes/agent_recipes/small.json", json.dumps(recipe_harness.recipe()))
    return made


class Bench:
    """A project served on an engine."""

    def __init__(self, service: bootstrap.Application, project: projects.Project) -> None:
        self.service = service
        self.project = project

    async def start(self, recipe_id: str, **asked: Any) -> str:
        """Start a run."""
        asked = {"description": "The arrival"} | asked
        return (await self.service.runs.start(requests.StartRequest(recipe_id=recipe_id, **asked))).run_id

    async def until(self, run_id: str, *wanted: states.RunState) -> states.RunState:
        """Wait until a run's row shows one of the states, and return it."""
        found: list[states.RunState] = []

        async def shows() -> bool:
            found[:] = [states.RunState((await self.service.store.summary(run_id)).status)]
            return found[0] in wanted

        await temporal_server.until(shows)
        return found[0]

    async def ended(self, run_id: str) -> states.RunState:
        """Wait for the end of a run, and return its state then."""
        return await self.until(run_id, *(state for state in states.RunState if state.finished))

    async def keys(self, run_id: str) -> list[str]:
        """Return the keys of a run's journal lines."""
        return [record.key for record in (await self.service.store.read(run_id)).records]

    async def gate(self, run_id: str) -> gates.GateShown:
        """Wait until a run is at its gate, and return the gate."""
        await self.until(run_id, states.RunState.WAITING)
        [gate], _ = await self.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
        return gate

    async def there(self, name: str, lines: int = 1) -> None:
        """Wait until a file of the project has so many lines."""

        async def written() -> bool:
            return len(self.text(name).splitlines()) >= lines

        await temporal_server.until(written)

    def text(self, name: str) -> str:
        """Return the text of a file of the project; empty if the file does not exist."""
        path = self.project.root / name
        return path.read_text() if path.exists() else ""

    async def planned(self, recipes: Sequence[str]) -> plans.Plan:
        """Carry out a plan whose tasks depend on one another in a row, and return the finished plan."""
        tasks = tuple(
            plan_requests.NewTask(description=f"do {name}", recipe_id=name, deps=(number,) if number else ())
            for number, name in enumerate(recipes)
        )
        created = await self.service.plans.create(plan_requests.NewPlan(tasks=tasks, review="off"))
        session_id = created.plan.session_id
        await self.service.plans.approve(session_id)
        await self.service.plans.start(session_id)
        known: int | None = None
        async with asyncio.timeout(200):
            while True:
                plan = await self.service.plans.wait(session_id, 30, known)
                if plan.status in (plans.PlanState.DONE, plans.PlanState.FAILED):
                    return plan
                known = plan.revision


@asynccontextmanager
async def embedded(made: projects.Project) -> AsyncIterator[Bench]:
    """Serve a project on the embedded engine."""
    chosen = settings.load({}, project=made.root, home=made.root / "nobody")
    async with bootstrap.build(chosen, SERVE) as service:
        yield Bench(service, made)


@asynccontextmanager
async def on_temporal(made: projects.Project, address: str) -> AsyncIterator[Bench]:
    """Serve a project on Temporal, with one worker."""
    await temporal_server.connected(address)
    chosen = settings.load({}, project=made.root, home=made.root / "nobody", engine="temporal", temporal=address)
    async with bootstrap.build(chosen, SERVE) as service, bootstrap.build(chosen, WORK):
        yield Bench(service, made)
