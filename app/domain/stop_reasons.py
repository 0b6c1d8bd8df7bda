"""Reasons of paused runs: what each means, and the command that sends the run on."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain import decisions

BY_PERSON = decisions.PAUSED_BY_PERSON  # A person asked for the pause.


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why a run rests, and what to do."""

    text: str  # What it means, where the run has no error that says so.
    act: str | None = "control-room runs unpause {run_id}"  # Command that sends it on.


_REPAIRED = StopReason("a repair cut the run back to its intact lines")
_LIMITED = StopReason("a time limit was reached", "control-room runs limits {run_id} --max-time 2h")
_SPENT = StopReason("no room is left in a limit or budget", "control-room runs limits {run_id}")
_KNOWN = {decisions.REPAIRED: _REPAIRED, decisions.TIME_LIMIT: _LIMITED, decisions.BUDGET_EXHAUSTED: _SPENT}
_OTHER = StopReason("a fault parked the run")


def of(reason: str) -> StopReason:
    """Return the entry of a reason."""
    return _KNOWN.get(reason, _OTHER)
