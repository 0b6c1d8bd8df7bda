"""The driver: execute tools, agents, outputs, findings and the definition of done, in this order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from app.dialects.control_room import done, findings, prompts, refs
from app.domain import abstentions, evidence, frozen_agents, operations, plain, records, runs, slots, states
from app.engine import ports


async def drive(ctx: ports.Context) -> runs.Ending:
    """Execute the pipeline frozen in the run."""
    pipeline = _Pipeline(ctx)
    await pipeline.call_tools()
    await pipeline.ask_agents()
    # Outputs are written before the checks, which may examine the files. Findings are opened before the checks as well,
    # so that they remain if the definition of done is not met; only a run that is done closes findings.
    await pipeline.commit_outputs()
    await pipeline.open_findings()
    await pipeline.check_done()
    await pipeline.close_findings()
    return runs.Ending()


class _Pipeline:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._recipe = ctx.run.recipe
        self._values = refs.Values(ctx)
        self._tool_steps: Sequence[plain.Object] = self._recipe.get("phase_a", ())
        self._agent_steps: Sequence[plain.Object] = self._recipe.get("phase_b", ())
        self._finished = 0
        self._opened: Sequence[records.Record] = ()
        self._cut_off = False

    async def call_tools(self) -> None:
        self._show("a")
        for index, step in enumerate(self._tool_steps):
            await self._call_tool(step, index)
            self._show("a", finished=1)

    async def ask_agents(self) -> None:
        self._show("b")
        for index, step in enumerate(self._agent_steps, start=len(self._tool_steps)):
            await self._ask_agent(step, index)
            self._show("b", finished=1)

    async def commit_outputs(self) -> None:
        self._show("dod")
        await done.commit_outputs(self._ctx, self._values)

    async def open_findings(self) -> None:
        self._opened = await findings.open_all(self._ctx, self._values)

    async def check_done(self) -> None:
        await done.check(self._ctx, self._values)

    async def close_findings(self) -> None:
        # A run that is only partly done closes no findings.
        if not self._cut_off:
            await findings.close_gone(self._ctx, self._values, self._opened)

    # -- phase a

    async def _call_tool(self, step: plain.Object, index: int) -> None:
        key, params = step["step_id"], self._given(step.get("args", {}))
        place = _place(step, index, "a", refs.sources(refs.read(found["$ref"]) for _, found in refs.found_in(params)))
        try:
            args = await self._values.resolved(params)
        except refs.BrokenReference as error:
            raise await done.refused(self._ctx, self._values, key, place, error, tool=step["tool"]) from error
        call = operations.ToolCall(tool=step["tool"], args=args, **_limits(step))
        record = done.successful(await self._ctx.perform(key, call, place))
        looked_at = findings.paths_of(args)
        filled = refs.Filled(slot=slots.pointer(record), value=record.output, blob=record.blob, looked_at=looked_at)
        self._values.fill(step["output_slot"], filled)

    def _given(self, args: plain.Object) -> dict[str, plain.Json]:
        return {name: value for name, value in args.items() if not self._left_out(value)}

    def _left_out(self, value: plain.Json) -> bool:
        schema = self._recipe.get("args_schema")
        if schema is None or not refs.is_reference(value):
            return False
        arg = refs.read(value["$ref"]).arg
        return arg is not None and arg not in schema.get("required", ()) and arg not in self._ctx.run.args

    # -- phase b

    async def _ask_agent(self, step: plain.Object, index: int) -> None:
        prompt = self._ctx.run.frozen["prompts"][step["step_id"]]
        if prompt["tier"] == "t1":
            await self._ask_in_micro_steps(step, index, prompts.micro_parts(prompt["template"]))
            return
        place = _place(step, index, "b", refs.sources(prompts.named(prompt["template"])))
        key, wanted = step["step_id"], self._evidence_request(step)
        record = await self._ask(key, step, place, prompt["template"], closing=wanted)
        if step.get("evidence"):
            await self._check_evidence(step, index, [key], await self._text(record))
        self._keep(step, key, record, record.output)

    async def _ask_in_micro_steps(self, step: plain.Object, index: int, parts: Mapping[str, str]) -> None:
        earlier: dict[str, str] = {}
        keys = {name: f"{step['step_id']}.{name}" for name in prompts.MICRO_STEPS}
        for name, key in keys.items():
            place = _place(step, index, "b", refs.sources(prompts.named(parts[name])))
            is_last = name == prompts.MICRO_STEPS[-1]
            if not is_last:
                place = dataclasses.replace(place, output_slot=None)
            closing = self._evidence_request(step) if is_last else ""
            record = await self._ask(key, step, place, parts[name], earlier, closing)
            earlier[name] = (await self._text(record)).strip()
        text = f"{earlier['finding']}\n\n{earlier['evidence']}"
        if step.get("evidence"):
            await self._check_evidence(step, index, list(keys.values()), text)
        # A resume that doubts the slot must repeat all three, so the slot has the key of the first.
        self._keep(step, keys[prompts.MICRO_STEPS[0]], None, text)

    async def _ask(
        self,
        key: str,
        step: plain.Object,
        place: records.Place,
        template: str,
        earlier: Mapping[str, str] | None = None,
        closing: str = "",
    ) -> records.Record:
        archetype = step["agent_archetype"]
        agent = self._ctx.run.frozen["agents"][archetype]
        try:
            body = [await self._injected(piece) for piece in prompts.pieces(template)] + ([closing] if closing else [])
        except refs.BrokenReference as error:
            facts = {"agent_id": agent["id"], "archetype": archetype}
            raise await done.refused(self._ctx, self._values, key, place, error, **facts) from error
        prompt = prompts.joined([prompts.opening(self._ctx.run.description, earlier or {}), *body])
        call = frozen_agents.call(agent, prompt, agent["role"], **_limits(step), **frozen_agents.limits(step))
        if earlier is None and not closing and call.on_cut_off == "fail":
            # A micro-step does not fit the schema, nor does an object that evidence follows or that is cut off.
            call = dataclasses.replace(call, reply_schema=step.get("reply_schema"))
        place = dataclasses.replace(place, instructions=prompts.instructions(template) + closing)
        record = done.successful(await self._ctx.perform(key, call, place))
        self._cut_off = self._cut_off or record.finish is not None
        return _said_something(record)

    async def _injected(self, piece: str | refs.Reference) -> plain.Json:
        if isinstance(piece, str):
            return piece
        if piece.root == refs.TASK or piece.steps:
            return prompts.text_of(piece, await self._values.follow(piece))
        filled = self._values.of(piece.root)
        return filled.slot.summary if filled.slot.type == "pointer" else filled.part

    async def _text(self, record: records.Record) -> str:
        return str(record.output if record.blob is None else await self._ctx.read(record.blob))

    def _evidence_request(self, step: plain.Object) -> str:
        if not step.get("evidence"):
            return ""
        agent = self._ctx.run.frozen["agents"][step["agent_archetype"]]
        receipts = {slot: name for slot in step["input_slots"] for name in self._values.receipts(slot)}
        return evidence.request(agent["evidence"], receipts)

    async def _check_evidence(self, step: plain.Object, index: int, keys: Sequence[str], reply: str) -> None:
        agent = self._ctx.run.frozen["agents"][step["agent_archetype"]]
        reading = evidence.read(reply, agent["evidence"])
        place = records.Place(step_id=step["step_id"], step_index=index, phase="b")
        record = await self._ctx.perform(f"{keys[-1]}.evidence", evidence.operation(reading), place)
        if record.status is not states.StepState.SKIPPED and not record.done:
            raise done.evidence_rejected(record, step["step_id"], keys)

    def _keep(self, step: plain.Object, key: str, record: records.Record | None, text: str | None) -> None:
        whole = record.output_sha256 if record is not None else plain.sha256(plain.content(text))
        agent = self._ctx.run.frozen["agents"][step["agent_archetype"]]
        blob = record.blob if record is not None else None
        slot = slots.Slot(
            type="artifact",
            agent_id=agent["id"],
            text=text,
            blob=blob,
            sha256=whole or "",
            summary=record.summary if record is not None else plain.preview(text),
            key=key,
        )
        self._values.fill(step["output_slot"], refs.Filled(slot=slot, value=text, blob=blob))

    def _show(self, phase: str, *, finished: int = 0) -> None:
        self._finished += finished
        total = len(self._tool_steps) + len(self._agent_steps)
        self._ctx.show(slots.Progress(phase=phase, finished_steps=self._finished, total_steps=total))


def _place(step: plain.Object, index: int, phase: str, sources: tuple[str, ...]) -> records.Place:
    return records.Place(
        step_id=step["step_id"], step_index=index, phase=phase, output_slot=step["output_slot"], input_slot_refs=sources
    )


def _limits(step: plain.Object) -> dict[str, plain.Json]:
    return {name: step[name] for name in ("timeout_seconds", "on_interrupted") if name in step}


def _said_something(record: records.Record) -> records.Record:
    if record.blob is not None:
        return record
    reply = str(record.output or "").strip()
    reason = abstentions.reason(reply)
    if not reply:
        raise done.step_failed(record.key, "empty_reply", "the agent returned nothing")
    if reason is not None:
        raise done.step_failed(record.key, "abstained", f"the agent abstained: {reason}")
    return record
