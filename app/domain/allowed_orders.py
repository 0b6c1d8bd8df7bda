"""Allowed orders: determines which orders a run accepts in its state, and why it refuses the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.domain import gates, records, views
from app.domain.states import RunState

Order: TypeAlias = Literal["pause", "unpause", "cancel", "resume", "fork", "delete"]

FOREIGN = "its folder was copied here, and a resume takes it over"
_CORRUPT = "journal_corrupt"
_ENDED = "it has ended"
_UNENDED = "it has not ended"


def refusals(view: views.RunView) -> dict[Order, str | None]:
    """Return each order with the reason why a run refuses it now; None: the run accepts the order."""
    if view.unreadable is not None:
        unreadable = f"{view.unreadable.file} cannot be read now"
        return dict.fromkeys(("pause", "unpause", "cancel", "resume", "fork", "delete"), unreadable)
    status, ended = view.status, view.status.finished
    damaged = "its journal is damaged; repair it first" if (view.error or {}).get("code") == _CORRUPT else None
    foreign = FOREIGN if view.foreign else None
    return {
        "pause": _ENDED if ended else "it is paused already" if status is RunState.PAUSED else foreign,
        "unpause": None if status is RunState.PAUSED else "it is not paused",
        "cancel": _ENDED if ended else None,
        "resume": damaged or _resume(view),
        "fork": damaged,
        "delete": None if ended else _UNENDED,
    }


def _resume(view: views.RunView) -> str | None:
    if view.status is RunState.DONE:
        return "it is done; fork it, or start it again"
    if not view.status.finished:
        # One that another process or data directory executed is taken over.
        why = "it is unpaused instead" if view.status is RunState.PAUSED else _UNENDED
        return why if view.start.owner == "service" and not view.foreign else None
    if view.status is RunState.FAILED and (key := denied_at(view)) is not None:
        return f"the gate {key!r} was denied, which is final; start the run again, or fork it at that gate"
    child = failed_child(view) if view.status is RunState.FAILED else None
    if child is not None and (child.error or {}).get("code") == gates.APPROVAL_DENIED:
        below = f"a gate of run {child.run_id}, which it waited for,"
        return f"{below} was denied, which is final; start this run again, or fork it at the step that waited"
    return None


def denied_at(view: views.RunView) -> str | None:
    """Return the gate whose denial ended a run; None: something else did."""
    ending = _ended_by(view)
    return None if ending is None or not gates.is_denial(ending) else ending.key


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedChild:
    """A run whose end made the run that had started it fail."""

    run_id: str  # Its id.
    error: Mapping[str, Any] | None  # Why it failed, if it did.


def failed_child(view: views.RunView) -> FailedChild | None:
    """Return the run whose end made a run fail; None: something else did."""
    ending = _ended_by(view)
    if ending is None or ending.error is None or not ending.error.code.startswith("child_"):
        return None
    output = ending.output
    if not isinstance(output, dict) or not isinstance(output.get("run_id"), str):
        return None
    error = output.get("error")
    return FailedChild(run_id=str(output["run_id"]), error=error if isinstance(error, dict) else None)


def _ended_by(view: views.RunView) -> records.Record | None:
    key = (view.error or {}).get("key")
    return next((record for record in reversed(view.living()) if record.key == key), None)
