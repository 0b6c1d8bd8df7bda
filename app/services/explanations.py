"""Explanations: why a run does not move, as one sentence and as the chain of causes through other runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import clock, errors, printable
from app.domain import access, allowed_orders, decisions, explanations, gates, operations, plain, runs, states, views
from app.domain.explanations import Cause, Explanation
from app.domain.unreadable import Unreadable
from app.engine import dry_replay, open_steps, ports, run_engine, stores
from app.services import awaiting, halting, rest_causes, step_causes, step_requests

MOST_CAUSES = 24  # Longest chain.
CHILDREN = 20  # Unfinished runs of a parent among which that of an agent is searched.

UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts that an explanation needs in addition to runs."""

    service: Callable[[], Mapping[str, Any] | None]
    """Returns `pid` and `url` of the data directory's service; None if none runs."""
    is_executed: Callable[[str], bool | None] = lambda run_id: None
    """Returns whether a process has locked the folder of a run; None if this process cannot find out."""
    is_owned: Callable[[], Awaitable[bool]] | None = None
    """Returns whether a process on any machine owns the store; None: only this machine has the runs."""
    has_workers: Callable[[], bool] = lambda: False
    """Returns whether workers on Temporal on this machine execute the runs."""
    pids: Callable[[str], Sequence[int]] = lambda run_id: ()
    """Returns the first processes of the programs that a run executes in this process."""
    stalled_after_seconds: float = 300.0  # Silence after which an agent counts as stalled.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    status: states.RunState
    causes: Sequence[Cause]
    behind: str | None = None


