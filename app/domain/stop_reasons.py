"""Stop reasons: why paused runs rest, and the commands that let them continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain import decisions

BY_PERSON = decisions.PAUSED_BY_PERSON  # A person ordered the pause.


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why a run rests, and what a person can do."""

    text: str  # Explanation, if the run has no error with one.
    act: str | None = "control-room runs unpause {run_id}"  # Command that lets it continue.


_REPAIRED = StopReason("a repair cut the run back to its intact lines")
_LIMITED = StopReason("a time limit was reached", "control-room runs limits {run_id} --max-time 2h")
_SPENT = StopReason("no room is left in a limit or budget", "control-room runs limits {run_id}")
_NOT_ALLOWED = StopReason("the folder that the run works in is not allowed", None)  # Only another setting continues it.
_KNOWN = {
    decisions.REPAIRED: _REPAIRED,
    decisions.TIME_LIMIT: _LIMITED,
    decisions.BUDGET_EXHAUSTED: _SPENT,
    "workspace_not_allowed": _NOT_ALLOWED,
}
_AMOUNTS = {"cost_usd": "cost", "tokens": "tokens", "calls": "calls"}  # Options `--max-…` of limits.
_OTHER = StopReason("a fault parked the run")


def of(reason: str) -> StopReason:
    """Return the entry of a reason."""
    return _KNOWN.get(reason, _OTHER)


def act(run_id: str, reason: str, error: Mapping[str, Any] | None) -> str | None:
    """Return the command that lets a paused run continue; None if no single command does.

    Args:
        error: The error that parked it.
    """
    detail = (error or {}).get("detail") or {}
    if reason == decisions.BUDGET_EXHAUSTED and (account := detail.get("budget")):
        return raising(account, detail.get("limit", "cost_usd"))
    # A run is also parked by the limit of a run that waits for it; then the limit of that run must be raised.
    limited = detail.get("run_id", run_id) if reason == decisions.TIME_LIMIT else run_id
    command = of(reason).act
    return command.format(run_id=limited) if command else None


def until(error: Mapping[str, Any] | None) -> str | None:
    """Return when a paused run continues by itself if there is room then; None if a person has to let it continue.

    Args:
        error: The error that parked it.
    """
    turns_at = ((error or {}).get("detail") or {}).get("turns_at")
    return turns_at if isinstance(turns_at, str) else None


def raising(account: Mapping[str, str], limit: str) -> str:
    """Return the command that raises a limit of a run, `{run_id}`, or of a budget, `{name}`."""
    raised = f"--max-{_AMOUNTS[limit]} N"
    if "run_id" in account:
        return f"control-room runs limits {account['run_id']} {raised}"
    return f"control-room budgets set {account['name']} {raised}"
