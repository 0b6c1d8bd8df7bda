"""The benchmark's own recipe language: no-op steps, a gate, a command, a slow agent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from app import errors
from app.domain import library, operations, plain, records, runs, slots
from app.engine import ports
from bench import bare_spawns

NAME = "bench"
"""Name of the language, and of the folder that its recipes are in."""

BACKEND = "slow"
"""Backend of the agent that never answers."""

_DONE = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(operations.Operation):
    """An operation that does nothing, a step of the same cost for every product."""

    kind: ClassVar[str] = "nothing"


class NothingPerformer:
    """A performer that does nothing and returns at once."""

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one attempt of a `Nothing`."""
        return records.Result(output=_DONE)


PERFORMERS: Mapping[str, ports.Performer] = {Nothing.kind: NothingPerformer()}
"""Performers that the language needs in addition to the program's own."""


async def _steps(ctx: ports.Context) -> None:
    total: int = ctx.run.recipe["steps"]
    for index in range(total):
        key = f"step-{index}"
        record = await ctx.perform(key, Nothing(), records.Place(step_id=key, step_index=index, output_slot=key))
        # Each step fills a slot, as a step of a real recipe does, so that snapshots grow with the run.
        ctx.fill(key, slots.Slot(type="artifact", text=_DONE, sha256=record.output_sha256 or "", summary="", key=key))
        ctx.show(slots.Progress(finished_steps=index + 1, total_steps=total))


async def _gate(ctx: ports.Context) -> None:
    await ctx.gate("gate", operations.Gate(prompt="Go on?"))


async def _agent(ctx: ports.Context) -> None:
    await ctx.perform("agent", operations.AgentCall(agent_id="slow-001", backend=BACKEND, prompt=("Take your time.",)))


async def _command(ctx: ports.Context) -> None:
    await ctx.perform("command", operations.Command(argv=(bare_spawns.TRUE,)))


_DRIVERS: Mapping[str, Callable[[ports.Context], Awaitable[None]]] = {
    "steps": _steps,
    "gate": _gate,
    "agent": _agent,
    "command": _command,
}


class Bench:
    """The dialect, as the rest of the program uses it."""

    name: str = NAME
    driver_version: int = 1
    file_suffixes: tuple[str, ...] = (".json",)

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a recipe; its id is the name of its file."""
        document = json.loads(source)
        return library.Recipe(
            recipe_id=stem,
            dialect=NAME,
            label=stem,
            document=document,
            args_schema={"type": "object", "properties": {}},
            total_steps=document.get("steps", 1),
        )

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return an empty list: the recipes are the benchmark's own."""
        return []

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """Return an empty list."""
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return an empty mapping: only the recipe itself is frozen."""
        return {}

    def graph(self, recipe: library.Recipe) -> dict[str, plain.Json]:
        """Return an empty graph."""
        return {"nodes": [], "edges": []}

    def json_schema(self) -> dict[str, plain.Json]:
        """Return the schema of its recipes."""
        return {"type": "object", "properties": {"do": {"enum": sorted(_DRIVERS)}, "steps": {"type": "integer"}}}

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Execute what the recipe names under `do`, and then under `then`."""
        await _DRIVERS[ctx.run.recipe["do"]](ctx)
        if "then" in ctx.run.recipe:
            await _DRIVERS[ctx.run.recipe["then"]](ctx)
        return runs.Ending()


DIALECTS: Mapping[str, ports.Dialect] = {NAME: Bench()}
"""Dialects to add to those of the program."""