class Explanations:
    """Explains runs, from memory if they are loaded and otherwise from their journals, without writing."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        drivers: Mapping[str, ports.Driver],
        view: Callable[[str], Awaitable[views.RunView]],
        clock: clock.Clock,
        masker: plain.Masker,
        surroundings: Surroundings,
    ) -> None:
        self._store = store
        self._engine = engine
        self._drivers = drivers
        self._view = view
        self._clock = clock
        self._masker = masker
        self.surroundings = surroundings
        """Facts that an explanation needs in addition to runs."""
        self._halting = halting.Halting(store, view, self._waits, engine.obstacle)

    async def why(self, run_id: str, scope: access.Scope | None = None) -> Explanation:
        """Return why a run does not move.

        Args:
            scope: Runs that may be explained; the chain ends before any other run. None: all.

        Raises:
            errors.NotFound: the run does not exist.
        """
        chain: list[Cause] = []
        first = explained = await self._of_run(run_id)
        chain += explained.causes
        while (behind := explained.behind) is not None and len(chain) < MOST_CAUSES:
            # Runs may wait for one another in a circle, and the chain must not leave the scope.
            if behind in {one.run_id for one in chain} or not await self._is_within(behind, scope):
                break
            try:
                explained = await self._of_run(behind)
            except errors.NotFound:
                break
            chain += explained.causes
        shown = tuple(dataclasses.replace(one, text=self._masker.mask(one.text)) for one in chain[:MOST_CAUSES])
        halts = [each for each in await self._halting.runs(run_id) if await self._is_within(each, scope)]
        sentence = _sentence(run_id, shown)
        return Explanation(run_id=run_id, status=first.status, sentence=sentence, chain=shown, halted_at=tuple(halts))

    async def _is_within(self, run_id: str, scope: access.Scope | None) -> bool:
        if scope is None:
            return True
        try:
            row = await self._store.summary(run_id)
        except errors.NotFound:
            return False
        return scope.covers(row.recipe_id, row.labels)

    async def request(self, run_id: str, key: str) -> explanations.StepRequest:
        """Return the content of an open step's request, and its addressee.

        Raises:
            errors.NotFound: the run does not exist, or `step_not_open`.
        """
        await self._view(run_id)
        wait = next((wait for wait in await self._waits(run_id) if wait.key == key), None)
        if wait is None:
            message = f"no step {key!r:.80} of run {run_id} is being performed"
            raise errors.NotFound(message, code="step_not_open")
        return await step_requests.shown(wait, functools.partial(self._store.read_blob, run_id), self._masker)

    async def _of_run(self, run_id: str) -> _Found:
        try:
            view = await self._view(run_id)
        except errors.JournalCorrupt as error:
            act = f"control-room runs repair {run_id}"
            damaged = _cause(run_id, "damaged", f"Its journal is damaged: {error.message}", None, act=act)
            return _Found(status=states.RunState.FAILED, causes=[damaged])
        except errors.RequestInvalid as error:
            foreign = _cause(run_id, "not_executed", f"Its folder cannot be taken over: {error.message}", None)
            return _Found(status=states.RunState((await self._store.summary(run_id)).status), causes=[foreign])
        except errors.Unreadable as error:
            status = states.RunState((await self._store.summary(run_id)).status)
            return _Found(status=status, causes=[rest_causes.unreadable(run_id, Unreadable.of(error.detail))])
        return await self._of_view(run_id, view)

    async def _of_view(self, run_id: str, view: views.RunView) -> _Found:
        if view.status.finished:
            return _Found(status=view.status, causes=[await self._ended(run_id, view)])
        unreadable, fault = self._store.unreadable(run_id) or view.unreadable, self._engine.obstacle(run_id)
        if unreadable is not None:
            return _Found(status=view.status, causes=[rest_causes.unreadable(run_id, unreadable)])
        if fault is not None:
            why = printable.clause(fault.message)
            text = f"The data directory cannot be written: {why}; the run continues once it can"
            return _Found(status=view.status, causes=[_cause(run_id, "storage", text, view.updated_at)])
        if view.status is states.RunState.PAUSED and view.reason != decisions.CANCELLING:
            by = await self._stopped_by(run_id)
            return _Found(status=view.status, causes=[rest_causes.pause(run_id, view, by)])
        before = [_cause(run_id, kind, text, None) for kind, text in _STOPPING if view.reason == kind]
        if self._engine.view(run_id) is None and self._engine.standing(run_id) is None:
            before += await self._elsewhere(run_id, view)
        elif view.status is states.RunState.PENDING:
            return self._queued(view, self._engine.standing(run_id))
        if view.status is states.RunState.PENDING and self._engine.elsewhere:
            remote = self._engine.remote
            standing = None if before or remote is None else await remote.standing(run_id)
            return await self._unbegun(run_id, view, before) if standing is None else self._queued(view, standing)
        if view.status is states.RunState.PENDING:
            # A command creates its run before it executes it, and a stop can come between the two.
            loading = _cause(run_id, "queued", "Its command has not begun with it", view.updated_at)
            return _Found(status=view.status, causes=before or [loading])
        return await self._of_steps(run_id, view, before)

    async def _ended(self, run_id: str, view: views.RunView) -> Cause:
        by = await self._stopped_by(run_id) if view.status is states.RunState.CANCELLED else None
        cause, above = rest_causes.ending(run_id, view, by), view.start.parent_run_id
        if view.status is states.RunState.FAILED and cause.act is not None and await self._is_denied_below(view):
            return rest_causes.denied(cause)
        if view.status is not states.RunState.CANCELLED or above is None:
            return cause
        # A run of another project may have started this one.
        with contextlib.suppress(errors.NotFound):
            row, text = await self._store.summary(above), ""
            if row.status == states.RunState.CANCELLED:
                text = f"{cause.text}, as was run {above}, which started it"
            elif by is None and row.status == states.RunState.FAILED and _is_before(row.completed_at, view):
                text = f"{cause.text}, because run {above}, which started it, had failed"
            if text:
                top = await awaiting.cancelled_above(self._store, row)
                return dataclasses.replace(cause, text=text, act=f"control-room runs resume {top}")
        return cause

    async def _stopped_by(self, run_id: str) -> Mapping[str, plain.Json] | None:
        """Return the author of the cancel or the pause that stopped a run, if it is known."""
        with contextlib.suppress(errors.ControlRoomError, errors.StorageFault):
            decided = (await self._store.read(run_id)).decisions
            return decided.paused_by if decided.ended is None else decided.cancelled_by
        return None

    async def _is_denied_below(self, view: views.RunView) -> bool:
        seen: set[str] = set()
        while (child := allowed_orders.failed_child(view)) is not None and child.run_id not in seen:
            seen.add(child.run_id)
            try:
                view = await self._view(child.run_id)
            except (errors.ControlRoomError, errors.StorageFault):
                break
            if allowed_orders.denied_at(view) is not None:
                return True
        return False

    def _queued(self, view: views.RunView, standing: run_engine.Standing | None) -> _Found:
        run_id, since = view.start.run_id, view.updated_at
        holder = standing.holder if standing is not None else None
        if standing is not None and standing.reason == "workspace_busy":
            return _Found(status=view.status, causes=[_busy(view, holder)], behind=holder)
        if standing is not None and standing.reason == "concurrency" and (wanted := view.start.concurrency) is not None:
            text = f"Its concurrency key {wanted.key} is held by run {holder}; its limit is {wanted.limit}"
            return _Found(status=view.status, causes=[_cause(run_id, "concurrency", text, since)], behind=holder)
        if standing is not None and standing.reason == "recovering":
            text = "The service has just started and does not know yet which runs hold their workspaces"
            return _Found(status=view.status, causes=[_cause(run_id, "recovering", text, since)])
        return _Found(status=view.status, causes=[self._place(run_id, since)])

    async def _unbegun(self, run_id: str, view: views.RunView, before: list[Cause]) -> _Found:
        """Explain a run that a worker has not begun, by what its first steps need."""
        explained = await self._of_steps(run_id, view, before)
        if explained.causes[len(before)].kind == "no_worker":
            return explained
        waits = _cause(run_id, "queued", "It waits for a worker", view.updated_at)
        return _Found(status=view.status, causes=before or [waits])

    def _place(self, run_id: str, since: str | None) -> Cause:
        place = self._engine.queue_place(run_id)
        if place is None:
            return _cause(run_id, "queued", "It is being loaded", since)
        most = "1 run executes" if place.limit == 1 else f"{place.limit} runs execute"
        text = f"It is number {place.place} of {place.of} in the queue; {most} at a time"
        if place.holders:
            text += f", now {', '.join(place.holders)}"
        return _cause(run_id, "queued", text, since)

    async def _elsewhere(self, run_id: str, view: views.RunView) -> list[Cause]:
        """Return why this process does not execute a run."""
        act = f"control-room runs resume {run_id}"
        if view.foreign:
            text = f"Nothing executes it: {allowed_orders.FOREIGN}"
            return [_cause(run_id, "not_executed", text, None, act=act)]
        if self._engine.elsewhere:
            return []
        service = self.surroundings.service()
        if view.start.owner != "service":
            if is_executed := self.surroundings.is_executed(run_id):
                return []
            text = "Nothing executes it: the command that did has ended"
            if is_executed is None:
                text = "A command of the command line executes it; if that has ended, nothing does"
        elif service is None and self.surroundings.is_owned is not None and await self.surroundings.is_owned():
            if view.status is not states.RunState.PENDING:
                return []
            text = "It waits for processes on other machines; --server with the address of their service says more"
            return [_cause(run_id, "queued", text, view.updated_at)]
        elif service is None and self.surroundings.has_workers():
            text = "Workers on Temporal execute it, and no service runs, which would accept orders"
            return [_cause(run_id, "queued", text, view.updated_at, act=f"{_SERVE} --engine temporal")]
        elif service is None:
            text, act = "Nothing executes it, because no service runs", _SERVE
        elif service.get("pid") == os.getpid():
            return [_cause(run_id, "recovering", "The service has just started and will take it up", None)]
        elif view.status is states.RunState.PENDING:
            act = f"control-room runs why {run_id} --server {service.get('url')}"
            return [_cause(run_id, "queued", "It waits in the queue of the service", view.updated_at, act=act)]
        else:
            return []
        return [_cause(run_id, "not_executed", text, None, act=act)]

    async def _of_steps(self, run_id: str, view: views.RunView, before: list[Cause]) -> _Found:
        open_waits = await self._waits(run_id)
        asked = [wait.operation for wait in open_waits if step_causes.is_performed(wait.operation)]
        times: Mapping[str, str] = {}
        lacks: Mapping[str, run_engine.Lack] = {}
        if (remote := self._engine.remote) is not None:
            # Together, since neither gets an answer while the server of the workers is away.
            times, lacks = await asyncio.gather(remote.last_outputs(run_id), remote.missing_capabilities(run_id, asked))
        waits = [dataclasses.replace(wait, output_at=times.get(wait.key, wait.output_at)) for wait in open_waits]
        now, stalled_after = self._clock.now(), self.surroundings.stalled_after_seconds
        by_journal = not self._engine.elsewhere and self._engine.view(run_id) is None
        found = step_causes.causes(run_id, waits, now, stalled_after, lacks, by_journal=by_journal)
        # A step that no process performs is not at work, even if its line shows it.
        if any(cause.kind == "not_executed" for cause in before):
            found[0] = _left(found[0])
        first = found[0]
        if first.kind == "between_steps" and (place := self._engine.queue_place(run_id)) is not None and place.place:
            found[0] = dataclasses.replace(self._place(run_id, first.since), key=first.key)
        if first.kind in ("agent", "agent_silent") and (pids := self.surroundings.pids(run_id)):
            found[0] = dataclasses.replace(first, text=f"{first.text} (pid {', '.join(map(str, pids))})")
        if first.kind in ("agent", "agent_silent", "step") and view.placed is not None and view.placed.host:
            found[0] = dataclasses.replace(first, text=f"{first.text}; the run is placed on {view.placed.host}")
        behind = None
        if first.kind in ("child_run", "agent", "agent_silent", "step"):
            wait = next(wait for wait in waits if wait.key == first.key)
            behind = await self._child(run_id, wait)
        if behind is not None:
            text = (
                f"{found[0].text}: {behind}" if first.kind == "child_run" else f"{found[0].text}; it started {behind}"
            )
            found[0] = dataclasses.replace(found[0], text=text)
        if first.kind == "budget" and first.key is not None and self._engine.spending is not None:
            ahead = self._engine.spending.ahead(run_id, first.key)
            if ahead is not None:
                found[0] = step_causes.behind_call(first, ahead, view.start.created_at)
                behind = ahead.run_id if ahead.run_id != run_id else None
        if first.kind == "gate" and view.foreign:
            found[0] = dataclasses.replace(first, act=None)
        elif first.kind == "gate":
            # An answer to it continues the run in any process.
            before = [cause for cause in before if cause.kind not in ("not_executed", "recovering")]
            wait = next(wait for wait in waits if wait.key == first.key)
            found[0] = dataclasses.replace(first, text=first.text + await self._votes(view.start, wait))
        return _Found(status=_status(view.status, waits), causes=[*before, *found], behind=behind)

    async def _votes(self, start: runs.RunStart, wait: open_steps.StepWait) -> str:
        """Return the votes so far of a gate that needs several, as text; empty if one answer decides."""
        if (needed := start.approvals) is None:
            return ""
        given = (await self._store.read(start.run_id)).decisions.votes
        votes = given.get(gates.gate_id(start.run_id, wait.key, max(wait.attempt, 1)), ())
        beside = ", and the key that started the run has none" if needed.not_starter else ""
        return f"; {len(votes)} of {needed.count} votes are given{beside}"

    async def _waits(self, run_id: str) -> Sequence[open_steps.StepWait]:
        waits = self._engine.waits(run_id)
        if waits is not None and self._engine.view(run_id) is not None:
            return waits
        loaded = await self._store.read(run_id)
        if waits is not None:
            due = loaded.decisions.due
            return [dataclasses.replace(wait, due_at=due.get(wait.key)) for wait in waits]
        driver = self._drivers.get(loaded.start.dialect)
        if driver is None:
            return []
        read_blob = functools.partial(self._store.read_blob, run_id)
        return open_steps.stored_waits(loaded, await dry_replay.open_asks(loaded, driver, read_blob))

    async def _child(self, run_id: str, wait: open_steps.StepWait) -> str | None:
        """Return the unfinished run that a step waits for, or that its agent or program has started."""
        operation, prefix = wait.operation, runs.child_keys(run_id)
        recipe_id = operation.recipe_id if isinstance(operation, operations.ChildRun) else None
        query = stores.RunQuery(parent_run_id=run_id, status=UNFINISHED, limit=CHILDREN)
        rows = (await self._store.list_runs(query))[::-1]
        try:
            # After the list, so that no run which a step has just started is missing.
            by_step = await self._store.unfinished_under(runs.child_key(run_id, wait.key) if recipe_id else prefix)
        except errors.Unreadable:
            # Some run, of any parent, cannot be read now; the list shows its last known state.
            by_step = [row.run_id for row in rows if row.recipe_id == recipe_id]
        chosen = by_step if recipe_id else [row.run_id for row in rows if row.run_id not in by_step]
        return chosen[0] if chosen else None


_SERVE = "control-room serve"
_STOPPING: tuple[tuple[explanations.CauseKind, str], ...] = (
    ("pausing", "It pauses as soon as its open steps have ended"),
    ("cancelling", "It is being cancelled"),
)


def _is_before(ended_at: str | None, view: views.RunView) -> bool:
    return ended_at is not None and view.completed_at is not None and ended_at <= view.completed_at


def _busy(view: views.RunView, holder: str | None) -> Cause:
    who = f"run {holder}" if holder else "a run of another process"
    text = f"The workspace {view.start.working_dir} is held by {who}, and this run needs it alone"
    return _cause(view.start.run_id, "workspace_busy", text, view.updated_at)


def _status(status: states.RunState, waits: Sequence[open_steps.StepWait]) -> states.RunState:
    # The folder alone does not show that a run waits.
    waiting = any(isinstance(wait.operation, operations.Input) for wait in waits)
    idle = waiting and all(wait.operation.idle for wait in waits)
    return states.RunState.WAITING if idle and status is states.RunState.RUNNING else status


def _sentence(run_id: str, chain: Sequence[Cause]) -> str:
    root = chain[-1].run_id
    text = printable.sentence("; ".join(printable.clause(cause.text) for cause in chain if cause.run_id == root))
    if root == run_id:
        return text
    # The state of the last run in the chain does not explain why a call of another run waits for it.
    calls = [f" {printable.sentence(cause.text)}" for cause in chain if cause.kind == "budget" and cause.run_id != root]
    return f"It waits for run {root}: {text}{''.join(calls)}"


def _left(cause: Cause) -> Cause:
    """Return the cause for a step that no process performs, no matter what its journal shows."""
    if cause.key is None or cause.kind not in ("agent", "agent_silent", "step", "between_steps"):
        return cause
    message = "is next" if cause.kind == "between_steps" else "was under way when its process ended"
    text = f"Step {cause.key} {message}"
    return dataclasses.replace(cause, kind="between_steps", text=text, act=None)


def _cause(run_id: str, kind: explanations.CauseKind, text: str, since: str | None, *, act: str | None = None) -> Cause:
    return Cause(run_id=run_id, kind=kind, text=text, since=since or None, act=act)
