"""Gates: show questions of runs and record their answers."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from app import clock, errors
from app.domain import approvals, authors, gates, plain, records, runs, shapes, views
from app.engine import ports, run_engine, stores
from app.services import faults, gate_content, voting
from app.services.gate_inbox import GateInbox, GateQuery

MESSAGE_CHARACTERS = 10_000  # Longest message of an answer.

_ENDED = "its run has ended or has asked again since"

Status = Literal["open", "paused", "decided", "lapsed"]
"""State of a gate: a paused run asks again when it continues; the answer of a lapsed gate is no longer valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A person's answer to a gate."""

    decision: str  # One of the gate's options.
    message: str = ""  # Message that the person adds.
    shown_sha256: str | None = None  # Bare hash of what the person saw; None: what is shown now.
    idempotency_key: str | None = None  # Key by which the same answer is accepted again.


@dataclass(frozen=True, slots=True, kw_only=True)
class GateShown(shapes.Shape):
    """A question to a person, and its answer if it has one."""

    published_as: ClassVar[str] = "GateListed"

    gate_id: str  # Id of the gate, which every restart keeps.
    run_id: shapes.RunId  # Run that asks.
    recipe_id: str  # Recipe of the run.
    key: str  # Step that asks.
    status: Status
    """`paused`: its run is paused, and asks again when it continues, unless its time is over by then; `lapsed`: an
    earlier step ran again.
    """
    prompt: str  # The question.
    options: tuple[str, ...]  # Possible decisions.
    asked_at: shapes.Instant | None  # When the run first asked; a restart does not change it.
    expires_at: shapes.Instant | None  # When the default decision is taken; None: never.
    default: str | None  # Decision that is taken if no answer arrives in time.
    shown_sha256: str
    """Hash of the content to decide on; send it back so that the answer is valid only for this content."""
    decision: str | None  # The decision.
    message: str | None  # Message of the person who decided.
    by_default: bool | None  # Whether the default was taken because no answer arrived in time.
    denied: bool | None  # Whether the decision is a denial, which is final: no resume continues past it.
    decided_at: shapes.Instant | None  # When the decision was recorded.
    decided_by: authors.Shown | None  # Who decided, if that is known.
    approvals: approvals.ApprovalsShown | None = shapes.omitted()
    """Number of keys that must agree, and their votes so far; absent if one answer decides."""
    gate: gates.OpenGate = shapes.internal()  # The question.
    answer: Mapping[str, plain.Json] = shapes.internal()  # The answer, as recorded.

    @classmethod
    def of(
        cls,
        open_gate: gates.OpenGate,
        status: Status,
        answer: Mapping[str, plain.Json] | None = None,
        decided_at: str | None = None,
    ) -> GateShown:
        """Return a question with its recorded answer, if it has one."""
        answer = answer or {}
        return cls(
            gate_id=open_gate.gate_id,
            run_id=open_gate.run_id,
            recipe_id=open_gate.start.recipe_id,
            key=open_gate.key,
            status=status,
            prompt=open_gate.gate.prompt,
            options=open_gate.gate.options,
            asked_at=open_gate.asked_at,
            expires_at=open_gate.expires_at,
            default=open_gate.gate.default,
            shown_sha256=open_gate.shown_sha256,
            **{name: answer.get(name) for name in ("decision", "message", "by_default", "denied")},
            decided_at=decided_at,
            decided_by=authors.in_line(answer),
            gate=open_gate,
            answer=answer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker(shapes.Shape):
    """Origin of a question."""

    recipe_id: str  # Recipe of the run.
    key: str  # Step that asks.
    description: str  # Task of the run.
    session_id: str  # Work session, or session plan, of the run.
    session_plan_task_id: int | None  # Task of the plan.


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDetail(GateShown):
    """A question with all of the content to decide on."""

    published_as: ClassVar[str] = "GateDetail"

    shown: tuple[gate_content.ContentPart, ...]
    """Content that `shown_sha256` covers in addition to the options: the question, split into parts by their form."""
    asked_by: Asker  # Origin of the question.

    @classmethod
    def detailed(cls, found: GateShown) -> GateDetail:
        """Return a question in full."""
        start = found.gate.start
        return cls(
            **{name: getattr(found, name) for name in GateShown.__slots__},
            shown=gate_content.parts(found.prompt),
            asked_by=Asker(
                recipe_id=start.recipe_id,
                key=found.key,
                description=start.description,
                session_id=start.session_id,
                session_plan_task_id=start.session_plan_task_id,
            ),
        )


class Gates:
    """Shows gates, and takes answers to them.

    Args:
        view: Returns the present view of a run, loaded or not.
        plan: Returns a session plan as it is stored; None if it does not exist.
        masker: Masks secrets in questions that are not in a journal yet.
    """

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        drivers: Mapping[str, ports.Driver],
        view: Callable[[str], Awaitable[views.RunView]],
        plan: voting.FindPlan,
        masker: plain.Masker,
        clock: clock.Clock,
    ) -> None:
        self._store = store
        self._engine = engine
        self._inbox = GateInbox(store=store, engine=engine, drivers=drivers)
        self._view = view
        self._masker = masker
        self._clock = clock
        self._votes = voting.Votes(store, engine, plan)

    async def page(self, query: GateQuery) -> tuple[list[GateShown], bool]:
        """Return a page of open gates, beginning with those of the oldest run, and whether more follow."""
        open_gates, more = await self._inbox.page(query)
        return [await self._counted(self._shown(open_gate, "open")) for open_gate in open_gates], more

    async def show(self, gate_id: str) -> GateShown:
        """Return a gate, open or not.

        Raises:
            errors.NotFound: `gate_not_found`.
            errors.JournalCorrupt: its run is damaged.
        """
        # Memory first, then the view of a run that is executed, then the journal on disk: the first place that has the
        # gate has its newest state.
        run_id = _run_of(gate_id)
        gate = self._open(run_id, gate_id)
        try:
            gate = gate or await self._answered(run_id, gate_id) or await self._stored(run_id, gate_id)
        except errors.NotFound as error:
            raise _unknown(gate_id) from error
        if gate is None:
            raise _unknown(gate_id)
        return await self._counted(gate)

    async def detail(self, gate_id: str) -> GateDetail:
        """Return a gate with all of its content in parts, which are made on a thread.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as `show`.
        """
        try:
            gate = await self.show(gate_id)
        except errors.NotFound as missing:
            if await self._was_asked(gate_id):
                message = f"the gate {gate_id} is not open any more, and has no answer: {_ENDED}"
                raise errors.NotFound(message, code=missing.code) from missing
            raise
        return await asyncio.to_thread(GateDetail.detailed, gate)

    async def answer(self, gate_id: str, reply: Reply, author: authors.Author | None = None) -> GateShown:
        """Answer a gate, and return it once the answer is durable; the same answer with the same key is accepted again.

        Raises:
            errors.NotFound: `gate_not_found`.
            errors.RequestInvalid: `unknown_decision`; names all options.
            errors.Conflict: `gate_decided`; `gate_lapsed`, also if its question has changed; `not_recorded`.
            errors.WrongState: the run is paused, or not executed here.
            errors.WriteFailed, errors.Unavailable: the answer cannot be written now.
        """
        try:
            gate = await self.show(gate_id)
        except errors.NotFound:
            await self._refuse_lapsed(gate_id)
            raise
        if gate.status != "open":
            return self._repeated(gate, reply)
        _refuse_unfit(gate.gate, reply)
        try:
            await self._decide(gate.gate, reply, author)
        except errors.NotFound:
            # Since the gate was read, its run was cancelled or has asked again.
            await self._refuse_lapsed(gate_id)
            raise
        except errors.Conflict as conflict:
            # Two answers raced, and the first one wins. The second may be the same request, sent again by a client that
            # lost the first response: it gets that response.
            if conflict.code != "gate_decided":
                raise
            return self._repeated(await self.show(gate_id), reply)
        return await self.show(gate_id)

    async def _decide(self, open_gate: gates.OpenGate, reply: Reply, author: authors.Author | None) -> None:
        new = gates.Answer(
            decision=reply.decision, message=reply.message, idempotency_key=reply.idempotency_key, author=author
        )
        complete = await self._votes.vote(open_gate, new, clock.stamp(self._clock.now()))
        if complete is not None:
            with faults.as_errors():
                await self._engine.deliver(open_gate.run_id, open_gate.key, complete, open_gate.attempt)

    def _repeated(self, gate: GateShown, reply: Reply) -> GateShown:
        """Return a gate that an earlier attempt of the same request has answered."""
        gate_id, answer = gate.gate.gate_id, gate.answer
        if gate.status == "lapsed":
            raise _lapsed(gate_id, "an earlier step ran again")
        if gate.status == "paused":
            is_over = gate.expires_at is not None and gate.expires_at <= clock.stamp(self._clock.now())
            then = f"the gate takes its default {gate.default}, since its time is over," if is_over else "it asks again"
            message = f"the run {gate.gate.run_id} is paused; {then} when it continues"
            raise errors.WrongState(message, detail={"run_id": gate.gate.run_id, "status": "paused"})
        new = (reply.decision, reply.message, reply.idempotency_key)
        # Without a key, an equal answer does not prove that it is the same request.
        known = (answer.get("decision"), answer.get("message"), answer.get("idempotency_key"))
        if reply.idempotency_key is None or new != known:
            how = ", by default, because it expired" if answer.get("by_default") else ""
            message = f"the gate {gate_id} is already decided{how}: {answer.get('decision')}"
            raise errors.Conflict(message, code="gate_decided", detail={"gate": gate.to_json()})
        return gate

    async def _counted(self, gate: GateShown) -> GateShown:
        given = await self._votes.shown(gate.gate, dict(gate.answer))
        return gate if given is None else dataclasses.replace(gate, approvals=given)

    # -- where a gate may be found

    def _open(self, run_id: str, gate_id: str) -> GateShown | None:
        open_gates = self._engine.open_gates(run_id)
        return next((self._shown(open_gate, "open") for open_gate in open_gates if open_gate.gate_id == gate_id), None)

    async def _answered(self, run_id: str, gate_id: str) -> GateShown | None:
        view = await self._view(run_id)
        record = _line_of(view.records, gate_id)
        return None if record is None else await self._decided(view.start, record, lapsed=record.position in view.dead)

    async def _stored(self, run_id: str, gate_id: str) -> GateShown | None:
        loaded = await self._store.read(run_id)
        record, decided = _line_of(loaded.records, gate_id), loaded.decisions
        if record is not None:
            return await self._decided(loaded.start, record, lapsed=record.position in decided.dead)
        status: Status = "paused" if decided.paused else "open"
        open_gates = await self._inbox.open_gates_in(loaded)
        return next((self._shown(gate, status) for gate in open_gates if gate.gate_id == gate_id), None)

    async def _decided(self, start: runs.RunStart, record: records.Record, *, lapsed: bool) -> GateShown:
        open_gate = gates.restored(start, record, await self._question(start.run_id, record))
        return GateShown.of(open_gate, "lapsed" if lapsed else "decided", gates.answer_in(record), record.completed_at)

    async def _question(self, run_id: str, record: records.Record) -> Mapping[str, Any]:
        operation: Any = record.line["operation"]
        if "body" in operation:
            return dict(operation["body"])
        body: Any = await self._store.read_blob(run_id, records.BlobRef.from_json(operation["blob"]))
        return dict(body)

    def _shown(self, open_gate: gates.OpenGate, status: Status) -> GateShown:
        return GateShown.of(open_gate.masked(self._masker), status)

    async def _refuse_lapsed(self, gate_id: str) -> None:
        if await self._was_asked(gate_id):
            raise _lapsed(gate_id, _ENDED)

    async def _was_asked(self, gate_id: str) -> bool:
        run_id = _run_of(gate_id)
        try:
            tried = (await self._store.read(run_id)).decisions.highest_attempt
        except errors.NotFound:
            return False
        known = ((key, attempt) for key, most in tried.items() for attempt in range(1, most + 1))
        return any(gates.gate_id(run_id, key, attempt) == gate_id for key, attempt in known)


