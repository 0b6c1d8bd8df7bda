"""Settling: a plan as its runs have it now, and runs that are sent on for it."""

from __future__ import annotations

import asyncio

from app import errors
from app.domain import plans, states
from app.flows.session_plan import rules
from app.services.plans.facts import Facts
from app.services.plans.plan_inputs import is_unscoped
from app.services.plans.scoping import Scoper
from app.services.requests import ResumeRequest
from app.services.runs import Runs


class Settler:
    """Bring plans up to date before a change is judged by them."""

    def __init__(self, *, facts: Facts, scoper: Scoper, runs: Runs) -> None:
        self._facts = facts
        self._scoper = scoper
        self._runs = runs

    async def settled(self, plan: plans.Plan) -> plans.Plan:
        """Return a plan as its runs have it."""
        known = rules.settled(plan, await self._facts.of(plan))
        await self._scoper.settle()
        for task in known.tasks:
            if is_unscoped(task):
                known = known.with_task(await asyncio.to_thread(self._scoper.scoped, known, task))
        return rules.settled(known, {})

    async def sent_on(self, run_id: str) -> bool:
        """Send a failed run on, if nobody else has; false if there is nothing of it to go on from.

        Raises:
            errors.ControlRoomError: it cannot be sent on.
        """
        fact = await self._facts.of_run(run_id)
        if fact.status is not None and (not fact.status.finished or fact.status is states.RunState.DONE):
            # One that is done has failed the checks of its task, which are made again.
            return True
        try:
            await self._runs.resume(run_id, ResumeRequest())
        except (errors.NotFound, errors.JournalCorrupt):
            return False
        return True
