"""
The driver: the chief gathers evidence, every participant says what it thinks of it, and the round is closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from app import errors
from app.dialects import evidence
from app.dialects.conference import prompts, protocol, transcript
from app.engine import operations, plain, ports, records, runs, slots, states

TRANSCRIPT = "transcript"
"""Step that closes the round, and its slot."""

TOOL = "tool"
"""Step and slot of the first tool call; those of later ones are numbered."""

TOOL_NOT_ALLOWED, TOOL_REQUIRED, NO_OPINION = "tool_not_allowed", "tool_required", "no_opinion"
"""Codes: a call that the server refuses, a chief that called nothing though it had to, and no answer that stands."""

_CHIEF = "chief"
_NAME_CHARACTERS = 80

_Agent: TypeAlias = Mapping[str, Any]
_Called: TypeAlias = Sequence[prompts.Called]


async def drive(ctx: ports.Context) -> runs.Ending:
    """
    Hold the conference frozen in the run (execution-modes, mode A).

    Raises:
        errors.RunFailed: the chief could not be asked or called no tool though it had to, no opinion stands, or the
            transcript could not be kept.
    """
    progress = _Progress(ctx)
    called = await _Gathering(ctx, progress).gather() if ctx.run.frozen["tools"] else ()
    opinions = await _Round(ctx, progress, called).ask()
    return await _close(ctx, progress, called, opinions)


def opinion_key(agent_id: str) -> str:
    """
    Return the key of an agent's opinion; that of its evidence has `.evidence` behind it.
    """
    return f"opinion.{agent_id}"


class _Progress:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._finished = 0
        self._ctx.show(slots.Progress())

    def finish(self) -> None:
        self._finished += 1
        self._ctx.show(slots.Progress(finished_steps=self._finished))


class _Gathering:
    """
    Phase 1: the chief calls tools, turn by turn.
    """

    def __init__(self, ctx: ports.Context, progress: _Progress) -> None:
        self._ctx = ctx
        self._progress = progress
        self._tools: Mapping[str, Mapping[str, Any]] = ctx.run.frozen["tools"]
        self._called: list[prompts.Called] = []
        self._turns = 0
        self._problem: str | None = None
        self._corrected = False

    async def gather(self) -> _Called:
        while self._calls_left and await self._goes_on():
            pass
        if self._must_call:
            raise self._nothing_called()
        return self._called

    async def _goes_on(self) -> bool:
        turn = await self._turn()
        self._problem = None
        if isinstance(turn, protocol.Call) and self._has_called(turn):
            turn = protocol.Unusable(problem="asks for a call that was made already; what came of it stands above")
        match turn:
            case protocol.Call():
                await self._call(turn)
            case protocol.Done():
                return False
            case protocol.Unusable():
                # It is told once; whoever cannot answer then is not asked for ever.
                told, self._corrected, self._problem = self._corrected, True, turn.problem
                return not told
        return True

    async def _turn(self) -> protocol.Turn:
        self._turns += 1
        chief: _Agent = self._ctx.run.frozen["chief"]
        call = _agent_call(
            chief,
            self._prompt(),
            chief["role"] or None,
            reply_schema=protocol.reply_schema(self._tools, must_call=self._must_call),
            may_be_blank=True,
        )
        place = records.Place(step_id=_CHIEF, input_slot_refs=_slots_of(self._called), visit=self._turns)
        record = await self._ctx.perform(self._key, call, place)
        if not record.done:
            raise _step_failed(record, "The chief could not be asked", "chief_failed")
        self._progress.finish()
        if record.blob is not None:
            return protocol.Unusable(problem="is far too long")
        return protocol.read(str(record.output or ""), must_call=self._must_call)

    def _prompt(self) -> tuple[str, ...]:
        run = self._ctx.run
        return prompts.chief(
            run.args["message"],
            self._tools,
            self._called,
            calls_left=self._calls_left,
            must_call=self._must_call,
            problem=self._problem,
            # The listing of the tools needs room, too.
            characters=run.recipe["evidence_characters"] // 2,
        )

    async def _call(self, call: protocol.Call) -> None:
        number = len(self._called) + 1
        key, tool = _numbered(TOOL, number), _tool_name(call)
        allowed = call.tool in self._tools
        place = records.Place(step_id=TOOL, output_slot=key if allowed else None, visit=number)
        asked = operations.ToolCall(tool=call.tool, args=call.args) if allowed else self._refusal(tool)
        record = await self._ctx.perform(key, asked, place)
        self._progress.finish()
        brought = await self._payload(record) if record.done else None
        if record.done:
            self._ctx.fill(key, _pointer(record))
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
        # Tools look at the same files every time; whoever asks again learns nothing, and is paid for it.
        asked = (_tool_name(call), plain.canonical(call.args))
        return any(asked == (each.tool, plain.canonical(each.args)) for each in self._called)

    def _refusal(self, tool: str) -> operations.Refusal:
        allowed = list(self._tools)
        message = f"The tool {tool!r} is not allowed in this conference; there are {', '.join(allowed)}."
        return operations.Refusal(
            code=TOOL_NOT_ALLOWED, message=message, detail={"tool": tool, "allowed": allowed}, tool=tool
        )

    async def _payload(self, record: records.Record) -> prompts.Payload:
        value = record.output if record.blob is None else await self._ctx.read(record.blob)
        return prompts.payload(value, self._ctx.run.recipe["evidence_characters"])

    def _nothing_called(self) -> errors.RunFailed:
        message = "The chief called no tool, though this conference needs at least one call."
        detail = {"problem": self._problem, "refused": [call.tool for call in self._called]}
        key = self._key
        return errors.RunFailed(
            message, code=TOOL_REQUIRED, reason=TOOL_REQUIRED, key=key, detail=detail, causes=(key,)
        )

    @property
    def _key(self) -> str:
        return _numbered(_CHIEF, self._turns)

    @property
    def _calls_left(self) -> int:
        most: int = self._ctx.run.recipe["max_tool_calls"]
        return most - len(self._called)

    @property
    def _must_call(self) -> bool:
        return self._ctx.run.recipe["require_tool"] and all(call.refused for call in self._called)


class _Round:
    """
    Phase 2: everybody is asked at once, each with the same prompt.
    """

    def __init__(self, ctx: ports.Context, progress: _Progress, called: _Called) -> None:
        self._ctx = ctx
        self._progress = progress
        self._called = called
        self._sources = _slots_of(called)
        self._prompt = prompts.opinion(ctx.run.args["message"], called, ctx.run.recipe["evidence_characters"])

    async def ask(self) -> Sequence[transcript.Opinion]:
        participants: Sequence[_Agent] = self._ctx.run.frozen["participants"]
        answered = await self._ctx.gather({agent["id"]: self._opinion(agent) for agent in participants})
        return list(answered.values())

    async def _opinion(self, agent: _Agent) -> transcript.Opinion:
        key = opinion_key(agent["id"])
        record = await self._asked(key, agent)
        if not record.done:
            return _opinion(agent, "failed", error=record.error, causes=(key,))
        self._progress.finish()
        text = str(record.output if record.blob is None else await self._ctx.read(record.blob))
        why = evidence.abstention(text)
        if why is not None:
            self._ctx.fill(agent["id"], _artifact(agent["id"], record))
            return _opinion(agent, "abstained", text=text, why=why)
        checked = await self._checked(key, agent, text)
        if not checked.done and checked.status is not states.StepState.SKIPPED:
            return _opinion(agent, "rejected", text=text, error=checked.error, causes=(key, checked.key))
        self._ctx.fill(agent["id"], _artifact(agent["id"], record))
        return _opinion(agent, "accepted", text=text, evidence=checked.output if checked.done else None)

    async def _asked(self, key: str, agent: _Agent) -> records.Record:
        system = prompts.standing(agent["role"], agent["evidence"], self._called)
        place = records.Place(step_id=key, output_slot=agent["id"], input_slot_refs=self._sources)
        return await self._ctx.perform(key, _agent_call(agent, self._prompt, system), place)

    async def _checked(self, key: str, agent: _Agent, text: str) -> records.Record:
        reading = evidence.read(text, agent["evidence"])
        return await self._ctx.perform(f"{key}.evidence", evidence.operation(reading))


async def _close(
    ctx: ports.Context, progress: _Progress, called: _Called, opinions: Sequence[transcript.Opinion]
) -> runs.Ending:
    if any(opinion.verdict != "failed" for opinion in opinions):
        await _keep(ctx, progress, called, opinions)
    if not any(opinion.stands for opinion in opinions):
        raise _nothing_stands(opinions)
    failed = tuple(opinion.causes[-1] for opinion in opinions if not opinion.stands)
    return runs.Ending(partial=bool(failed), failed_steps=failed)


async def _keep(
    ctx: ports.Context, progress: _Progress, called: _Called, opinions: Sequence[transcript.Opinion]
) -> None:
    held = transcript.Transcript(message=ctx.run.args["message"], called=called, opinions=opinions)
    sources = (*_slots_of(called), *(opinion.agent_id for opinion in opinions if opinion.stands))
    place = records.Place(step_id=TRANSCRIPT, output_slot=TRANSCRIPT, input_slot_refs=sources)
    record = await ctx.perform(TRANSCRIPT, held.issue(), place)
    if not record.done:
        raise _step_failed(record, "The transcript could not be kept", "transcript_failed")
    ctx.fill(TRANSCRIPT, _transcript_slot(held.text()))
    progress.finish()


def _tool_name(call: protocol.Call) -> str:
    return " ".join(call.tool.split())[:_NAME_CHARACTERS]


def _numbered(key: str, visit: int) -> str:
    return key if visit == 1 else f"{key}#{visit}"


def _slots_of(called: _Called) -> tuple[str, ...]:
    return tuple(call.key for call in called if call.payload is not None)


def _agent_call(agent: _Agent, prompt: tuple[str, ...], system: str | None, **more: Any) -> operations.AgentCall:
    return operations.AgentCall(
        agent_id=agent["id"],
        archetype=agent["archetype"],
        backend=agent["backend"],
        model=agent["model"],
        prompt=prompt,
        system=system,
        may_abstain=True,
        **more,
    )


def _opinion(
    agent: _Agent, verdict: transcript.Verdict, *, error: records.StepError | None = None, **facts: Any
) -> transcript.Opinion:
    told = {} if error is None else {"why": error.message, "code": error.code}
    return transcript.Opinion(agent_id=agent["id"], archetype=agent["archetype"], verdict=verdict, **(told | facts))


def _pointer(record: records.Record) -> slots.Slot:
    return slots.Slot(
        type="pointer",
        receipt_id=record.receipt_id,
        sha256=record.output_sha256 or "",
        summary=record.summary,
        key=record.key,
    )


def _artifact(agent_id: str, record: records.Record) -> slots.Slot:
    return slots.Slot(
        type="artifact",
        agent_id=agent_id,
        text=record.output,
        blob=record.blob,
        sha256=record.output_sha256 or "",
        summary=record.summary,
        key=record.key,
    )


def _transcript_slot(text: str) -> slots.Slot:
    return slots.Slot(
        type="artifact",
        text=text,
        sha256=plain.sha256(plain.content(text)),
        summary=plain.preview(text),
        key=TRANSCRIPT,
    )


def _step_failed(record: records.Record, what: str, reason: str) -> errors.RunFailed:
    error = record.error or records.StepError(code="step_failed", message=record.status.value)
    return errors.RunFailed(
        f"{what}: {error.message}",
        code=error.code,
        reason=reason,
        key=record.key,
        detail=dict(error.detail),
        causes=(record.key,),
    )


def _nothing_stands(opinions: Sequence[transcript.Opinion]) -> errors.RunFailed:
    told = {
        opinion.agent_id: {"verdict": opinion.verdict, "code": opinion.code, "message": plain.preview(opinion.why)}
        for opinion in opinions
    }
    causes = [cause for opinion in opinions for cause in opinion.causes]
    return errors.RunFailed(
        f"No opinion stands: {transcript.counted(opinions)}.",
        code=NO_OPINION,
        reason=NO_OPINION,
        key=causes[0],
        detail={"opinions": told},
        causes=causes,
    )
