"""A toy language whose recipes are lists of steps, and performers that record their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from app import errors
from app.domain import file_operations, operations, plain, records, runs, slots
from app.engine import ports

Step = Mapping[str, Any]


class Toy:
    """A dialect that interprets `recipe["program"]`.

    Steps are `{"tool": key}`, `{"agent": key}`, `{"gate": key}`, `{"timer": key, "seconds": s}`, `{"wait": key,
    "pattern": glob, "seconds": s}`, `{"command": key}`, `{"child": key, "program": […]}`, `{"gather": {name:
    […]}}`, `{"endless": key}`, `{"raise": code}` and `{"break": message}`. A gate that `stops` fails its run when
    it is denied. A step that `reads` has its output read.
    """

    name = "toy"
    driver_version = 1
    file_suffixes = (".toy",)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Execute the program."""
        program = ctx.run.args.get("program", ctx.run.recipe["program"])
        await self._steps(ctx, program)
        return runs.Ending()

    async def _steps(self, ctx: ports.Context, program: Sequence[Step]) -> None:
        for step in program:
            await self._step(ctx, step)

    async def _step(self, ctx: ports.Context, step: Step) -> None:
        match step:
            case (
                {"tool": key}
                | {"agent": key}
                | {"timer": key}
                | {"wait": key}
                | {"gate": key}
                | {"input": key}
                | {"child": key}
                | {"command": key}
            ):
                await self._perform(ctx, key, step)
            case {"gather": branches}:
                await ctx.gather(
                    {name: self._steps(ctx, steps) for name, steps in branches.items()},
                    limit=step.get("limit"),
                    fail_fast=step.get("fail_fast", True),
                )
            case {"endless": key}:
                visit = 1
                while True:
                    await self._perform(ctx, f"{key}#{visit}", {"tool": f"{key}#{visit}"})
                    visit += 1
            case {"raise": code}:
                raise errors.RunFailed("it was to fail", code=code)
            case {"break": message}:
                raise ZeroDivisionError(message)

    async def _perform(self, ctx: ports.Context, key: str, step: Step) -> records.Record:
        record = await ctx.perform(key, _operation(key, step))
        denied = step.get("stops") and isinstance(record.output, dict) and record.output["denied"]
        if denied or (not record.done and not step.get("forgiven")):
            raise errors.RunFailed(f"{key} failed", causes=(key,), key=key)
        if step.get("reads") and record.blob is not None:
            await ctx.read(record.blob)
        if record.output_sha256 is not None:
            ctx.fill(key, _slot(record))
        ctx.show(slots.Progress(finished_steps=record.position + 1))
        return record


TOY = cast(ports.Dialect, Toy())


class Toolbox:
    """Perform tools and agents by recording them: in memory, and as a line of a file if one is given."""

    def __init__(self, file: Path | None = None) -> None:
        self.executed: list[str] = []
        """`key/attempt` of every begun attempt."""
        self.cut: list[str] = []
        """The attempts that were cancelled."""
        self.busy = 0
        """Attempts under way."""
        self.busiest = 0
        """The most attempts that were under way at a time."""
        self._file = file
        self._held: dict[str, asyncio.Event] = {}
        self._begun: dict[str, asyncio.Event] = {}
        self._resisting: dict[str, asyncio.Event] = {}
        self._failing: dict[str, str] = {}

    def hold(self, key: str) -> asyncio.Event:
        """Make a step wait until the returned event is set."""
        return self._held.setdefault(key, asyncio.Event())

    def held(self) -> list[asyncio.Event]:
        """Return the events that hold or held steps."""
        return list(self._held.values())

    def resist(self, key: str) -> asyncio.Event:
        """Make a step wait after its cancellation until the returned event is set."""
        return self._resisting.setdefault(key, asyncio.Event())

    def fail(self, key: str, code: str = "toy_broken") -> None:
        """Make a step fail."""
        self._failing[key] = code

    def mend(self, key: str) -> None:
        """Make a step succeed again."""
        del self._failing[key]

    async def begun(self, key: str) -> None:
        """Wait until a step's performer has begun."""
        await asyncio.wait_for(self._begun.setdefault(key, asyncio.Event()).wait(), 60)

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one attempt."""
        self._note(call)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await self._wait(call)
        except asyncio.CancelledError:
            self.cut.append(call.key)
            if call.key in self._resisting:
                await self._resisting[call.key].wait()
            raise
        finally:
            self.busy -= 1
        if call.key in self._failing:
            raise errors.ToolFailed(f"{call.key} is to fail", code=self._failing[call.key])
        said = f"{call.key} done" * (10_000 if call.key.startswith("big") else 1)
        return records.Result(output={"said": said}, summary=call.key)

    def _note(self, call: ports.Call) -> None:
        self.executed.append(f"{call.key}/{call.attempt}")
        self._begun.setdefault(call.key, asyncio.Event()).set()
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{call.run.run_id} {call.key} {call.attempt}\n")

    async def _wait(self, call: ports.Call) -> None:
        if call.key in self._held:
            await self._held[call.key].wait()
        else:
            await asyncio.sleep(0)


def tools(*keys: str) -> list[Step]:
    """Return a program of tool steps."""
    return [{"tool": key} for key in keys]


def _operation(key: str, step: Step) -> operations.Operation:
    policy = operations.RetryPolicy(**step["retry"]) if "retry" in step else None
    interrupted = step.get("on_interrupted", "rerun")
    match step:
        case {"agent": _}:
            return operations.AgentCall(
                agent_id="toy", backend="toy", prompt=(key,), retry=policy, on_interrupted=interrupted
            )
        case {"timer": _}:
            return operations.Timer(seconds=step["seconds"])
        case {"wait": _}:
            return file_operations.WaitForFiles(pattern=step["pattern"], timeout_seconds=step["seconds"])
        case {"gate": _}:
            fields = ("prompt", "options", "default", "expires_seconds", "shown_sha256")
            return operations.Gate(**({"prompt": key} | {name: step[name] for name in fields if name in step}))
        case {"input": _}:
            return operations.Input(name=key, shown=step.get("shown"))
        case {"command": _}:
            return operations.Command(argv=(key,))
        case {"child": _}:
            return operations.ChildRun(recipe_id="toy", args={"program": list(step["program"])})
    return operations.ToolCall(tool="toy", args={"key": key}, retry=policy, on_interrupted=interrupted)


def _slot(record: records.Record) -> slots.Slot:
    return slots.Slot(
        type="artifact",
        sha256=record.output_sha256 or "",
        summary=record.summary,
        key=record.key,
        agent_id="toy",
        text=plain.canonical(record.output).decode(),
    )