def _line_of(lines: Sequence[records.Record], gate_id: str) -> records.Record | None:
    answers = ((line, gates.answer_in(line)) for line in lines)
    return next((line for line, answer in answers if answer is not None and answer["gate_id"] == gate_id), None)


def _refuse_unfit(open_gate: gates.OpenGate, reply: Reply) -> None:
    options, shown = open_gate.gate.options, open_gate.shown_sha256
    if reply.shown_sha256 not in (None, shown):
        raise _lapsed(open_gate.gate_id, "its question has changed", shown_sha256=shown)
    if reply.decision not in options:
        message = f"{reply.decision!r:.80} is not an option of this gate; options: {', '.join(options)}"
        flaw = errors.Flaw(path="$.decision", code="unknown_decision", message=message)
        raise errors.RequestInvalid(message, code="unknown_decision", flaws=[flaw], detail={"options": list(options)})


def _run_of(gate_id: str) -> str:
    run_id = gates.run_of(gate_id)
    if run_id is None or not re.fullmatch(clock.RUN_ID_PATTERN, run_id):
        raise _unknown(gate_id)
    return run_id


def _unknown(gate_id: str) -> errors.NotFound:
    return errors.NotFound(f"there is no gate {gate_id!r:.120}", code="gate_not_found")


def _lapsed(gate_id: str, why: str, **facts: plain.Json) -> errors.Conflict:
    return errors.Conflict(f"the gate {gate_id} has lapsed: {why}", code="gate_lapsed", detail=facts)
