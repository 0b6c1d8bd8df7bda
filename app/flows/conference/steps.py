"""What both phases need of steps: how far the run is, which slots show what tools brought, and what a failed step
means.
"""

from __future__ import annotations

from collections.abc import Sequence

from app import errors
from app.domain import records, slots
from app.engine import ports
from app.flows.conference import prompts


class Progress:
    """Show how many steps are finished."""

    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._finished = 0
        self._ctx.show(slots.Progress())

    def finish(self) -> None:
        """Count one more."""
        self._finished += 1
        self._ctx.show(slots.Progress(finished_steps=self._finished))


def slots_of(called: Sequence[prompts.Called]) -> tuple[str, ...]:
    """Return the slots that calls have filled."""
    return tuple(call.key for call in called if call.payload is not None)


def failed(record: records.Record, what: str, reason: str) -> errors.RunFailed:
    """Return what a step that is not done means for the run.

    Args:
        what: What did not come about, in words.
        reason: The same as a stable name, for the ending.
    """
    error = record.error or records.StepError(code="step_failed", message=record.status.value)
    return errors.RunFailed(
        f"{what}: {error.message}",
        code=error.code,
        reason=reason,
        key=record.key,
        detail=dict(error.detail),
        causes=(record.key,),
    )
