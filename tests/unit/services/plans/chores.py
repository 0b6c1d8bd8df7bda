"""A small dialect whose recipes are chores, and a toolbox that carries them out as a test wants: later, or with errors.

A chore has two steps: `fetch`, done at once, and `work`, which waits until the test releases it and may fail. If its
recipe `asks`, a gate comes first; if the recipe is `partial`, the run ends as partial.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from app import bootstrap, errors
from app.domain import operations, plain, records, runs, slots
from app.engine import ports
from tests import json_dialect

Tried = tuple[int, str, str, int]
"""Task, run, key and attempt."""

FETCH, WORK = "fetch", "work"
CAPACITY_SECONDS = 60
"""Time within which a chore must begin."""


class Chores(json_dialect.JsonDialect):
    """A dialect whose recipes are `{recipe_id, label, task_patterns, args_schema}`."""

    name = "chores"

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Open a gate if the recipe asks, fetch, then work."""
        if ctx.run.recipe.get("asks"):
            await ctx.gate("ask", operations.Gate(prompt="Now?"))
        for key in (FETCH, WORK):
            record = await ctx.perform(key, operations.ToolCall(tool="chore", args={}))
            if not record.done:
                raise errors.RunFailed(f"{key} went wrong", code="chore_failed", causes=(key,), key=key)
            ctx.fill(key, slots.pointer(record))
        return runs.Ending(partial=bool(ctx.run.recipe.get("partial")))


CHORES = cast(ports.Dialect, Chores())


class Toolbox:
    """Carry out chores; the number of the task decides whether and when `work` succeeds."""

    def __init__(self) -> None:
        self.performed: list[Tried] = []
        """Every try that has begun."""
        self.busy: set[int] = set()
        """Tasks whose `work` is under way."""
        self.busiest = 0
        """Largest number of tasks at work at the same time."""
        self.asked: list[tuple[int, str, Mapping[str, plain.Json]]] = []
        """Task, description and arguments of every `work` that has begun."""
        self._held: dict[int, asyncio.Event] = {}
        self._failing: set[int] = set()
        self._hold_all = False
        self._news = asyncio.Condition()

    def hold(self, *tasks: int) -> None:
        """Make tasks wait until they are released."""
        for task in tasks:
            self._held[task] = asyncio.Event()

    def hold_all(self) -> None:
        """Make every task wait that has not been released."""
        self._hold_all = True

    def release(self, *tasks: int) -> None:
        """Let tasks continue."""
        for task in tasks:
            self._held.setdefault(task, asyncio.Event()).set()

    def release_all(self) -> None:
        """Let all tasks continue."""
        self._hold_all = False
        self.release(*self._held)

    def fail(self, *tasks: int) -> None:
        """Make tasks fail."""
        self._failing |= {*tasks}

    def mend(self, *tasks: int) -> None:
        """Make tasks succeed again."""
        self._failing -= {*tasks}

    async def begun(self, *tasks: int) -> None:
        """Wait until the `work` of tasks is under way."""
        async with asyncio.timeout(CAPACITY_SECONDS), self._news:
            await self._news.wait_for(lambda: self.busy.issuperset(tasks))

    def tries(self, task: int, key: str = WORK) -> list[tuple[str, int]]:
        """Return run and attempt of each try of a task's step."""
        return [(run, attempt) for each, run, tried, attempt in self.performed if (each, tried) == (task, key)]

    async def perform(self, call: ports.Call) -> records.Result:
        """Carry out one step."""
        if call.key not in (FETCH, WORK):
            # The chief searches for files, too.
            return records.Result(output={"matches": []}, summary="nothing")
        task = call.run.session_plan_task_id or 0
        self.performed.append((task, call.run.run_id, call.key, call.attempt))
        if call.key == WORK:
            self.asked.append((task, call.run.description, call.run.args))
            await self._work(task)
        return records.Result(output={"said": f"{call.key} of {task}"}, summary=call.key)

    async def _work(self, task: int) -> None:
        self.busy.add(task)
        self.busiest = max(self.busiest, len(self.busy))
        async with self._news:
            self._news.notify_all()
        try:
            if self._hold_all:
                self._held.setdefault(task, asyncio.Event())
            if task in self._held:
                await self._held[task].wait()
        finally:
            self.busy.discard(task)
        if task in self._failing:
            raise errors.ToolFailed(f"task {task} is to fail", code="chore_broken")


def recipe(recipe_id: str, **fields: Any) -> dict[str, Any]:
    """Return a recipe to which the router sends descriptions that begin with its name."""
    return {"recipe_id": recipe_id, "label": f"Do {recipe_id}", "task_patterns": [f"{recipe_id} "]} | fields


RECIPES = (
    recipe("sweep"),
    recipe("paint"),
    recipe(
        "carry",
        args_schema={
            "type": "object",
            "properties": {
                "what": {"type": "string", "description": "What is to be carried."},
                "times": {"type": "integer", "minimum": 1, "default": 1},
            },
            "required": ["what"],
        },
    ),
)
"""Two chores without arguments, and one that requires an argument."""


def platform(toolbox: Toolbox, **given: Any) -> bootstrap.Platform:
    """Return the real platform with the dialect of chores and a toolbox.

    The bundled recipes take half a second to read. Here those read as chores take no time, and the others are left out.
    """
    performers: dict[str, ports.Performer] = {operations.ToolCall.kind: toolbox}
    dialects: dict[str, ports.Dialect] = {"control_room": CHORES, "chores": CHORES}
    return dataclasses.replace(bootstrap.real_platform({}), dialects=dialects, performers=performers, **given)
