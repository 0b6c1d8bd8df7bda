"""Reasons of paused runs: what each means, and the command that sends the run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
_NOT_ALLOWED = StopReason("the folder that the run works in is not allowed", None)  # Only another setting sends it on.
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
    """Return the command that sends a paused run on; None: no command alone does.

    Args:
        error: What parked it.
    """
    detail = (error or {}).get("detail") or {}
    if reason == decisions.BUDGET_EXHAUSTED and (account := detail.get("budget")):
        return raising(account, detail.get("limit", "cost_usd"))
    # A run is parked with one that waits for it, too; the limit is that run's.
    limited = detail.get("run_id", run_id) if reason == decisions.TIME_LIMIT else run_id
    command = of(reason).act
    return command.format(run_id=limited) if command else None


def until(error: Mapping[str, Any] | None) -> str | None:
    """Return when a paused run continues by itself if there is room then; None: a person has to send it on.

    Args:
        error: What parked it.
    """
    turns_at = ((error or {}).get("detail") or {}).get("turns_at")
    return turns_at if isinstance(turns_at, str) else None


def raising(account: Mapping[str, str], limit: str) -> str:
    """Return the command that raises a limit of a run, `{run_id}`, or of a budget, `{name}`."""
    raised = f"--max-{_AMOUNTS[limit]} N"
    if "run_id" in account:
        return f"control-room runs limits {account['run_id']} {raised}"
    return f"control-room budgets set {account['name']} {raised}"
