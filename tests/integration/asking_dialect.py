"""A small language whose recipes ask people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from app import errors
from app.domain import file_operations, operations, runs
from app.engine import ports
from tests import json_dialect

Step = Mapping[str, Any]


class Asking(json_dialect.JsonDialect):
    """A dialect whose steps are gates, checks, timers, children, file searches, tools, agents and parallel branches.

    The forms are `{"gate": key, …fields of the gate, "stops": whether a denial fails the run}`,
    `{"check": key, "path": a file that must exist}`, `{"timer": key, "seconds": s}`, `{"child": key, "recipe_id"}`,
    `{"files": key, "pattern"}`, `{"tool": key, "name", "args", "retry_seconds"}`, `{"speak": key, "session"}` and
    `{"gather": {name: […]}}`.
    """

    name = "asking"

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
