"""Derivation: makes messages from the events of runs, read from their files, whether or not a process listened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta
from typing import Any

from app import clock, errors
from app.domain import decisions, events, notifications, plain, states
from app.engine import event_feed, stores

MARGIN = timedelta(hours=1)
"""Time before its cursor from which messages are searched again, since rows and events lag and clocks are set."""

SHORT_MARGIN = timedelta(minutes=2)  # The same for a process that searches all the time.
BUDGET_REASONS = decisions.LIMIT_REASONS  # Reasons of pauses at a budget.

_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)


def of_portion(portion: event_feed.Portion) -> list[notifications.Message]:
    """Return the messages for events of the feed."""
    made = (of_event(event, portion.recipe_id, portion.labels) for event in portion.events)
    return [message for message in made if message is not None]


def of_event(event: events.Event, recipe_id: str, labels: Mapping[str, str]) -> notifications.Message | None:
    """Return the message for an event; the same event always gives the same message."""
    found = _read(event)
    if found is None:
        return None
    kind, mark, text, data = found
    return notifications.Message(
        message_id=_id(event.run_id, mark),
        kind=kind,
        at=event.at,
        run_id=event.run_id,
        recipe_id=recipe_id,
        text=f"{recipe_id} {text}"[:500],
        labels=dict(labels),
        data=data,
    )


def in_order(messages: Iterable[notifications.Message]) -> list[tuple[str, notifications.Message]]:
    """Return messages by time, those of each run in their order, each with the time by which it is sorted.

    If the clock was set back, a message is sorted by the newest time before it in its run.
    """
    latest = dict[str, str]()
    found = []
    for message in messages:
        latest[message.run_id] = max(message.at, latest.get(message.run_id, ""))
        found.append((latest[message.run_id], message))
    return sorted(found, key=lambda each: each[0])


async def since(
    store: stores.RunStore, instant: str, margin: timedelta = MARGIN
) -> AsyncIterator[notifications.Message]:
    """Yield the messages of an instant and later, from the events of every run that may have changed since then.

    Args:
        margin: Time before the instant that is searched, too.

    Raises:
        errors.StorageFault: the events of a run cannot be read now; those of the others were yielded before.
    """
    fault: errors.StorageFault | None = None
    begin = clock.stamp(clock.instant(instant) - margin)
    seen = set[str]()
    # Unfinished runs first: one that ends meanwhile is found again among the changed ones instead of missed by both.
    for query in (stores.RunQuery(status=_UNFINISHED), stores.RunQuery(updated_after=begin)):
        async for row in stores.every_run(store, query):
            if row.run_id in seen or clock.is_internal(row.run_id):
                continue
            seen.add(row.run_id)
            try:
                made = await _of_run(store, row)
            except errors.StorageFault as unreadable:
                # One run that cannot be read now must not suppress the messages of the others.
                fault = fault or unreadable
                continue
            for counts_from, message in in_order(made):
                if counts_from >= begin:
                    yield message
    if fault is not None:
        raise fault


async def _of_run(store: stores.RunStore, row: stores.RunSummary) -> list[notifications.Message]:
    try:
        found = await store.read_events(row.run_id)
    except errors.NotFound:
        found = []
    made = [message for event in found if (message := of_event(event, row.recipe_id, row.labels)) is not None]
    ended = [message for message in made if message.kind in ("failed", "done")]
    if row.status in ("failed", "done") and row.completed_at is not None and not ended:
        # A power cut has destroyed its last events.
        data = {"status": row.status, "error": {"code": row.error_code} if row.error_code else None}
        seq = await _number_of_ending(store, row.run_id)
        last = events.Event(seq=seq, at=row.completed_at, type="run.ended", run_id=row.run_id, data=data)
        made += [message for message in [of_event(last, row.recipe_id, row.labels)] if message is not None]
    return made


async def _number_of_ending(store: stores.RunStore, run_id: str) -> int:
    # The journal has the number, too. With another number the same ending would be another message.
    try:
        ended = (await store.read(run_id)).decisions.ended
    except (errors.NotFound, errors.JournalCorrupt):
        return 0
    return 0 if ended is None else ended.event


def _read(event: events.Event) -> tuple[notifications.Kind, str, str, dict[str, plain.Json]] | None:
    data = event.data
    match event.type:
        case events.EventType.GATE_OPENED:
            facts = {name: data.get(name) for name in ("gate_id", "prompt", "options", "expires_at")}
            return "waits", f"gate {data.get('gate_id')}", f"asks: {data.get('prompt')}", facts | {"key": event.key}
        case events.EventType.RUN_PAUSED:
            return _paused(event, str(data.get("reason") or ""))
        case events.EventType.RUN_ENDED if data.get("status") in ("failed", "done"):
            kind: Any = data["status"]
            error = data.get("error")
            reason = f" failed: {error.get('message') or error.get('code')}" if isinstance(error, dict) else ""
            return kind, f"{event.seq}", reason.strip() or "is done", {"error": error}
        case events.EventType.RUN_STALLED:
            text = f"has been silent for {data.get('silent_seconds')} s at {event.key}"
            return "stalled", f"{event.seq}", text, dict(data) | {"key": event.key}
    return None


def _paused(event: events.Event, reason: str) -> tuple[notifications.Kind, str, str, dict[str, plain.Json]] | None:
    if reason == decisions.PAUSED_BY_PERSON:
        return None
    error = event.data.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    kind: notifications.Kind = "budget" if reason in BUDGET_REASONS else "waits"
    return kind, f"{event.seq}", f"is parked: {message or reason or 'a fault'}", {"reason": reason, "error": error}


def _id(run_id: str, mark: str) -> str:
    return f"msg_{plain.sha256(f'{run_id} {mark}'.encode())[:24]}"
