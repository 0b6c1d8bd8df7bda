"""Facts: read the states of a plan's runs and wait for them, and return plans with those states."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from app import errors
from app.domain import operations, plan_events, plans, states, views
from app.domain.gates import OpenGate
from app.engine import dry_replay, ports, run_engine, stores
from app.flows.session_plan import rules
from app.services.plans import tasks
from app.services.plans.scoping import Scoper, has_open_checks, is_unscoped
from app.services.requests import ResumeRequest
from app.services.runs import Runs

_DELETED = plan_events.RunFact(status=None)
_RESTING = frozenset({states.RunState.PAUSED, states.RunState.WAITING})
_UNFINISHED = frozenset({states.RunState.PENDING, states.RunState.RUNNING, states.RunState.WAITING})


class Facts:
    """Reads the runs of plans."""

    def __init__(
        self,
        *,
        runs: Runs,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        scoper: Scoper,
        drivers: Mapping[str, ports.Driver],
    ) -> None:
        self._runs = runs
        self._drivers = drivers
        self._scoper = scoper
        self._store = store
        self._engine = engine

    async def of(
        self, plan: plans.Plan, endings: Mapping[str, plan_events.RunFact] | None = None
    ) -> dict[str, plan_events.RunFact]:
        """Return the known states of the runs that can still change a plan.

        Args:
            endings: Endings announced by the engine; a row may lag behind them.
        """
        found: dict[str, plan_events.RunFact] = {}
        endings = endings or {}
        for task in plan.tasks:
            if task.run_id is None or task.status is plans.TaskState.DONE:
                continue
            found[task.run_id] = await self.of_run(task.run_id, task, endings.get(task.run_id))
            if task.review is not None and rules.is_under_way(task.review):
                run_id = task.review.run_id or ""
                found[run_id] = await self.of_review(run_id, endings.get(run_id))
        return found

    async def of_review(self, run_id: str, ending: plan_events.RunFact | None = None) -> plan_events.RunFact:
        """Return the state of a review's run, with the gate that it waits at."""
        fact = await self.of_run(run_id, ending=ending)
        gates = await self._gates(run_id) if fact.status is states.RunState.WAITING else ()
        return dataclasses.replace(fact, gate_id=gates[0].gate_id) if gates else fact

    async def _gates(self, run_id: str) -> Sequence[OpenGate]:
        if not self._engine.elsewhere:
            return self._engine.open_gates(run_id)
        loaded = await self._store.read(run_id)
        driver = self._drivers.get(loaded.start.dialect)
        return await dry_replay.asked(loaded, driver, partial(self._store.read_blob, run_id)) if driver else ()

    async def review_differs(self, run_id: str, known: plan_events.RunFact) -> None:
        """Wait until the state of a review's run differs, or cannot be read."""
        await self._differs(run_id, lambda: self.of_review(run_id), known)

    async def of_run(
        self, run_id: str, task: plans.Task | None = None, ending: plan_events.RunFact | None = None
    ) -> plan_events.RunFact:
        """Return the state of a run.

        Args:
            task: The task that it belongs to; an ending that the task already has is not read again.
            ending: Ending according to its folder; the engine may have taken the run up again since.
        """
        standing, view = self._engine.standing(run_id), self._engine.view(run_id)
        has_failed = task is not None and task.status is plans.TaskState.FAILED
        if has_failed and view is not None and view.status.finished:
            # After a power cut the engine reopens ended runs; that is not a resume.
            view = None
        if standing is not None:
            return plan_events.RunFact(status=standing.status)
        if view is not None:
            if view.status.finished and not self._engine.elsewhere:
                # Lists show the ending of a run last, and no plan may be ahead of them.
                return plan_events.RunFact(status=states.RunState.RUNNING)
            return await self._seen(run_id)
        if ending is not None:
            return ending
        try:
            row = await self._store.summary(run_id)
        except errors.NotFound:
            return _DELETED
        status = states.RunState(row.status)
        if not status.finished:
            return plan_events.RunFact(status=status)
        if status is states.RunState.DONE:
            partial = task is not None and await self._is_partial(run_id, task)
            return plan_events.RunFact(status=status, ended_at=row.completed_at, partial=partial)
        if task is not None and task.status is plans.TaskState.FAILED and task.ended_at == row.completed_at:
            return plan_events.RunFact(status=status, error=task.error, ended_at=task.ended_at)
        return await self._seen(run_id)

    async def _is_partial(self, run_id: str, task: plans.Task) -> bool:
        if task.status is not plans.TaskState.RUNNING:
            return task.partial
        # The index does not contain it. A done run counts as done even if its journal was damaged later.
        with contextlib.suppress(errors.ControlRoomError):
            return _partly(await self._runs.reader.view(run_id))
        return False

    async def reconciled(self, plan: plans.Plan) -> plans.Plan:
        """Return a plan updated from its runs, before a change is checked against it."""
        return rules.reconciled(await self.scoped(rules.reconciled(plan, await self.of(plan))), {})

    async def scoped(self, plan: plans.Plan) -> plans.Plan:
        """Return a plan with recipe and arguments for tasks that lack them, and with questions about checks."""
        await self._scoper.refresh()
        for task in plan.tasks:
            if is_unscoped(task):
                plan = plan.with_task(await asyncio.to_thread(self._scoper.scoped, plan, task))
            elif has_open_checks(task):
                plan = plan.with_task(await asyncio.to_thread(self._scoper.checked, task))
        return plan

    async def attempts(self, plan: plans.Plan) -> dict[int, int]:
        """Return the highest attempts of earlier tasks that had the same numbers as tasks that have never begun."""
        found: dict[int, int] = {}
        for task in plan.tasks:
            attempt = 0
            while task.attempt == 0 and await self._has_run(tasks.task_key(plan.session_id, task.id, attempt + 1)):
                attempt += 1
            if attempt:
                found[task.id] = attempt
        return found

    async def _has_run(self, key: str) -> bool:
        try:
            return await self._store.find_repeated(key, "") is not None
        except errors.Conflict:
            return True

    async def sent_on(self, run_id: str) -> bool:
        """Resume a failed run, unless it was resumed already; return False if it has nothing to continue from.

        Raises:
            errors.ControlRoomError: it cannot be resumed.
        """
        fact = await self.of_run(run_id)
        if fact.status is not None and (not fact.status.finished or fact.status is states.RunState.DONE):
            # If the run is done, its task has failed the checks or the review, which are repeated.
            return True
        try:
            await self._runs.resume(run_id, ResumeRequest())
        except (errors.NotFound, errors.JournalCorrupt):
            return False
        return True

    async def ending(self, run_id: str) -> plan_events.RunFact:
        """Wait until a run has ended, and return its ending.

        Raises:
            errors.InterruptionFault: the engine stopped before that.
            errors.StorageFault: the ending cannot be read now.
        """
        try:
            await self._engine.ended(run_id)
        except errors.NotFound:
            return _DELETED
        except errors.JournalCorrupt as error:
            return plan_events.RunFact(status=states.RunState.FAILED, error=error.to_json())
        return await self._seen(run_id)

    async def queue_if_left(self, run_id: str) -> None:
        """Queue an unfinished run that the previous service has left, if the engine does not have it.

        Raises:
            errors.StorageFault: its state cannot be read now.
        """
        if self._engine.elsewhere or self._engine.standing(run_id) or self._engine.view(run_id):
            return
        try:
            row = await self._store.summary(run_id)
        except errors.NotFound:
            return
        if row.owner == "service" and states.RunState(row.status) in _UNFINISHED:
            await self._engine.submit(run_id)

    async def rests(self, run_id: str) -> bool:
        """Return whether an unfinished run is paused, waits for an answer, or is executed by another process."""
        known = self._engine.standing(run_id) or self._engine.view(run_id)
        if known is not None:
            # A step of a run that was just paused may still be under way.
            busy = any(step.kind != operations.Gate.kind for step in known.open)
            return known.status in _RESTING and not (busy and known.status is states.RunState.PAUSED)
        try:
            row = await self._store.summary(run_id)
        except errors.NotFound:
            return False
        status = states.RunState(row.status)
        return status in _RESTING or (row.owner != "service" and not status.finished)

    async def rests_otherwise(self, run_id: str, known: bool) -> None:
        """Wait until a run at rest continues, or a run at work comes to rest, or until neither can be read."""
        await self._differs(run_id, lambda: self.rests(run_id), known)

    async def _differs(self, run_id: str, look: Callable[[], Awaitable[object]], known: object) -> None:
        with contextlib.suppress(errors.StorageFault):
            while True:
                number = self.number(run_id)
                if await look() != known:
                    return
                await self.changed(run_id, number)

    async def changed(self, run_id: str, since: int) -> None:
        """Wait until a run has changed."""
        await self._engine.changed(run_id, since)

    def number(self, run_id: str) -> int:
        """Return a number that differs after each change of a run."""
        return self._engine.change_number(run_id)

    async def _seen(self, run_id: str) -> plan_events.RunFact:
        try:
            view = await self._runs.reader.view(run_id)
        except errors.NotFound:
            return _DELETED
        except errors.ControlRoomError as error:
            # Its journal is damaged, or its folder does not have the declared form.
            return plan_events.RunFact(status=states.RunState.FAILED, error=error.to_json())
        failed = view.status is states.RunState.FAILED
        return plan_events.RunFact(
            status=view.status,
            error=view.error if failed else None,
            ended_at=view.completed_at if view.status.finished else None,
            partial=_partly(view),
        )


def _partly(view: views.RunView) -> bool:
    return view.status is states.RunState.DONE and bool((view.ending or {}).get("partial"))
