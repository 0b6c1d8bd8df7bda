"""Refusals and skips: perform steps without an operation, which are recorded like all others."""

# A reference to null fails before an operation can be requested. Without a journal line the step would be missing
# from the list of steps, and a resume would find nothing to repeat and fail at the same place.

from __future__ import annotations

from typing import cast

from app.domain import operations, plain
from app.domain.records import Result
from app.domain.states import StepState
from app.engine import ports, step_rules


class RefusalPerformer:
    """Performs `refusal`: the step fails as the operation specifies."""

    async def perform(self, call: ports.Call) -> Result:
        """Return the failure that the operation specifies."""
        refusal = cast("operations.Refusal", call.operation)
        return step_rules.failed(refusal.code, refusal.message, refusal.detail)


class SkipPerformer:
    """Performs `skip`: the step is skipped as the operation specifies."""

    async def perform(self, call: ports.Call) -> Result:
        """Return the result of a skipped step, with the facts of the operation."""
        skip = cast("operations.Skip", call.operation)
        return Result(status=StepState.SKIPPED, output=dict(skip.detail), summary=plain.preview(skip.reason))
