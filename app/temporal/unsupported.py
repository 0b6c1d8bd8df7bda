"""What is refused by name: no process sees all runs and all calls of agents."""

from __future__ import annotations

from collections.abc import Sequence

from app import errors
from app.domain import limits, runs

_CODE = "unsupported_on_engine"
_LIMITS = ("limits", "leave them out")


def refuse(start: runs.RunStart) -> None:
    """Refuse what no worker could keep: `concurrency`, and limits.

    Raises:
        errors.RequestInvalid: `unsupported_on_engine`.
    """
    lacks = [
        ("concurrency", "leave it out", start.concurrency is not None),
        (*_LIMITS, start.limits != limits.NO_LIMITS),
    ]
    if asked := [(name, way_out) for name, way_out, is_asked in lacks if is_asked]:
        raise _refusal(asked)


def limits_refusal() -> errors.RequestInvalid:
    """Return the refusal of limits of a run that is there."""
    return _refusal([_LIMITS])


def _refusal(asked: Sequence[tuple[str, str]]) -> errors.RequestInvalid:
    flaws = [
        errors.Flaw(
            path=f"$.{name}",
            code=_CODE,
            message=f"{name} is not supported on Temporal; {way_out}, or use the embedded engine",
        )
        for name, way_out in asked
    ]
    return errors.RequestInvalid("; ".join(flaw.message for flaw in flaws), code=_CODE, flaws=flaws)
