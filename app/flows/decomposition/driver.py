"""The driver: search for files, ask the chief once, and request one correction of a faulty reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app import errors
from app.domain import frozen_agents, json_schemas, operations, plain, records, runs, slots
from app.engine import ports
from app.flows.decomposition import kinds, prompts, replies, schema, small

LOOK = "look"  # Step that finds the files that an intent may be about.
CHIEF = "chief"  # Step that asks the chief, and the chief's archetype.
CORRECTION = "chief.correction"  # Key of the second call, after a faulty reply.
FOUND = "found"  # Slot with a pointer to the files that were found.
TASKS = "tasks"  # Slot with the tasks.
STEPS = 2  # Steps of a decomposition.
INVALID = "decomposition_invalid"  # Code of a run whose chief twice gave no valid tasks.
TIMEOUT_SECONDS = 60 * 60.0  # Longest wait for a reply.

_TOOL = "file_locator"
_FAULTY = frozenset({"empty_reply", "reply_cut_off", "reply_degenerate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedReply:
    key: str
    text: str
    tasks: tuple[replies.TaskDraft, ...] = ()
    flaws: tuple[errors.Flaw, ...] = ()


async def drive(ctx: ports.Context) -> runs.Ending:
    """Have the chief split the intent into tasks, and store them.

    Raises:
        errors.RunFailed: the chief did not answer, or `decomposition_invalid`.
    """
    return await _Decomposing(ctx).drive()


class _Decomposing:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._intent: str = ctx.run.args[schema.INTENT]
        self._agent: plain.Object = ctx.run.frozen["agent"]
        self._size = schema.SIZES[self._agent["tier"]]
        # The first version did not ask a small chief for definitions of done, and accepted tasks without one; it also
        # replaced halves of surrogate pairs.
        self._is_whole = ctx.run.driver_version > 1
        # The second version did not support outputs of earlier tasks.
        self._outputs = ctx.run.driver_version > 2
        self._kinds = kinds.fitting(ctx.run.frozen["kinds"], self._intent)[: self._size.kinds]

    async def drive(self) -> runs.Ending:
        self._show(0)
        found = await self._find_files()
        self._show(1)
        requested, form = self._request(found)
        answer = await self._ask(CHIEF, requested, form)
        if answer.flaws:
            again = prompts.correction(requested, self._size, answer.text, answer.flaws)
            answer = await self._ask(CORRECTION, again, form)
        if answer.flaws:
            raise _invalid(answer)
        self._keep(answer)
        self._show(STEPS)
        return runs.Ending(reason="decomposed")

    # -- the search for files

    async def _find_files(self) -> Sequence[plain.Object]:
        # The tool finds at least one file; the prompt of a chief that may see none does not mention it.
        args = {"search_criteria": self._intent, "scan_mode": "FAST_SCAN", "max_results": max(self._size.files, 1)}
        place = records.Place(step_id=LOOK, step_index=0, output_slot=FOUND)
        record = await self._ctx.perform(LOOK, operations.ToolCall(tool=_TOOL, args=args), place)
        # A plan can be made without files, too: the prompt then states that there are none.
        if not record.done:
            return []
        self._ctx.fill(FOUND, slots.pointer(record))
        payload = record.output if record.blob is None else await self._ctx.read(record.blob)
        matches: Sequence[plain.Object] = payload["matches"][: self._size.files]
        return matches

    # -- the chief

    def _request(self, found: Sequence[plain.Object]) -> tuple[str, plain.Object]:
        if self._size.whole:
            requested = prompts.request(self._size, self._intent, found, self._kinds, outputs=self._outputs)
            arguments = kinds.arguments(self._kinds)
            return requested, schema.form(self._size, arguments, dod=self._is_whole, outputs=self._outputs)
        parts = small.parts(self._intent, self._ctx.run.frozen["kinds"])
        requested = small.request(self._intent, parts, self._kinds, dod=self._is_whole)
        return requested, small.form(parts, self._size.tasks, dod=self._is_whole)

    async def _ask(self, key: str, prompt: str, form: plain.Object) -> _CheckedReply:
        place = records.Place(step_id=CHIEF, step_index=1, output_slot=TASKS, input_slot_refs=(FOUND,))
        record = await self._ctx.perform(key, self._call(prompt, form), place)
        error = record.error
        if error is not None and error.code in _FAULTY:
            # Asked once more, as after any other faulty reply.
            return _CheckedReply(key=key, text="", flaws=(json_schemas.flaw((), error.code, error.message),))
        if error is not None:
            raise errors.RunFailed(error.message, code=error.code, key=key, detail=error.detail, causes=(key,))
        reply_text = str(record.output if record.blob is None else await self._ctx.read(record.blob))
        try:
            tasks = replies.read(
                reply_text, self._size.tasks, whole=self._is_whole, exact=self._is_whole, outputs=self._outputs
            )
            return _CheckedReply(key=key, text=reply_text, tasks=tasks)
        except errors.InputRefused as refused:
            return _CheckedReply(key=key, text=reply_text, flaws=refused.flaws)

    def _call(self, prompt: str, form: plain.Object) -> operations.AgentCall:
        return frozen_agents.call(
            self._agent,
            (prompt,),
            self._agent["role"],
            reply_schema=form,
            max_tokens=self._size.tokens,
            on_cut_off="fail",
            timeout_seconds=TIMEOUT_SECONDS,
            # An empty reply is a faulty reply, and asked for once more.
            may_abstain=True,
            may_be_blank=True,
        )

    def _keep(self, answer: _CheckedReply) -> None:
        text = replies.text(answer.tasks)
        slot = slots.Slot(
            type="artifact",
            agent_id=self._agent["id"],
            text=text,
            sha256=plain.sha256(text.encode()),
            summary=plain.preview("; ".join(task.description for task in answer.tasks)),
            key=answer.key,
        )
        self._ctx.fill(TASKS, slot)

    def _show(self, finished: int) -> None:
        self._ctx.show(slots.Progress(finished_steps=finished, total_steps=STEPS))


def _invalid(answer: _CheckedReply) -> errors.RunFailed:
    first, reported = answer.flaws[0], [flaw.to_json() for flaw in answer.flaws]
    message = (
        f"The chief made no valid plan, and did not correct it when it was asked to: {first.path} {first.message}. "
        "Say what is wanted in other words, let another agent or model be the chief, or write the tasks by hand."
    )
    # A resume begins with the first call: the cause of the faulty reply may be gone by then.
    return errors.RunFailed(
        message, code=INVALID, key=answer.key, detail={"flaws": reported}, causes=(CHIEF, CORRECTION)
    )
