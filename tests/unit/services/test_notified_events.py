"""Messages: which events make one, and its text."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import events
from app.services.notifications import derivation

AT = "2026-02-10T14:30:00.000Z"


def event(type_: str, seq: int = 7, key: str | None = None, **data: Any) -> events.Event:
    """Return an event of a run."""
    return events.Event(seq=seq, at=AT, type=type_, run_id="r1", key=key, data=data)


@pytest.mark.parametrize(
    ("found", "kind", "text"),
    [
        (event("gate.opened", key="ship", gate_id="g", prompt="Ship?"), "waits", "book asks: Ship?"),
        (event("run.paused", reason="storage_error", error={"message": "no room"}), "waits", "book is parked: no room"),
        (event("run.paused", reason="time_limit"), "budget", "book is parked: time_limit"),
        (event("run.paused", reason="budget_exhausted"), "budget", "book is parked: budget_exhausted"),
        (event("run.ended", status="done"), "done", "book is done"),
        (event("run.ended", status="failed", error={"code": "x"}), "failed", "book failed: x"),
        (
            event("run.stalled", key="draft", agent_id="a", silent_seconds=240),
            "stalled",
            "book has been silent for 240 s at draft",
        ),
    ],
)
def test_each_notified_event_makes_one_message(found: events.Event, kind: str, text: str) -> None:
    """Each of these events makes one message with its kind and text."""
    message = derivation.of_event(found, "book", {"a": "b"})

    assert message is not None
    assert (message.kind, message.text, message.at, message.labels) == (kind, text, AT, {"a": "b"})


@pytest.mark.parametrize(
    "found",
    [
        event("run.paused", reason="paused_by_person"),
        event("run.ended", status="cancelled"),
        event("step.failed"),
        event("run.waiting"),
    ],
)
def test_orders_of_a_person_make_no_message(found: events.Event) -> None:
    """A pause or a cancel by a person, a failed step and a wait make no message."""
    assert derivation.of_event(found, "book", {}) is None


def test_a_gate_that_is_asked_again_makes_the_same_message() -> None:
    """A repeated gate event makes the same message, and a repeated ending makes another one."""
    gates = [derivation.of_event(event("gate.opened", seq, gate_id="g"), "book", {}) for seq in (3, 9)]
    endings = [derivation.of_event(event("run.ended", seq, status="done"), "book", {}) for seq in (3, 9)]

    assert len({each.message_id for each in gates if each}) == 1
    assert len({each.message_id for each in endings if each}) == 2
