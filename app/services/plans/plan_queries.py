"""Queries of session plans, for every interface."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from app import errors
from app.domain import access, plans
from app.services import faults

if TYPE_CHECKING:
    from app.services.plans.planner import Planner
    from app.services.plans.repository import PlanRepository


class PlanQueries:
    """Shows session plans.

    Args:
        planner: Has the runs of plans, which take edits of the files; None: plans are shown as their files have them.
    """

    def __init__(self, repository: PlanRepository, planner: Planner | None = None) -> None:
        self._repository = repository
        self._planner_of_runs = planner

    async def page(self, query: plans.PlanQuery) -> tuple[list[plans.PlanSummary], bool]:
        """Return a page of plans, newest first, and whether more follow."""
        wanted = dataclasses.replace(query, limit=query.limit + 1)
        with faults.as_errors():
            found = await (self._repository.page(wanted) if query.scope is None else self._within(wanted, query.scope))
        if self._planner_of_runs is not None:
            found = [self._planner_of_runs.as_taken(summary) for summary in found]
        return found[: query.limit], len(found) > query.limit

    async def _within(self, query: plans.PlanQuery, scope: access.Scope) -> list[plans.PlanSummary]:
        """Return the plans of a scope by reading their files, since few keys are limited and plans are few."""
        found: list[plans.PlanSummary] = []
        # Pages are read until the limit is reached, since most plans of a page may be outside of the scope.
        while len(found) < query.limit and (page := await self._repository.page(query)):
            for summary in page:
                with contextlib.suppress(errors.NotFound, errors.Conflict):
                    if (await self._repository.get(summary.session_id)).is_within(scope):
                        found.append(summary)
            query = dataclasses.replace(query, cursor=(page[-1].created_at, page[-1].session_id))
        return found

    async def has_taken(self, plan: plans.Plan) -> bool:
        """Return whether the plan's run has taken the content of its file; an edit may wait for another process."""
        if self._planner_of_runs is None or await self._planner_of_runs.has_taken(plan):
            return True
        # The file may have been written between the reads of the file and of the journal.
        return await self._repository.get(plan.session_id) != plan

    async def show(self, session_id: str) -> plans.Plan:
        """Return a plan.

        Raises:
            errors.NotFound, errors.Conflict: the plan does not exist, or its file cannot be read.
        """
        with faults.as_errors():
            if self._planner_of_runs is not None:
                return await self._planner_of_runs.current(session_id)
            return await self._repository.get(session_id)
