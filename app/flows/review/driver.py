"""The driver: read the files, ask the chief once, request one correction, and ask a person if the chief is unsure."""

# Why: docs/decisions/0272.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import errors
from app.domain import file_operations, frozen_agents, json_schemas, operations, plain, records, runs, slots
from app.domain.plans import BY_CHIEF
from app.domain.task_reviews import BY_PERSON, Verdict
from app.engine import ports
from app.flows.review import prompts, replies

FILES = "files"  # Step that reads the files that the task's run has written.

REVIEW = "review"
"""Step that asks the chief, and slot of the result; the keys of evidence and correction add a name after a dot."""

DECIDE = "decide"  # Step that asks a person.
STEPS = 2  # Steps of a review.
TIMEOUT_SECONDS = 60 * 60.0  # Longest wait for a reply.

_FILE_BYTES = 256 * 1024
_FAULTY = frozenset({"empty_reply", "reply_cut_off", "reply_degenerate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    text: str = ""
    reply: replies.Reply | None = None
    flaws: tuple[errors.Flaw, ...] = ()
    fault: str | None = None


async def drive(ctx: ports.Context) -> runs.Ending:
    """Have the task judged, and store the verdict."""
    return await _Reviewing(ctx).drive()


class _Reviewing:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._args: Any = ctx.run.args
        self._agent: Any = ctx.run.frozen["agent"]
        self._outputs: Sequence[prompts.Shown] = ()

    async def drive(self) -> runs.Ending:
        self._show(0)
        self._outputs = await self._read_outputs()
        why: str | None = self._args.get("person")
        judgement = (
            _Judgement(fault=why or "no chief may judge") if why or self._agent is None else await self._judged()
        )
        self._show(1)
        reply = judgement.reply
        if reply is not None and reply.verdict is not Verdict.UNSURE:
            result = {"verdict": reply.verdict.value, "by": BY_CHIEF, "why": reply.why, "evidence": reply.evidence}
        else:
            result = await self._asked_person(judgement)
        result["proposals"] = plain.plain(list(reply.proposals)) if reply is not None else []
        self._keep(result)
        self._show(STEPS)
        return runs.Ending(reason=str(result["verdict"]))

    async def _read_outputs(self) -> list[prompts.Shown]:
        outputs = self._args.get("outputs") or ()
        # Each file once, even if several outputs are in it.
        paths = tuple(dict.fromkeys(each["path"] for each in outputs if each.get("path")))
        files: Any = {}
        if paths:
            asked = file_operations.ReadFiles(excerpts=paths, excerpt_bytes=_FILE_BYTES)
            record = await self._ctx.perform(FILES, asked, records.Place(step_id=FILES, step_index=0))
            files = (await self._output(record))["files"] if record.done else {}
        return [_shown(each, files) for each in outputs]

    # -- the chief

    async def _judged(self) -> _Judgement:
        size = prompts.SIZES[self._agent["tier"]]
        requested = prompts.request(self._args, self._outputs, size)
        judgement = await self._asked(REVIEW, requested, size)
        # A faulty reply is corrected once; a second one goes to a person.
        if judgement.flaws:
            again = prompts.correction(requested, judgement.text, judgement.flaws)
            judgement = await self._asked(f"{REVIEW}.correction", again, size)
        if judgement.flaws:
            first = judgement.flaws[0]
            return _Judgement(fault=f"the chief gave no valid verdict: {first.path}: {first.message}")
        return judgement

    async def _asked(self, key: str, prompt: str, size: prompts.Size) -> _Judgement:
        call = frozen_agents.call(
            self._agent,
            (prompt,),
            prompts.system(self._agent["role"]),
            reply_schema=prompts.REPLY,
            max_tokens=size.tokens,
            on_cut_off="fail",
            timeout_seconds=TIMEOUT_SECONDS,
            # An empty reply is a faulty reply, and asked for once more.
            may_abstain=True,
            may_be_blank=True,
        )
        record = await self._ctx.perform(key, call, records.Place(step_id=REVIEW, step_index=0, output_slot=REVIEW))
        if record.error is not None and record.error.code in _FAULTY:
            return _Judgement(flaws=(json_schemas.flaw((), record.error.code, record.error.message),))
        if record.error is not None:
            return _Judgement(fault=f"the chief could not be asked: {record.error.message}")
        text = str(await self._output(record))
        try:
            reply = replies.read(text)
        except errors.InputRefused as refused:
            return _Judgement(text=text, flaws=refused.flaws)
        if reply.verdict is not Verdict.UNSURE:
            # A verdict counts only if its evidence exists.
            checked = await self._ctx.perform(f"{key}.evidence", replies.check(reply, self._outputs))
            if checked.error is not None:
                flaw = json_schemas.flaw(("evidence",), checked.error.code, checked.error.message)
                return _Judgement(text=text, flaws=(flaw,))
        return _Judgement(text=text, reply=reply)

    # -- a person

    async def _asked_person(self, judgement: _Judgement) -> dict[str, plain.Json]:
        unsure = "" if judgement.reply is None else f"the chief is unsure: {judgement.reply.why}"
        prompt = prompts.gate(self._args, self._outputs, (judgement.fault or unsure).strip().rstrip("."))
        options = (Verdict.MET.value, Verdict.NOT_MET.value)
        gate = operations.Gate(prompt=prompt, options=options, denials=())
        record = await self._ctx.gate(DECIDE, gate, records.Place(step_id=DECIDE, step_index=1, output_slot=REVIEW))
        answer = await self._output(record)
        why = answer["message"].strip() or None
        return {"verdict": answer["decision"], "by": BY_PERSON, "why": why, "evidence": None}

    def _keep(self, result: dict[str, plain.Json]) -> None:
        text = plain.encode(result).decode()
        slot = slots.Slot(
            type="artifact",
            agent_id=self._agent["id"] if result["by"] == BY_CHIEF else None,
            text=text,
            sha256=plain.sha256(text.encode()),
            summary=plain.preview(f"{result['verdict']}: {result['why'] or ''}"),
            key=REVIEW,
        )
        self._ctx.fill(REVIEW, slot)

    def _show(self, finished: int) -> None:
        self._ctx.show(slots.Progress(finished_steps=finished, total_steps=STEPS))

    async def _output(self, record: records.Record) -> Any:
        return record.output if record.blob is None else await self._ctx.read(record.blob)


def _shown(output: plain.Object, files: plain.Object) -> prompts.Shown:
    path = output.get("path")
    if not path:
        return prompts.Shown(
            name=output["name"], path=None, text=output["text"], characters=output.get("characters", 0)
        )
    file = files.get(path) or {}
    text, size_bytes = file.get("text"), file.get("size_bytes") or 0
    # If the text is as long as the file, all of the file was read.
    is_whole = text is not None and len(text.encode(errors="replace")) >= size_bytes
    return prompts.Shown(name=output["name"], path=path, text=text, characters=0 if is_whole else size_bytes)
