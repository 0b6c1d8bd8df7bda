"""Asking: perform the operations of a step when the flow reaches it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app import errors
from app.dialects.amplifier import agents, calls, conditions, failures, loops, replies, schema, showing, templates
from app.domain import operations, plain, records
from app.engine import ports

_Undecided: TypeAlias = templates.Undefined | conditions.Undecidable | loops.Unfit


@dataclass(slots=True)
class Prompts:
    """A branch's count of prompts: its own and those before it, unaffected by parallel branches."""

    count: int = 0  # How many.


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A place in the flow."""

    key: str  # Key of the operation at this place.
    scope: templates.Scope  # Values of variables at this place.
    lanes: int | None  # Most agents that may be asked at the same time; None: any number.
    prompts: Prompts  # Prompts so far.
    position: int = 0  # Number of branches beside this one that began just before it.
    wanted: bool = False  # Whether a variable of the step, or of a step around it, holds the result.

    def inside(self, key: str, scope: templates.Scope, **changes: Any) -> Frame:
        """Return a place inside of this one."""
        return dataclasses.replace(self, key=key, scope=scope, **changes)

    def beside(self, scopes: Mapping[str, templates.Scope], width: int) -> dict[str, Frame]:
        """Return the places of parallel branches inside of this one, by the names of the branches."""
        lanes, before = loops.lanes_inside(self.lanes, width), self.prompts.count
        # Counted in advance, in the order of the recipe: branches must not share a count that depends on their speed.
        self.prompts.count += len(scopes)
        return {
            name.strip(".[]"): self.inside(
                self.key + name, scope, lanes=lanes, position=number % width, prompts=Prompts(before + number)
            )
            for number, (name, scope) in enumerate(scopes.items())
        }


class Asker:
    """Perform the operations of one run."""

    def __init__(self, ctx: ports.Context, shown: showing.Shown) -> None:
        self._ctx = ctx
        self._shown = shown
        self._recipe = ctx.run.recipe
        self._limits = self._recipe.get("recursion", {})
        self._taken = 0

    async def act(self, step: plain.Object, frame: Frame) -> templates.Value:
        """Ask the agent, execute the command or run the recipe of a step, and return the result."""
        await self._count(frame)
        try:
            match step.get("type", schema.TYPES[0]):
                case "bash":
                    return await self._run_command(step, frame)
                case "recipe":
                    return await self._run_recipe(step, frame)
            return await self._prompt(step, frame)
        except templates.Undefined as gap:
            raise await self.refuse(frame.key, "undefined_variable", gap.message("step")) from gap

    async def skip(self, step: plain.Object, frame: Frame, reason: str, **reported: plain.Json) -> None:
        """Record that a step is skipped, and the reason."""
        detail = {"id": step["id"], "reason": reason, **reported}
        await self._ctx.perform(frame.key, operations.Skip(reason=reason, detail=detail), self._place(step))
        self._shown.skipped(frame.key, reason, reported)

    async def refuse(self, key: str, code: str, message: str) -> failures.StepFailed:
        """Record that a step cannot be performed, and return its failure."""
        record = await self._ctx.perform(key, operations.Refusal(code=code, message=message))
        return failures.StepFailed.of(record)

    async def undecided(self, step: plain.Object, what: str, key: str, failure: _Undecided) -> errors.RunFailed:
        """Record that a condition or a loop cannot be evaluated; return the failure of the run."""
        reported = failure.message(what) if isinstance(failure, templates.Undefined) else str(failure)
        code = failure.code if isinstance(failure, loops.Unfit) else "undecidable_condition"
        code = "undefined_variable" if isinstance(failure, templates.Undefined) else code
        message = f"Step '{step['id']}' {what} error: {reported}"
        refused = await self.refuse(key, code, message)
        return errors.RunFailed(message, code=code, key=key, causes=refused.causes)

    # -- kinds of steps

    async def _prompt(self, step: plain.Object, frame: Frame) -> templates.Value:
        agent = self._ctx.run.frozen["agents"][step["agent"]]
        ways = calls.agent_calls(step, self._ctx.run, agent, frame.scope)
        self._shown.unused_settings(step)
        await self._await_rate_limit(frame)
        keys = [frame.key, *(f"{frame.key}.preference{number}" for number in range(2, len(ways) + 1))]
        place = dataclasses.replace(self._place(step), instructions=templates.own_words(step["prompt"]))
        for number, (key, call) in enumerate(zip(keys, ways, strict=True), start=1):
            record = await self._ctx.perform(key, call, place)
            # Only an agent that could not be reached is replaced. The failure of an agent that answered is final, and
            # was paid for.
            unreachable = record.error is not None and record.error.code in agents.UNREACHABLE
            if not unreachable or number == len(ways):
                break
        if not record.done:
            raise failures.StepFailed.of(record, keys[:number])
        printed = await self._content(record)
        value = await self._read(step, str(printed or ""), record)
        # A long text stays in its blob, and variables refer to it.
        return templates.Kept(text=value, blob=record.blob) if record.blob and isinstance(value, str) else value

    async def _run_command(self, step: plain.Object, frame: Frame) -> templates.Value:
        record = await self._ctx.perform(frame.key, calls.command(step, frame.scope, self._ctx.run), self._place(step))
        output = await self._content(record)
        if not record.done:
            printed = calls.result_of_command(output) if isinstance(output, Mapping) and "exit_code" in output else None
            raise failures.StepFailed.of(record, printed=printed)
        set_variable(step, "output_exit_code", output["exit_code"], frame)
        if output.get("stdout_truncated"):
            message = "the output of the command is too large for a variable"
            raise await self._unusable(record, "output_too_large", message)
        return await self._read(step, calls.result_of_command(output), record)

    async def _run_recipe(self, step: plain.Object, frame: Frame) -> templates.Value:
        most = self._limits.get("max_depth", schema.default("recursion", "max_depth"))
        if self._ctx.run.depth >= most:
            message = f"there are {self._ctx.run.depth} runs above this one; recursion.max_depth allows {most}"
            raise await self.refuse(frame.key, "recursion_limit", message)
        record = await self._ctx.perform(
            frame.key, calls.child(step, self._ctx.run.frozen.get("recipes", {}), frame.scope), self._place(step)
        )
        if not record.done:
            raise failures.StepFailed.of(record)
        output = await self._content(record)
        ending = output.get("ending") or {}
        if ending.get("partial"):
            self._shown.partial()
        if ending.get("missing_result") is not None:
            await self._refuse_missing(step, record, ending["missing_result"], frame)
            return None
        if self._ctx.run.driver_version > 3 and not frame.wanted:
            return None
        try:
            return calls.result_of_child(output, self._ctx.run.driver_version)
        except OverflowError as large:
            message = f"the variable {large} of the recipe {step['recipe']} is too long to be taken over"
            raise await self._unusable(record, "output_too_large", message) from large

    async def _refuse_missing(self, step: plain.Object, record: records.Record, variable: str, frame: Frame) -> None:
        """Fail a step that needs the result of a recipe whose steps have not set it."""
        if "output" in step or "collect" in step or (frame.wanted and self._ctx.run.driver_version > 3):
            message = (
                f"the recipe {step['recipe']} ended without its result: no step has set `{variable}`;"
                " give it a value in that recipe's `context`, or handle the failure with `on_error`"
            )
            raise await self._unusable(record, "result_missing", message)

    # -- around the operations

    async def _count(self, frame: Frame) -> None:
        self._taken += 1
        most = self._limits.get("max_total_steps")
        if most is not None and self._taken > most:
            message = f"the run has taken {most} steps, which is all that recursion.max_total_steps allows"
            raise (await self.refuse(frame.key, "recursion_limit", message)).run_failed()

    async def _await_rate_limit(self, frame: Frame) -> None:
        frame.prompts.count += 1
        delay = self._recipe.get("rate_limiting", {}).get("min_delay_ms", 0)
        if delay and frame.prompts.count > 1:
            await self._ctx.timer(f"{frame.key}.delay", delay / 1000 * (1 + frame.position))

    async def _content(self, record: records.Record) -> Any:
        return record.output if record.blob is None else await self._ctx.read(record.blob)

    async def _read(self, step: plain.Object, printed: str, record: records.Record) -> plain.Json:
        try:
            if "reply_schema" in step:
                return replies.fitting(printed, step["reply_schema"], self._ctx.run.driver_version)
            return replies.read(printed, step.get("parse_json"), self._ctx.run.driver_version)
        except replies.NoData as error:
            of_command = step.get("type") == "bash"
            message = f"the {'output of the command' if of_command else 'reply'} {error}"
            raise await self._unusable(record, error.code, message, printed if of_command else None) from error

    async def _unusable(
        self, record: records.Record, code: str, message: str, printed: str | None = None
    ) -> failures.StepFailed:
        """Write down that the result of a finished operation is not what its step needs; return the failure."""
        causes, line = [record.key], f"{record.key}:result"
        # Without a line of its own the failure would show nowhere among the steps: the operation itself succeeded.
        if self._ctx.run.driver_version > 2:
            await self.refuse(line, code, message)
            causes.append(line)
        return failures.StepFailed(message, key=record.key, code=code, causes=causes, printed=printed)

    def _place(self, step: plain.Object) -> records.Place:
        return records.Place(step_id=step["id"], output_slot=step.get("collect") or step.get("output"))


def set_variable(step: plain.Object, name: str, value: templates.Value, frame: Frame) -> None:
    """Set the variable, if any, that a field of the step names."""
    if name in step:
        frame.scope.set(step[name], value)
