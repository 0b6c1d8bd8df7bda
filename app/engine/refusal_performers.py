"""Refusals and skips: steps without an operation, recorded like all others."""

# A reference to null fails before anything could be requested. Without a journal line the step would be missing
# from the list of steps, and a resume would have nothing to repeat and fail at the same place.

from __future__ import annotations

from typing import cast

from app.domain import operations, plain
from app.domain.records import Result
from app.domain.states import StepState
from app.engine import ports, step_decisions


class RefusalPerformer:
    """Perform `refusal`: fail as the operation says."""

    async def perform(self, call: ports.Call) -> Result:
        """Return the failure."""
        refusal = cast("operations.Refusal", call.operation)
        return step_decisions.failed(refusal.code, refusal.message, refusal.detail)


class SkipPerformer:
    """Perform `skip`: be passed over as the operation says."""

    async def perform(self, call: ports.Call) -> Result:
        """Return the facts of the operation."""
        skip = cast("operations.Skip", call.operation)
        return Result(status=StepState.SKIPPED, output=dict(skip.detail), summary=plain.preview(skip.reason))
