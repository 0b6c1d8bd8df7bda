"""Phase 1 of a conference: the chief gathers the evidence."""

# A call counts for `require_tool` if it has a payload: a call with wrong arguments has a receipt, but no evidence to
# judge by. The chief writes JSON in single prompts because backends differ in their tool interfaces, and programs
# would execute their own.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import errors
from app.domain import frozen_agents, operations, plain, records, slots
from app.engine import ports
from app.flows.conference import prompts, protocol

TOOL = "tool"  # Step and slot of the first tool call; later ones have numbers.

TOOL_NOT_ALLOWED, TOOL_REQUIRED = "tool_not_allowed", "tool_required"
"""Codes: a tool call that the server refuses, and a chief that had to call a tool but has no successful call."""

CHIEF = "chief"
_NAME_CHARACTERS = 80


class Gathering:
    """Phase 1: the chief calls tools, turn by turn."""

    def __init__(self, ctx: ports.Context, progress: protocol.StepCounter) -> None:
        self._ctx = ctx
        self._progress = progress
        self._tools: Mapping[str, Mapping[str, Any]] = ctx.run.frozen["tools"]
        self._called: list[prompts.Called] = []
        self._turns = 0
        self._problem: str | None = None
        self._corrected = False

    async def gather(self) -> Sequence[prompts.Called]:
        """Return all calls, in order."""
        while self._calls_left and await self._goes_on():
            pass
        if self._must_call:
            raise self._nothing_brought()
        return self._called

    async def _goes_on(self) -> bool:
        turn = await self._turn()
        self._problem = None
        match self._held_to_rules(turn):
            case protocol.Call() as call:
                await self._call(call)
            case protocol.Done():
                return False
            case protocol.Unusable(problem=problem):
                # A faulty turn is corrected once; after a second one, the chief is not asked again.
                reported, self._corrected, self._problem = self._corrected, True, problem
                return not reported
        return True

    def _held_to_rules(self, turn: protocol.Turn) -> protocol.Turn:
        match turn:
            case protocol.Call() if self._has_called(turn):
                return protocol.Unusable(problem="asks for a call that was made already; what came of it stands above")
            case protocol.Done() if self._must_call:
                before = "a call has brought anything" if self._called else "a tool was called"
                return protocol.Unusable(problem=f"ended the gathering before {before}")
        return turn

    async def _turn(self) -> protocol.Turn:
        self._turns += 1
        chief: Mapping[str, Any] = self._ctx.run.frozen["chief"]
        call = frozen_agents.call(
            chief,
            self._prompt(),
            chief["role"],
            may_abstain=True,
            reply_schema=protocol.reply_schema(self._tools, must_call=self._must_call),
            may_be_blank=True,
        )
        place = records.Place(step_id=CHIEF, input_slot_refs=protocol.slots_of(self._called), visit=self._turns)
        record = await self._ctx.perform(self._key, call, place)
        if not record.done:
            raise protocol.failed(record, "The chief could not be asked", "chief_failed")
        self._progress.finish()
        # A reply of this size would not fit the next prompt either.
        if record.blob is not None:
            return protocol.Unusable(problem="is far too long")
        return protocol.read(str(record.output or ""), exact=self._ctx.run.driver_version > 1)

    def _prompt(self) -> tuple[str, ...]:
        run = self._ctx.run
        return prompts.chief(
            run.args["message"],
            self._tools,
            self._called,
            calls_left=self._calls_left,
            must_call=self._must_call,
            problem=self._problem,
            # The list of the tools needs room, too.
            characters=run.recipe["evidence_characters"] // 2,
        )

    async def _call(self, call: protocol.Call) -> None:
        number = len(self._called) + 1
        key, tool = _numbered(TOOL, number), _tool_name(call)
        allowed = call.tool in self._tools
        place = records.Place(step_id=TOOL, output_slot=key if allowed else None, visit=number)
        requested = operations.ToolCall(tool=call.tool, args=call.args) if allowed else self._refusal(tool)
        record = await self._ctx.perform(key, requested, place)
        self._progress.finish()
        brought = await self._payload(record) if record.done else None
        if record.done:
            # A pointer, so that later prompts refer to the result and its receipt.
            self._ctx.fill(key, slots.pointer(record))
        self._called.append(
            prompts.Called(
                key=key,
                tool=tool,
                args=call.args,
                receipt_id=record.receipt_id,
                summary=record.summary,
                payload=brought,
                error=record.error,
            )
        )

    def _has_called(self, call: protocol.Call) -> bool:
        # Tools read the same files every time; a repeated call costs money and gives the same result.
        requested = (_tool_name(call), plain.canonical(call.args))
        return any(requested == (each.tool, plain.canonical(each.args)) for each in self._called)

    def _refusal(self, tool: str) -> operations.Refusal:
        allowed = list(self._tools)
        message = f"The tool {tool!r} is not allowed in this conference; there are {', '.join(allowed)}."
        return operations.Refusal(
            code=TOOL_NOT_ALLOWED, message=message, detail={"tool": tool, "allowed": allowed}, tool=tool
        )

    async def _payload(self, record: records.Record) -> prompts.Payload:
        value = record.output if record.blob is None else await self._ctx.read(record.blob)
        return prompts.payload(value, self._ctx.run.recipe["evidence_characters"])

    def _nothing_brought(self) -> errors.RunFailed:
        message, failed = "The chief called no tool, though this conference needs at least one call.", []
        if self._called:
            message = "No call of the chief has brought anything, though this conference needs one that does."
            failed = [call.facts() for call in self._called if not call.refused]
        detail = {"problem": self._problem, "refused": [call.tool for call in self._called if call.refused]}
        key = self._key
        return errors.RunFailed(
            message,
            code=TOOL_REQUIRED,
            reason=TOOL_REQUIRED,
            key=key,
            detail=detail | ({"failed": failed} if failed else {}),
            causes=(key,),
        )

    @property
    def _key(self) -> str:
        return _numbered(CHIEF, self._turns)

    @property
    def _calls_left(self) -> int:
        most: int = self._ctx.run.recipe["max_tool_calls"]
        return most - len(self._called)

    @property
    def _must_call(self) -> bool:
        return self._ctx.run.recipe["require_tool"] and all(call.payload is None for call in self._called)


def _tool_name(call: protocol.Call) -> str:
    return " ".join(call.tool.split())[:_NAME_CHARACTERS]


def _numbered(key: str, visit: int) -> str:
    return key if visit == 1 else f"{key}#{visit}"
