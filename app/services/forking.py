"""Forking: creates new runs that begin with finished steps of other runs, in any state."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app import errors
from app.domain import authors, gates, plain, runs, states
from app.engine import conversation_claims, fork_replay, ports, resume_rules, run_engine, stores
from app.services import faults, requests, run_reader, voting
from app.services.fork_requests import Forked, ForkRequest
from app.services.starting import Starter

_MOST_NEXT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A planned fork, ready to be created."""

    source: stores.Loaded  # The run whose steps it takes over.
    start: runs.RunStart  # Start of the new run.
    replayed: fork_replay.Replayed  # The replay, which shows the steps that match.
    left_out: frozenset[int]
    """Positions of finished steps that the fork leaves out, because it begins before them."""


class Forks:
    """Creates runs that begin with finished steps of other runs.

    Args:
        begun: Called with each accepted new run.
        above: Returns the parent of a new run from its request and from the run that makes it.
    """

    def __init__(
        self,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        starter: Starter,
        drivers: Mapping[str, ports.Driver],
        begun: Callable[[runs.RunStart], None],
        above: Callable[[requests.StartRequest, str | None], Awaitable[runs.RunStart | None]],
    ) -> None:
        self._store = store
        self._engine = engine
        self._starter = starter
        self._drivers = drivers
        self._begun = begun
        self._above = above

    async def fork(
        self,
        run_id: str,
        request: ForkRequest,
        author: authors.Author | None = None,
        *,
        waits: bool = True,
        asked_by: str | None = None,
    ) -> Forked:
        """Create a run that takes over the steps of another one, up to the first that it would perform differently.

        Args:
            waits: Whether the new run can wait for other runs of its concurrency key.
            asked_by: Run whose agent or command makes the request, if it names no parent.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
            errors.RequestInvalid: the step, the arguments or the new prompt do not fit; `unknown_parent`,
                `depth_exceeded`.
            errors.Conflict: `conversation_shared`, the run continues the conversation of others;
                `idempotency_conflict`; `approvals_need_keys`; `concurrency_limit`.
            errors.WriteFailed: the disk is full or failing.
        """
        # A repetition is looked up before any check: the source may have been deleted since the first request, and the
        # caller must get the run of that request.
        key, sha256 = request.idempotency_key, request.sha256(run_id)
        if key is not None and (found := await self._store.find_repeated(key, sha256)) is not None:
            return await self._repeated(found)
        planned = await self.planned(run_id, request, asked_by)
        kept, concurrency = planned.replayed.kept, planned.start.concurrency
        start = dataclasses.replace(
            planned.start,
            concurrency=concurrency if concurrency is None or waits else concurrency.without_waiting(),
            started_by=None if author is None else author.to_json(),
            idempotency_key=key,
            request_sha256=None if key is None else sha256,
        )
        await voting.refuse_unapprovable(start, self._starter.rules.approvers)
        taken_over = stores.TakenOver(
            source=run_id,
            lines=[fork_replay.line(record) for record in kept],
            blobs=[blob for record in kept for blob in record.blobs()],
        )
        with faults.as_errors():
            start, created = await self._starter.create(start, functools.partial(self._create, taken_over))
        if created.existed:
            return await self._repeated(created.run_id)
        status = await self._engine.submit(created.run_id, created.summary)
        self._begun(start)
        return Forked(
            run_id=created.run_id,
            status=status,
            forked_from=run_id,
            taken_over=len(kept),
            next=tuple(planned.replayed.asks)[:_MOST_NEXT],
        )

    async def _create(self, taken_over: stores.TakenOver, start: runs.RunStart) -> stores.Created:
        # The engine expects the run before its folder exists. Otherwise a recovery that lists folders at this moment
        # would mistake the new run for one that a dead process left.
        self._engine.expect(start.run_id)
        return await self._store.create(start, taken_over=taken_over)

    async def _repeated(self, run_id: str) -> Forked:
        with faults.as_errors():
            start, row = (await self._store.read(run_id)).start, await self._store.summary(run_id)
        return Forked(
            run_id=run_id,
            status=states.RunState(row.status),
            forked_from=start.forked_from or "",
            taken_over=start.up_to or 0,
            next=(),
            existed=True,
        )

    async def planned(self, run_id: str, request: ForkRequest, asked_by: str | None = None) -> Planned:
        """Return a planned fork without writing it.

        Raises:
            errors.ControlRoomError: as `fork`.
        """
        run_reader.check_run_id(run_id)
        requests.check_labels(request.labels)
        with faults.as_errors():
            source = await self._store.read(run_id)
        driver = self._drivers.get(source.start.dialect)
        if driver is None:
            message = f"this version does not know the language {source.start.dialect!r}"
            raise errors.RequestInvalid(message, code="unknown_dialect")
        _refuse_shared_conversation(source.start)
        key = request.from_key if request.line is None else _key_at(source, request.line)
        candidates = resume_rules.lasting(source, key)
        renewed = await self._starter.renewed(source.start, request)
        asks = requests.StartRequest(parent_run_id=request.parent_run_id, runs_above=request.runs_above)
        parent = await self._above(asks, asked_by)
        overrides = renewed | self._starter.place(asks, parent)
        start = self._starter.forked(source.start, source.limits, overrides, request.labels, parent)
        _refuse_too_many(start)
        start = dataclasses.replace(start, replaced=self._replaced(source, key, request))
        replayed = await fork_replay.replayed(
            start,
            candidates,
            driver,
            functools.partial(self._store.read_blob, run_id),
            # The person who starts a fork may be one whose approval counted for the source.
            asks_again=getattr(start, "approvals", None) is not None,
        )
        start = dataclasses.replace(
            start,
            up_to=len(replayed.kept),
            source_hash=fork_replay.source_hash(replayed.kept),
            begun_again=dict.fromkeys(replayed.conversations, 1),
        )
        # The replaceable parts determine which steps match, so they are known before the replay.
        _refuse_denied(replayed)
        lasting = {record.position for record in candidates}
        left_out = frozenset(record.position for record in fork_replay.living(source) if record.position not in lasting)
        return Planned(source=source, start=start, replayed=replayed, left_out=left_out)

    def _replaced(
        self, source: stores.Loaded, key: str | None, request: ForkRequest
    ) -> dict[str, Mapping[str, plain.Json]] | None:
        # A fork of a fork keeps the earlier replacements: without them its first steps would differ from the lines that
        # it takes over, and would be paid again.
        before = dict(source.start.replaced or {})
        if request.prompt is None and request.agent is None:
            return before or None
        named = next((record for record in fork_replay.living(source) if record.key == key), None)
        path = "$.prompt" if request.prompt is not None else "$.agent"
        if key is None or named is None:
            raise _invalid(path, "the step whose prompt or agent changes must be the one to fork from")
        if named.line.get("agent_id") is None:
            raise _invalid(path, f"the step {key!r:.80} asks no agent")
        fields: dict[str, plain.Json] = dict(before.get(key, {}))
        if request.prompt is not None:
            fields["prompt"] = [request.prompt]
        if request.agent is not None:
            fields |= self._speaker(source.start, request.agent)
        return {**before, key: fields}

    def _speaker(self, start: runs.RunStart, name: str) -> dict[str, plain.Json]:
        agent: Mapping[str, Any] | None = self._starter.agent(start, name)
        if agent is None:
            raise _invalid("$.agent", f"there is no agent {name!r:.80}; name one of agents.json, or a backend")
        fields: dict[str, plain.Json] = {
            "agent_id": agent["id"],
            "backend": agent["backend"],
            "model": agent.get("model"),
            "max_tokens": agent.get("max_output_tokens"),
            "on_cut_off": agent.get("on_cut_off", "fail"),
        }
        return fields | ({"system": agent["role"]} if agent.get("role") else {})


