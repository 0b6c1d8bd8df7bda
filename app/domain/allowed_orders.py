"""Allowed orders: determines which orders a run accepts in its state, and why it refuses the others."""

from __future__ import annotations

from typing import Literal, TypeAlias

from app.domain import gates, views
from app.domain.states import RunState

Order: TypeAlias = Literal["pause", "unpause", "cancel", "resume", "fork", "delete"]

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
    return {
        "pause": _ENDED if ended else "it is paused already" if status is RunState.PAUSED else None,
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
        # A resume takes over a run that another process executed.
        return _UNENDED if view.start.owner == "service" else None
    if view.status is RunState.FAILED and (key := denied_at(view)) is not None:
        return f"the gate {key!r} was denied, which is final; start it again, or fork it at a step before"
    return None


def denied_at(view: views.RunView) -> str | None:
    """Return the gate whose denial ended a run; None if it ended for another reason."""
    key = (view.error or {}).get("key")
    ending = next((record for record in reversed(view.living()) if record.key == key), None)
    return None if ending is None or not gates.is_denial(ending) else ending.key
