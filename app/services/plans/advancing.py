"""Advancing: one pass over a plan; what its runs tell is settled, and what can be begun is begun, each step of it
durable.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Mapping

from app import errors
from app.domain import plain, plans, states
from app.engine import run_engine
from app.services.plans import rules, tasks, transitions
from app.services.plans.adopt_tasks import Chief
from app.services.plans.facts import Facts
from app.services.plans.repository import PlanRepository
from app.services.plans.rules import RunFact
from app.services.plans.scoping import Scoper
from app.services.requests import ResumeRequest
from app.services.runs import Runs

_log = logging.getLogger(__name__)


class Advance:
    """Bring plans to where they should stand; the caller has the plan's turn."""

    def __init__(
        self,
        *,
        repository: PlanRepository,
        facts: Facts,
        scoper: Scoper,
        chief: Chief,
        runs: Runs,
        engine: run_engine.RunEngine,
    ) -> None:
        self._repository = repository
        self._facts = facts
        self._scoper = scoper
        self._chief = chief
        self._runs = runs
        self._engine = engine

    async def settled(self, plan: plans.Plan, endings: Mapping[str, RunFact] | None = None) -> plans.Plan:
        """Return a plan as its runs have it, not written yet.

        Args:
            endings: What was heard of runs.
        """
        known = rules.settled(plan, await self._facts.of(plan, endings))
        await self._scoper.settle()
        for task in known.tasks:
            if _is_unscoped(task):
                known = known.with_task(await asyncio.to_thread(self._scoper.scoped, known, task))
        return rules.settled(known, {})

    async def advance(
        self,
        session_id: str,
        endings: Mapping[str, RunFact],
        *,
        begins: bool = True,
        resting: Collection[str] = (),
    ) -> plans.Plan | None:
        """Settle a plan and begin what can be begun; return it as it stands then, None where there is none.

        Args:
            endings: What was heard of runs.
            begins: Whether anything is begun, or gone on with that nobody has.
            resting: Runs that wait for a person, so that they are in nobody's way.

        Raises:
            errors.Conflict: `plan_damaged`; `plan_changed`, its file was changed by hand meanwhile.
            errors.NoRoom, errors.Unavailable, errors.StorageFault: it cannot go on now; nothing is lost.
        """
        plan = await self._repository.find(session_id)
        if plan is None:
            return None
        settled, begins = await self.settled(plan, endings), begins and not self._engine.status().stopping
        if plan.tasks and begins:
            plan = await self._begin(plan, settled, resting)
        else:
            plan = await self._repository.write(plan, settled)
        if not plan.tasks and (begins or plan.chief_run_id is not None):
            plan = await self._chief_heard(plan, endings)
        for run_id in running(plan) if begins else ():
            await self._facts.take_up(run_id)
        return plan

    async def sent_on(self, run_id: str) -> bool:
        """Send a failed run on, if nobody else has; false if there is nothing of it to go on from.

        Raises:
            errors.ControlRoomError: it cannot be sent on.
        """
        fact = await self._facts.of_run(run_id)
        if fact.status is not None and not fact.status.finished:
            return True
        try:
            await self._runs.resume(run_id, ResumeRequest())
        except (errors.NotFound, errors.JournalCorrupt):
            return False
        return True

    # -- the chief

    async def _chief_heard(self, plan: plans.Plan, endings: Mapping[str, RunFact]) -> plans.Plan:
        if plan.awaits_chief and plan.chief_run_id is None:
            return await self._ask_chief(plan)
        if plan.chief_run_id is None or not (plan.awaits_chief or plan.status is plans.PlanState.FAILED):
            return plan
        fact = await self._facts.of_run(plan.chief_run_id, ending=endings.get(plan.chief_run_id))
        if not plan.awaits_chief:
            # Somebody has sent its run on by hand.
            if fact.status in (None, states.RunState.FAILED, states.RunState.CANCELLED):
                return plan
            plan = await self._repository.write(plan, transitions.asked_again(plan, self._repository.now()))
        return await self._repository.write(plan, await self._heard(plan, plan.chief_run_id or "", fact))

    async def _heard(self, plan: plans.Plan, run_id: str, fact: RunFact) -> plans.Plan:
        at = self._repository.now()
        if fact.status is states.RunState.DONE:
            try:
                found = await self._chief.tasks(plan, run_id)
            except errors.InputRefused as error:
                return transitions.unplanned(plan, error.to_json(), at)
            return transitions.planned(plan, found, at)
        if fact.status is None or fact.status.finished:
            return transitions.unplanned(plan, _why(run_id, fact), at)
        return plan

    async def _ask_chief(self, plan: plans.Plan) -> plans.Plan:
        try:
            run_id: str | None = await self._chief.start(plan)
        except (errors.DiskFull, errors.Unavailable):
            raise
        except errors.ControlRoomError as error:
            run_id = _made_before(error)
            if run_id is None:
                _log.warning("the chief cannot be asked: %s", error.message, extra={"session_id": plan.session_id})
                return await self._repository.write(
                    plan, transitions.unplanned(plan, tasks.refusal(error), self._repository.now())
                )
        return await self._repository.write(plan, dataclasses.replace(plan, chief_run_id=run_id))

    # -- tasks

    async def _begin(self, kept: plans.Plan, settled: plans.Plan, resting: Collection[str]) -> plans.Plan:
        begun, at = settled, self._repository.now()
        application = self._engine.status().limit + sum(run_id in resting for run_id in running(settled))
        for task in rules.startable(settled, application):
            begun = transitions.begun(begun, task.id, at)
        # Durable before any run is made, so that a restart finds each of them by its key.
        plan = await self._repository.write(kept, begun)
        made, trouble = plan, None
        for task in rules.unbegun(plan):
            try:
                made = await self._with_run(made, task)
            except (errors.DiskFull, errors.Unavailable, errors.StorageFault) as error:
                trouble = error
                break
        plan = await self._repository.write(plan, made)
        if trouble is not None:
            raise trouble
        return plan

    async def _with_run(self, plan: plans.Plan, task: plans.Task) -> plans.Plan:
        at = self._repository.now()
        try:
            started = await self._runs.start(tasks.run_request(plan, task))
        except (errors.DiskFull, errors.Unavailable):
            raise
        except errors.ControlRoomError as error:
            run_id = _made_before(error)
            if run_id is not None:
                return transitions.with_run(plan, task.id, run_id, at)
            facts = {"session_id": plan.session_id, "task": task.id, "code": error.code}
            _log.warning("no run can be made: %s", error.message, extra=facts)
            return transitions.refused(plan, task.id, tasks.refusal(error), at)
        return transitions.with_run(plan, task.id, started.run_id, at)


def running(plan: plans.Plan) -> list[str]:
    """Return the runs that a plan waits for."""
    of_tasks = [task.run_id for task in plan.tasks if task.status is plans.TaskState.RUNNING and task.run_id]
    return [*of_tasks, *([plan.chief_run_id] if plan.awaits_chief and plan.chief_run_id else [])]


def _is_unscoped(task: plans.Task) -> bool:
    # Plans written by hand have tasks without recipe and question.
    begun = task.begun or task.status is plans.TaskState.FAILED
    return not begun and task.recipe_id is None and task.scoping_question is None


def _made_before(error: errors.ControlRoomError) -> str | None:
    """Return the run that was made under the same key, before somebody changed by hand what it is made of."""
    run_id = error.detail.get("run_id") if error.code == "idempotency_conflict" else None
    return run_id if isinstance(run_id, str) else None


def _why(run_id: str, fact: RunFact) -> Mapping[str, plain.Json]:
    if fact.error is not None:
        return fact.error
    told = "was deleted" if fact.status is None else f"is {fact.status}"
    code = rules.RUN_DELETED if fact.status is None else f"run_{fact.status}"
    return errors.RunFailed(f"the chief's run {run_id} {told}", code=code).to_json()
