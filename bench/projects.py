"""Projects: throw-away projects with the benchmark's recipes, opened in the same way as the service opens its own."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from app import bootstrap, garbage, settings
from app.dialects import registry
from app.domain import plain
from app.engine import ports
from app.services import requests
from bench import dialect

STEPS = "steps-{}"
"""Recipe with a number of no-op steps; `make_project` writes the requested ones."""

STEPS_AND_AGENT = "steps-{}-agent"
"""Recipe with a number of no-op steps and an agent that never answers."""

GATE, AGENT, COMMAND = "gate", "agent", "command"
"""Recipes with one step: a gate for a person, an agent that never answers, a program that does nothing."""

ADDRESS = "http://bench.invalid"
"""The nominal address of these projects."""


def make_project(folder: Path, *, steps: tuple[int, ...] = (10,)) -> Path:
    """Make a project with the recipes `gate`, `agent`, `command`, `steps-N` and `steps-N-agent`, and return it.

    The last two exist for each number of steps.
    """
    data = folder / ".control-room"
    recipes = data / "recipes" / dialect.NAME
    recipes.mkdir(parents=True)
    for name, document in _recipes(steps).items():
        (recipes / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    backend = {"type": "scripted", "file": "silence.jsonl"}
    (data / "silence.jsonl").write_text(json.dumps({"hang": True}) + "\n", encoding="utf-8")
    (data / "agents.json").write_text(json.dumps({"backends": {dialect.BACKEND: backend}}), encoding="utf-8")
    return folder


def choose(project: Path, *, max_running: int = 8, port: int = 0) -> settings.Settings:
    """Return the settings of a project, without reading the environment."""
    return settings.load({}, project=project, home=project, max_running=max_running, port=port, log_level="warning")


def platform(performers: Mapping[str, ports.Performer] = dialect.PERFORMERS) -> bootstrap.Platform:
    """Return the real platform with the benchmark's language added."""
    return dataclasses.replace(
        bootstrap.real_platform({}),
        dialects={**registry.DIALECTS, **dialect.DIALECTS},
        performers=performers,
    )


@asynccontextmanager
async def opened(
    project: Path, *, max_running: int = 8, performers: Mapping[str, ports.Performer] = dialect.PERFORMERS
) -> AsyncIterator[bootstrap.Application]:
    """Open a project as its service does: with its lock, recovery, and garbage collection."""
    chosen = choose(project, max_running=max_running)
    async with bootstrap.build(chosen, bootstrap.OpenMode(address=ADDRESS), platform(performers)) as application:
        await application.engine.recovered()
        gc.freeze()
        collecting = asyncio.create_task(garbage.collect_when_quiet(), name="collect garbage")
        try:
            yield application
        finally:
            collecting.cancel()


def request(recipe_id: str) -> requests.StartRequest:
    """Return the request for a run of a recipe."""
    return requests.StartRequest(recipe_id=recipe_id)


async def execute(application: bootstrap.Application, recipe_id: str) -> str:
    """Start a run of a recipe, wait for its end, and return its id.

    Raises:
        RuntimeError: the run did not end as `done`.
    """
    return await ended(application, request(recipe_id))


async def ended(application: bootstrap.Application, asked: requests.StartRequest) -> str:
    """Start a run, wait for its end, and return its id.

    Raises:
        RuntimeError: the run did not end as `done`.
    """
    started = await application.runs.start(asked)
    state = await application.engine.ended(started.run_id)
    if state.value != "done":
        raise RuntimeError(f"run {started.run_id} of {asked.recipe_id} ended as {state}")
    return started.run_id


async def execute_many(application: bootstrap.Application, recipe_id: str, *, count: int, at_a_time: int) -> None:
    """Execute a number of runs; whenever one of those under way ends, start the next."""
    left = iter(range(count))

    async def follow_on() -> None:
        for _ in left:
            await execute(application, recipe_id)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(count, at_a_time)):
            group.create_task(follow_on())


def _recipes(steps: tuple[int, ...]) -> Mapping[str, Mapping[str, plain.Json]]:
    recipes: dict[str, Mapping[str, plain.Json]] = {name: {"do": name} for name in (GATE, AGENT, COMMAND)}
    for count in steps:
        recipes[STEPS.format(count)] = {"do": "steps", "steps": count}
        recipes[STEPS_AND_AGENT.format(count)] = {"do": "steps", "steps": count, "then": AGENT}
    return recipes
