"""Causes of runs at rest: how they ended or why they are paused, in plain words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from app import printable
from app.domain import allowed_orders, authors, explanations, plain, states, stop_reasons, views
from app.domain.explanations import Cause
from app.domain.unreadable import Unreadable

_STEPS_NAMED = 4


def ending(run_id: str, view: views.RunView, by: Mapping[str, plain.Json] | None) -> Cause:
    """Return how a run ended, and the command that continues it.

    Args:
        by: Author of its cancel, if it is known.
    """
    if view.status is states.RunState.DONE:
        ending = view.ending or {}
        partial = f", but only in part: {_partly(ending)}" if ending.get("partial") else ""
        if (variable := ending.get("missing_result")) is not None:
            partial += f"; its result is missing: no step has set {variable}"
        return _cause(run_id, "ended", f"It is done{partial}", view.completed_at)
    act: str | None = f"control-room runs resume {run_id}"
    if view.status is states.RunState.CANCELLED:
        who = f" by {name}" if (name := _name(by)) else ""
        text = f"It was cancelled{_superseded(view.ending) or who}"
        return _cause(run_id, "ended", text, view.completed_at, act=act)
    text = f"It failed: {_reported(view.error)}"
    # A repair must come before a resume, which would be refused.
    if view.error is not None and view.error.get("code") == "journal_corrupt":
        return _cause(run_id, "damaged", text, view.completed_at, act=f"control-room runs repair {run_id}")
    cause = _cause(run_id, "ended", text, view.completed_at, act=act)
    return denied(cause) if allowed_orders.denied_at(view) is not None else cause


def denied(cause: Cause) -> Cause:
    """Return how a run ended that a denial ended, in itself or in a run that it waited for."""
    return dataclasses.replace(cause, text=f"{cause.text}; a denial is final, so only a new run can continue", act=None)


def _name(author: Mapping[str, plain.Json] | None) -> str | None:
    found = None if author is None else authors.named(author)
    return None if found is None or found.name is None else f"{found.name}{' (claimed)' if found.claimed else ''}"


def _superseded(ending: Mapping[str, plain.Json] | None) -> str:
    newer = (ending or {}).get("superseded_by")
    return f" by run {newer['run_id']} of its concurrency key {newer['key']}" if isinstance(newer, dict) else ""


def _partly(ending: Mapping[str, plain.Json]) -> str:
    named = (("failed_steps", "{} failed"), ("cut_off_steps", "the length limit cut off {}"))
    parts = [
        text.format(_listed(keys)) for field, text in named if isinstance(keys := ending.get(field), list) and keys
    ]
    # Without a failed or cut-off step of its own, a run is partial because of a run that it started.
    return " and ".join(parts) or f"a run that it started ended in part [{ending.get('reason')}]"


def _listed(keys: list[plain.Json]) -> str:
    shown = [str(key) for key in keys[:_STEPS_NAMED]]
    more = f" and {len(keys) - len(shown)} more" if len(keys) > len(shown) else ""
    return f"step{'s' if len(keys) > 1 else ''} {', '.join(shown)}{more}"


def pause(run_id: str, view: views.RunView, by: Mapping[str, plain.Json] | None) -> Cause:
    """Return why a run is paused, and the command that continues it.

    Args:
        by: Author of its pause, if it is known.
    """
    reason = view.reason or "paused"
    act, since = stop_reasons.act(run_id, reason, view.error), view.paused_at or view.updated_at
    if reason == stop_reasons.BY_PERSON:
        return _cause(run_id, "paused", f"{_name(by) or 'A person'} paused it", since, act=act)
    text = _reported(view.error, known=reason) if view.error else stop_reasons.of(reason).text
    parked = _cause(run_id, "parked", f"It is parked ({reason}): {text}", since, act=act)
    return dataclasses.replace(parked, until=stop_reasons.until(view.error))


def _reported(error: Mapping[str, plain.Json] | None, known: str | None = None) -> str:
    if not error:
        return "the reason is not known"
    message, code = printable.clause(str(error.get("message"))), error.get("code")
    return message if code == known else f"{message} [{code}]"


def unreadable(run_id: str, file: Unreadable) -> Cause:
    """Return the cause of a run with a file that cannot be read now."""
    text = f"{file.file} cannot be read now ({file.errno}); it is read again at {file.next_try_at}"
    return dataclasses.replace(_cause(run_id, "unreadable", text, file.since), until=file.next_try_at)


def _cause(run_id: str, kind: explanations.CauseKind, text: str, since: str | None, *, act: str | None = None) -> Cause:
    return Cause(run_id=run_id, kind=kind, text=text, since=since or None, act=act)
