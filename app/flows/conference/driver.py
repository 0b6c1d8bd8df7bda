"""The driver: the chief gathers evidence, every participant gives an opinion on it, and the round is closed."""

# An opinion without its evidence is not requested again: the other opinions are paid for, and a conference is useful
# as soon as one opinion is accepted. If none is accepted or abstained, the run fails, and a resume asks exactly those
# agents again.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from app import errors
from app.domain import abstentions, evidence, frozen_agents, plain, records, runs, slots, states
from app.engine import ports
from app.flows.conference import gathering, prompts, protocol, transcript

TRANSCRIPT = "transcript"  # Step that closes the round, and name of its slot.
NO_OPINION = "no_opinion"  # Code of a run without an accepted opinion or an abstention.

_Agent: TypeAlias = Mapping[str, Any]
_Called: TypeAlias = Sequence[prompts.Called]


async def drive(ctx: ports.Context) -> runs.Ending:
    """Hold the conference frozen in the run (execution-modes, mode A)."""
    progress = protocol.StepCounter(ctx)
    called = await gathering.Gathering(ctx, progress).gather() if ctx.run.frozen["tools"] else ()
    opinions = await _Round(ctx, progress, called).ask()
    return await _close(ctx, progress, called, opinions)


def opinion_key(agent_id: str) -> str:
    """Return the key of an agent's opinion; the key of its evidence ends with `.evidence`."""
    return f"opinion.{agent_id}"


class _Round:
    def __init__(self, ctx: ports.Context, progress: protocol.StepCounter, called: _Called) -> None:
        self._ctx = ctx
        self._progress = progress
        self._called = called
        self._sources = protocol.slots_of(called)
        self._prompt = prompts.opinion(ctx.run.args["message"], called, ctx.run.recipe["evidence_characters"])

    async def ask(self) -> Sequence[transcript.Opinion]:
        participants: Sequence[_Agent] = self._ctx.run.frozen["participants"]
        answered = await self._ctx.gather({agent["id"]: self._opinion(agent) for agent in participants})
        return list(answered.values())

    async def _opinion(self, agent: _Agent) -> transcript.Opinion:
        key = opinion_key(agent["id"])
        record = await self._asked(key, agent)
        # The transcript reports a failed opinion; the failure does not end the conference.
        if not record.done:
            return _opinion(agent, "failed", error=record.error, causes=(key,))
        self._progress.finish()
        text = str(record.output if record.blob is None else await self._ctx.read(record.blob))
        why = abstentions.reason(text)
        if why is not None:
            # An abstention counts as one: it was asked for and paid for.
            self._ctx.fill(agent["id"], slots.artifact(record, agent["id"]))
            return _opinion(agent, "abstained", text=text, why=why)
        checked = await self._checked(key, agent, text)
        if not checked.done and checked.status is not states.StepState.SKIPPED:
            return _opinion(agent, "rejected", text=text, error=checked.error, causes=(key, checked.key))
        self._ctx.fill(agent["id"], slots.artifact(record, agent["id"]))
        return _opinion(agent, "accepted", text=text, evidence=checked.output if checked.done else None)

    async def _asked(self, key: str, agent: _Agent) -> records.Record:
        system = prompts.standing(agent["role"], self._requirement(agent), self._called)
        place = records.Place(
            step_id=key, output_slot=agent["id"], input_slot_refs=self._sources, instructions=prompts.INTERPRET
        )
        return await self._ctx.perform(key, frozen_agents.call(agent, self._prompt, system, may_abstain=True), place)

    async def _checked(self, key: str, agent: _Agent, text: str) -> records.Record:
        reading = evidence.read(text, self._requirement(agent))
        return await self._ctx.perform(f"{key}.evidence", evidence.operation(reading))

    def _requirement(self, agent: _Agent) -> str:
        # In the first driver version, agents that owe no evidence owed none in conferences either.
        free = agent["evidence"] == "none" and self._ctx.run.driver_version > 1
        return "any" if free else str(agent["evidence"])


async def _close(
    ctx: ports.Context, progress: protocol.StepCounter, called: _Called, opinions: Sequence[transcript.Opinion]
) -> runs.Ending:
    # If every agent failed, there is no result to store, and a resume asks the agents again.
    if any(opinion.verdict != "failed" for opinion in opinions):
        await _keep(ctx, progress, called, opinions)
    if not any(opinion.stands for opinion in opinions):
        raise _nothing_stands(opinions)
    failed = tuple(opinion.causes[-1] for opinion in opinions if not opinion.stands)
    return runs.Ending(partial=bool(failed), failed_steps=failed)


async def _keep(
    ctx: ports.Context, progress: protocol.StepCounter, called: _Called, opinions: Sequence[transcript.Opinion]
) -> None:
    held = transcript.Transcript(
        message=ctx.run.args["message"], called=called, opinions=opinions, driver_version=ctx.run.driver_version
    )
    sources = (*protocol.slots_of(called), *(opinion.agent_id for opinion in opinions if opinion.stands))
    place = records.Place(step_id=TRANSCRIPT, output_slot=TRANSCRIPT, input_slot_refs=sources)
    record = await ctx.perform(TRANSCRIPT, held.issue(), place)
    if not record.done:
        raise protocol.failed(record, "The transcript could not be kept", "transcript_failed")
    ctx.fill(TRANSCRIPT, _transcript_slot(held.text()))
    progress.finish()


def _opinion(
    agent: _Agent, verdict: transcript.OpinionStatus, *, error: records.StepError | None = None, **facts: Any
) -> transcript.Opinion:
    reported = {} if error is None else {"why": error.message, "code": error.code}
    return transcript.Opinion(agent_id=agent["id"], archetype=agent["archetype"], verdict=verdict, **(reported | facts))


def _transcript_slot(text: str) -> slots.Slot:
    return slots.Slot(
        type="artifact",
        text=text,
        sha256=plain.sha256(plain.content(text)),
        summary=plain.preview(text),
        key=TRANSCRIPT,
    )


def _nothing_stands(opinions: Sequence[transcript.Opinion]) -> errors.RunFailed:
    reported = {
        opinion.agent_id: {"verdict": opinion.verdict, "code": opinion.code, "message": plain.preview(opinion.why)}
        for opinion in opinions
    }
    causes = [cause for opinion in opinions for cause in opinion.causes]
    return errors.RunFailed(
        f"No opinion stands: {transcript.counted(opinions)}.",
        code=NO_OPINION,
        reason=NO_OPINION,
        key=causes[0],
        detail={"opinions": reported},
        causes=causes,
    )
