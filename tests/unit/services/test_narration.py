"""Events as messages: what the narrator makes of each event, from the first one on."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import events
from app.services.conversation_messages import Narrator

RUN = "20260210T143000Z-k3x9af"
NOTES: dict[str, dict[str, Any]] = {
    "recipe:started": {"recipeId": "small", "recipeLabel": "Small", "step": "review", "stepCount": 1},
    "recipe:exited": {"step": "review", "reason": "committed", "error": None},
}
SMALL = {"recipe_id": "small", "recipe_label": "Small", "current_step": "review", "step": "review", "step_count": 1}


class Story:
    """A run whose events arrive one by one."""

    def __init__(self, *, plain_prompt: bool = False) -> None:
        self.narrator = Narrator(RUN, "first", plain_prompt=plain_prompt)
        self.seq = 0

    def tell(self, type: str, **data: Any) -> list[dict[str, Any]]:
        """Return the messages of the next event, without the fields that all messages have."""
        self.seq += 1
        event = events.Event(seq=self.seq, at="2026-02-10T14:30:00Z", type=type, run_id=RUN, data=data)
        told = [message.to_json() for message in self.narrator.messages_of(event)]
        assert {(one.pop("seq"), one.pop("run_id")) for one in told} <= {(self.seq, RUN)}
        return told

    def note(self, event: str, **data: Any) -> list[dict[str, Any]]:
        """Return the messages of a driver's note."""
        return self.tell("recipe.note", event=event, **{"sessionId": "first", **NOTES.get(event, {}), **data})


def test_a_reported_exit_is_not_repeated() -> None:
    """An exit that the driver has reported is not repeated at the run's end."""
    story = Story()

    assert story.note("recipe:started") == [{"type": "recipe_started", "session_id": "first", **SMALL}]
    assert story.note("recipe:exited") == [
        {"type": "recipe_exited", "session_id": "first", "reason": "committed", "error": None}
        | {"outcome": None, "other_description": None}
    ]
    assert story.tell("run.ended", status="done", error=None, ending={"reason": "committed"}) == [
        {"type": "turn_complete", "session_id": "first"}
    ]
    assert story.narrator.over


def test_a_cancel_that_came_last_wins() -> None:
    """An exit that a cancel has overtaken is followed by the exit that counts."""
    story = Story()
    story.note("recipe:started")
    story.note("recipe:exited")
    told = story.tell("run.ended", status="cancelled", error=None, ending={"reason": "cancelled"})

    assert [one["type"] for one in told] == ["recipe_exited", "turn_complete"]
    assert told[0]["reason"] == "cancelled"


def test_an_exit_has_the_outcome_that_led_to_it() -> None:
    """An exit has the outcome that led to it, also after a resume, or none."""
    story = Story()
    story.note("recipe:started")
    story.note("step:outcome", outcome="other", otherDescription="no repository")
    story.tell("run.resumed")
    exits = [story.note("recipe:exited", reason="user-provided-other")]
    story.note("step:started", step="fix", stepCount=2)
    exits.append(story.note("recipe:exited", reason="backend-error", error="no credit"))
    exits.append(story.tell("run.ended", status="cancelled", ending={"reason": "cancelled"})[:1])

    assert [(one["outcome"], one["other_description"]) for (one,) in exits] == [
        ("other", "no repository"),
        (None, None),
        (None, None),
    ]


def test_a_parked_run() -> None:
    """A fault that parks the run makes a message with its code; a person's pause makes none."""
    story = Story()
    error: dict[str, Any] = {"code": "storage_error", "message": "No space left on device", "key": None, "detail": {}}

    assert story.tell("run.paused", reason="paused", error=None) == []
    assert story.tell("run.paused", reason="storage_error", error=error) == [
        {"type": "recipe_error", "session_id": "first", "code": "storage_error", "error": "No space left on device"}
    ]


def test_a_damaged_run() -> None:
    """A damaged journal makes an error message and ends the turn."""
    told = Story().tell("recovery.corrupt", file="steps.jsonl", line=3, reason="chain")

    assert [one["type"] for one in told] == ["recipe_error", "turn_complete"]
    assert told[0]["code"] == "journal_corrupt"


def test_a_resumed_run_starts_again() -> None:
    """After a resume the recipe is reported as started, at the step where it had stopped."""
    story = Story()
    story.note("recipe:started")
    story.note("step:started", step="fix", stepCount=2)
    story.note("recipe:exited", reason="backend-error", error="no credit")
    story.tell("run.ended", status="failed", error={"message": "no credit"}, ending={"reason": "backend-error"})
    told = story.tell("run.resumed", dead=[[0, 1]])

    place = {"current_step": "fix", "step": "fix", "step_count": 2}
    assert told == [{"type": "recipe_started", "session_id": "first", **SMALL, **place}]
    assert not story.narrator.over


def test_a_restart() -> None:
    """Messages up to a restart belong to the old conversation, later ones to the new one."""
    story = Story()
    told = [
        *story.note("step:transition", toRecipe="small"),
        *story.note("recipe:restarted", sessionId="second", fromSessionId="first"),
        *story.note("recipe:started", sessionId="second"),
    ]

    assert [(one["type"], one["session_id"]) for one in told] == [
        ("recipe_exited", "first"),
        ("turn_complete", "first"),
        ("recipe_started", "second"),
    ]
    assert told[0]["reason"] == "restart-new-session"


def test_a_prompt_has_no_recipe() -> None:
    """A plain prompt makes messages only of its reply and its end."""
    story = Story(plain_prompt=True)

    assert story.tell("recipe.note", event="prompt:started", sessionId="first") == []
    assert story.tell("step.finished", status="done", position=0, step_id="prompt") == [
        {"type": "response", "session_id": "first", "step": None}
    ]
    assert story.tell("run.ended", status="done", error=None, ending={"reason": "answered"}) == [
        {"type": "turn_complete", "session_id": "first"}
    ]


@pytest.mark.parametrize("told_before", [True, False])
def test_a_prompt_that_fails_is_one_error(told_before: bool) -> None:
    """A failed plain prompt makes one error message, from the first event that has the error."""
    story = Story(plain_prompt=True)
    error = {"code": "agent_timeout", "message": "an hour is over"}
    told = story.tell("step.failed", error=error) if told_before else []
    told += story.tell("run.ended", status="failed", error=error, ending={"reason": "backend-error"})

    assert told == [
        {"type": "error", "code": "agent_timeout", "message": "an hour is over"},
        {"type": "turn_complete", "session_id": "first"},
    ]


@pytest.mark.parametrize("type", [*events.EventType, "something.new"])
def test_fields_may_be_missing(type: str) -> None:
    """An event with missing or wrong fields does not raise an error."""
    for data in ({}, {"event": "step:transition"}, {"event": 7}, {"error": None}, {"ending": None}):
        Story().tell(type, **data)
        Story(plain_prompt=True).tell(type, **data)
