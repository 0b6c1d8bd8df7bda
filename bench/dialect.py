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
    """Do nothing, as a step of the same price for every product."""

    kind: ClassVar[str] = "nothing"


class NothingPerformer:
    """Do nothing at once."""

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `Nothing`."""
        return records.Result(output=_DONE)


PERFORMERS: Mapping[str, ports.Performer] = {Nothing.kind: NothingPerformer()}
"""What the language needs beside the program's own performers."""


async def _steps(ctx: ports.Context) -> None:
    total: int = ctx.run.recipe["steps"]
    for index in range(total):
        key = f"step-{index}"
        record = await ctx.perform(key, Nothing(), records.Place(step_id=key, step_index=index, output_slot=key))
        # Each step fills a slot, as a recipe's does, so that snapshots grow with the run.
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
    """The language as the rest of the program sees it."""

    name: str = NAME
    driver_version: int = 1
    file_suffixes: tuple[str, ...] = (".json",)

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a recipe; its id is its file's name."""
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
        """Find nothing: the recipes are the benchmark's own."""
        return []

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """Find nothing."""
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Freeze nothing beside the recipe."""
        return {}

    def graph(self, recipe: library.Recipe) -> dict[str, plain.Json]:
        """Draw nothing."""
        return {"nodes": [], "edges": []}

    def json_schema(self) -> dict[str, plain.Json]:
        """Return the schema of its recipes."""
        return {"type": "object", "properties": {"do": {"enum": sorted(_DRIVERS)}, "steps": {"type": "integer"}}}

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Execute the recipe: what it says to do, and what it says to do then."""
        await _DRIVERS[ctx.run.recipe["do"]](ctx)
        if "then" in ctx.run.recipe:
            await _DRIVERS[ctx.run.recipe["then"]](ctx)
        return runs.Ending()


DIALECTS: Mapping[str, ports.Dialect] = {NAME: Bench()}
"""To be added to those of the program."""
