"""Queries of session plans: what is shown of them, whoever asks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from app.domain import plans
from app.services import faults

if TYPE_CHECKING:
    from app.services.plans.repository import PlanRepository


class PlanQueries:
    """Show session plans as they are kept."""

    def __init__(self, repository: PlanRepository) -> None:
        self._repository = repository

    async def page(self, query: plans.PlanQuery) -> tuple[list[plans.PlanSummary], bool]:
        """Return a page of plans, newest first, and whether more follow."""
        with faults.as_errors():
            found = await self._repository.page(dataclasses.replace(query, limit=query.limit + 1))
        return found[: query.limit], len(found) > query.limit

    async def show(self, session_id: str) -> plans.Plan:
        """Return a plan.

        Raises:
            errors.NotFound, errors.Conflict: there is none, or its file cannot be read.
        """
        with faults.as_errors():
            return await self._repository.get(session_id)
