"""Plan events: their JSON is in the journals of plans, so its form never changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.domain import plain, plan_events
from app.domain.plan_events import Changed, Continued, Deleted, FileEdited, Observed, Removed, RunFact, Shown
from app.domain.states import RunState
from tests.unit.flows.session_plan import scripted
from tests.unit.services.plans import given

PLAN = dataclasses.replace(scripted.STARTED, other={"mood": "good"})
JSON = PLAN.to_json()
FAILED = RunFact(status=RunState.FAILED, error=given.ERROR, ended_at=given.LATER, partial=True, gate_id="gate-1")
FACTS = {"run-1": FAILED, "run-2": RunFact(status=None)}
SEEN = {
    "run-1": {"status": "failed", "error": given.ERROR, "ended_at": given.LATER, "partial": True, "gate_id": "gate-1"},
    "run-2": {"status": None, "error": None, "ended_at": None},
}


@pytest.mark.parametrize(
    ("event", "value"),
    [
        (Changed(plan=PLAN), {"kind": "change", "plan": JSON}),
        (
            FileEdited(plan=PLAN, at_start=True, seen_at=given.LATER),
            {"kind": "file", "plan": JSON, "at_start": True, "seen_at": given.LATER, "ends": False},
        ),
        (Observed(facts=FACTS, limit=2), {"kind": "look", "facts": SEEN, "limit": 2, "scoped": None}),
        (
            Observed(facts={}, limit=0, scoped=PLAN, attempts={3: 2}),
            {"kind": "look", "facts": {}, "limit": 0, "scoped": JSON, "attempts": {"3": 2}},
        ),
        (Deleted(), {"kind": "delete"}),
        (Continued(), {"kind": "continue"}),
        (Continued(plan=PLAN, earlier=("a", "b")), {"kind": "continue", "plan": JSON, "earlier": ["a", "b"]}),
        (Removed(), {"kind": "removed"}),
    ],
)
def test_an_event_has_the_form_of_journals(event: plan_events.PlanEvent, value: Mapping[str, Any]) -> None:
    """An event is written in the form of earlier journals, with its fields in their order, and read from it."""
    written = plain.encode(event.to_json())

    assert written == plain.encode(value)
    assert plan_events.from_json(json.loads(written)) == event


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        (Shown(plan=PLAN, on_file=None), {"plan": JSON, "on_file": None, "last": False}),
        (
            Shown(plan=PLAN, on_file="a", is_last=True, is_stale=True, earlier=("a",)),
            {"plan": JSON, "on_file": "a", "last": True, "stale": True, "earlier": ["a"]},
        ),
        (Shown(plan=PLAN, on_file="a", is_removal=True), {"plan": JSON, "on_file": "a", "removed": True}),
    ],
)
def test_what_is_shown_has_the_form_of_journals(shown: Shown, value: Mapping[str, Any]) -> None:
    """What an input shows is written in the form of earlier journals, and read from it."""
    written = plain.encode(shown.to_json())

    assert written == plain.encode(value)
    assert Shown.from_json(json.loads(written)) == shown


def test_an_edit_that_an_earlier_service_recorded_can_end_the_plan() -> None:
    """A recorded edit without the later fields replays as it was: it can end the plan, and its time is not known."""
    event = plan_events.from_json({"kind": "file", "plan": JSON})

    assert event == FileEdited(plan=PLAN, may_end=True)


def test_an_unknown_event_is_refused() -> None:
    """A value of an unknown kind is not an event."""
    with pytest.raises(ValueError, match="'burn' is not an event"):
        plan_events.from_json({"kind": "burn"})