def _key_at(source: stores.Loaded, line: int) -> str:
    named = next((record for record in fork_replay.living(source) if record.position == line), None)
    if named is None:
        message = f"line {line} of the journal is not a finished step that counts"
        raise errors.RequestInvalid(message, code="unknown_step", flaws=[_flaw("$.from", message)])
    return named.key


def _refuse_shared_conversation(start: runs.RunStart) -> None:
    named = conversation_claims.continued(start)
    if named is not None:
        message = (
            f"run {start.run_id} continues the conversation {named}, whose beginning is in other runs; a fork could"
            " not begin it from its journal. Start a new run, or fork the run that began the conversation"
        )
        raise errors.Conflict(message, code="conversation_shared", detail={"agent_session_id": named})


def _refuse_denied(found: fork_replay.Replayed) -> None:
    denial = next((record for record in reversed(found.kept) if gates.is_denial(record)), None)
    if found.finished and denial is not None:
        message = (
            f"the gate {denial.key!r} was denied, so that this fork would end at once; fork from this gate to be"
            " asked again, or from a step before it"
        )
        raise errors.Conflict(
            message, code="gate_denied", key=denial.key, detail=dict(gates.answer_facts(denial.output))
        )


def _refuse_too_many(start: runs.RunStart) -> None:
    if len(start.labels) > runs.LABELS:
        raise _invalid("$.labels", f"a run has at most {runs.LABELS} labels; this one would have {len(start.labels)}")


def _invalid(path: str, message: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"{path}: {message}", flaws=[_flaw(path, message)])


def _flaw(path: str, message: str) -> errors.Flaw:
    return errors.Flaw(path=path, code="invalid", message=message)
