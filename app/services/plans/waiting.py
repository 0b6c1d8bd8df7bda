"""Waiting: for a plan that has something new to show, or that has come to rest."""

from __future__ import annotations

import asyncio

from app import clock
from app.domain import plans
from app.flows.session_plan import rules
from app.services import aio
from app.services.plans.facts import Facts
from app.services.plans.plan_inputs import running
from app.services.plans.planner import Planner
from app.services.plans.repository import PlanRepository
from app.services.runs import Runs


class Waiter:
    """Wait for plans."""

    def __init__(
        self, *, repository: PlanRepository, planner: Planner, facts: Facts, runs: Runs, clock: clock.Clock
    ) -> None:
        self._repository = repository
        self._planner = planner
        self._facts = facts
        self._runs = runs
        self._clock = clock

    async def changed(self, session_id: str, seconds: float, known: int | None) -> plans.Plan:
        """Return a plan as soon as its revision differs from the one known; one that rests at once.

        Args:
            seconds: Longest wait.
            known: Revision that the caller has; None: the present one.

        Raises:
            errors.NotFound, errors.Conflict: there is no such plan, or it cannot be read.
        """
        until = self._clock.monotonic() + seconds
        released = asyncio.ensure_future(self._runs.released())
        try:
            while True:
                news = self._repository.news(session_id)
                plan = await self._repository.get(session_id)
                left, known = until - self._clock.monotonic(), plan.revision if known is None else known
                if plan.revision != known or rules.at_rest(plan) or left <= 0 or released.done():
                    return plan
                # What is told may have been read before it was told.
                await aio.wait_first(news.wait(), self._clock.sleep(left), asyncio.wait([released]))
        finally:
            released.cancel()

    async def rested(self, session_id: str) -> plans.Plan:
        """Return a plan when nothing of it runs or is begun by itself any more, or when the work on it stops.

        A run that is paused, or that waits for a person, does not run.

        Raises:
            errors.NotFound, errors.Conflict: there is no such plan, or it cannot be read.
            errors.Unavailable: `planner_broken`.
        """
        released = asyncio.ensure_future(self._runs.released())
        try:
            while True:
                news = self._repository.news(session_id)
                plan = await self._repository.get(session_id)
                self._planner.check(session_id)
                changes = [(run_id, self._facts.number(run_id)) for run_id in running(plan)]
                if released.done() or not self._planner.works or await self._rests(plan):
                    return plan
                await aio.wait_first(
                    news.wait(), asyncio.wait([released]), *(self._facts.changed(*change) for change in changes)
                )
        finally:
            released.cancel()

    async def _rests(self, plan: plans.Plan) -> bool:
        if rules.at_rest(plan):
            return True
        under_way = running(plan)
        if not under_way or any(task.run_id is None for task in plan.tasks if task.status is plans.TaskState.RUNNING):
            return False
        for run_id in under_way:
            if not await self._facts.rests(run_id):
                return False
        return True
