"""Messages about a conversation, derived from its run's events (agent-recipes, 16.2); the derivation is repeatable."""

# A client that reconnects must receive exactly what it missed, perhaps from another process. A journal of messages
# beside the events would be a second truth.
#
# So each message is derived from one event of the run, reading from the first event on; the message has the event's
# number, and messages up to the client's last number are skipped. Texts of replies are read from the journal. If one
# event makes two messages, both have its number. Numbers are per run, since a conversation has no journal; `run_id`
# names the run. Cost: when a client reconnects, the service reads the run's events again.

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain import events, plain, states

RESTARTED = "restart-new-session"
"""Reason that a recipe gives when it leaves a conversation to begin again in another one."""

UPSTREAM_ERRORS: Mapping[str, str] = {
    "unknown_recipe": "Recipe not found",
    "orchestration_error": "Max retries exceeded",
}
"""Texts by which clients of orchestration-design recognise an error, by its code (5.2)."""

_Object: TypeAlias = Mapping[str, plain.Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to a client."""

    type: str  # Kind of message.
    fields: Mapping[str, plain.Json] = field(default_factory=dict)  # Fields of this kind of message.
    seq: int | None = None  # Number of its event; None for an answer without an event.
    run_id: str | None = None  # Run that the message is about.
    position: int | None = None
    """Position of the journal line whose reply and prompt are added as `text` and `prompt`."""

    def to_json(self) -> dict[str, plain.Json]:
        """Return the message in the form that is sent."""
        return {"type": self.type, **self.fields, "seq": self.seq, "run_id": self.run_id}

    def with_reply(self, text: plain.Json, prompt: str | None) -> Message:
        """Return the message with the reply that it refers to, and with the prompt of that reply."""
        return dataclasses.replace(self, fields={**self.fields, "text": text, "prompt": prompt}, position=None)


def recipe_error(
    agent_session_id: str | None,
    code: plain.Json,
    error: plain.Json,
    *,
    seq: int | None = None,
    run_id: str | None = None,
) -> Message:
    """Return the message about a recipe that cannot be started or has failed."""
    known = UPSTREAM_ERRORS.get(str(code))
    fields = {"session_id": agent_session_id, "error": f"{known}: {error}" if known else error, "code": code}
    return Message(type="recipe_error", fields=fields, seq=seq, run_id=run_id)


class Narrator:
    """Turns the events of one run into messages; it needs every event from the first on, even known ones.

    Args:
        agent_session_id: Conversation that the run begins in.
        used: Returns the conversation that the run uses where its driver names one.
        plain_prompt: Whether the run is a single prompt without a recipe.
    """

    def __init__(
        self, run_id: str, agent_session_id: str | None, used: Callable[[str], str] = str, *, plain_prompt: bool
    ) -> None:
        self.run_id = run_id
        """The run."""
        self.agent_session_id = agent_session_id
        """Conversation in which the run is now."""
        self.seq = 0
        """Number of the newest processed event."""
        self.over = False
        """Whether the run's end was reported."""
        self._plain = plain_prompt
        self._used = used
        self._recipe: dict[str, plain.Json] = {}
        self._outcome: dict[str, plain.Json] = _NO_OUTCOME
        self._cancelled = False
        self._exit: str | None = None
        self._failure: _Object | None = None

    def messages_of(self, event: events.Event) -> list[Message]:
        """Return the messages for an event; for most events there are none."""
        self.seq = event.seq
        messages_of = _EVENTS.get(event.type)
        return [] if messages_of is None else messages_of(self, event.data)

    def rest(self) -> Message:
        """Return the message that the conversation is idle once more."""
        return self._message("turn_complete")

    # -- events of the run

    def _step_finished(self, data: _Object) -> list[Message]:
        if data.get("status") != states.StepState.DONE:
            return []
        step = None if self._plain else data.get("step_id")
        return [self._message("response", position=data.get("position"), step=step)]

    def _step_failed(self, data: _Object) -> list[Message]:
        self._failure = data.get("error")
        return self._failed(self._failure)

    def _run_paused(self, data: _Object) -> list[Message]:
        return self._failed(data.get("error"))

    def _run_corrupt(self, data: _Object) -> list[Message]:
        self.over = True
        place = f"{data.get('file')} line {data.get('line')}"
        error = {"code": "journal_corrupt", "message": f"the run's journal is damaged: {place}"}
        return [*self._failed(error), self.rest()]

    def _run_cancelled(self, _: _Object) -> list[Message]:
        self._cancelled = True
        return []

    def _run_resumed(self, _: _Object) -> list[Message]:
        self._exit = None
        self._failure = None
        self.over = False
        self._cancelled = False
        return [] if self._plain or not self._recipe else [self._begun()]

    def _run_ended(self, data: _Object) -> list[Message]:
        self.over = True
        reason = (data.get("ending") or {}).get("reason") or data.get("status")
        error = data.get("error")
        messages = self._ended_prompt(data.get("status"), error) if self._plain else self._ended_recipe(reason, error)
        return [*messages, self.rest()]

    def _ended_recipe(self, reason: str | None, error: _Object | None) -> list[Message]:
        if self._exit == reason:
            return []
        return [self._exited(reason, error and error.get("message"), _NO_OUTCOME)]

    def _ended_prompt(self, status: plain.Json, error: _Object | None) -> list[Message]:
        if status == states.RunState.CANCELLED:
            return self._failed({"code": "cancelled", "message": "the prompt was cancelled"})
        return [] if error is None or self._failure is not None else self._failed(error)

    # -- notes of the driver

    def _noted(self, data: _Object) -> list[Message]:
        note = _NOTES.get(str(data.get("event")))
        if "sessionId" in data:
            self.agent_session_id = self._used(str(data["sessionId"]))
        if note is None:
            return []
        # A step that a driver announces after a cancel is never performed, so it has not begun.
        return [messages for messages in note(self, data) if not (self._cancelled and messages.type in _STARTED)]

    def _recipe_started(self, data: _Object) -> list[Message]:
        self._recipe = {"recipe_id": data.get("recipeId"), "recipe_label": data.get("recipeLabel")}
        self._place(data)
        return [self._begun()]

    def _step_started(self, data: _Object) -> list[Message]:
        self._place(data)
        self._outcome = _NO_OUTCOME
        return [self._message("recipe_step_started", step=data.get("step"), step_count=data.get("stepCount"))]

    def _step_retry(self, data: _Object) -> list[Message]:
        return [self._message("orchestration_retry", step=data.get("step"), error=data.get("error"))]

    def _step_outcome(self, data: _Object) -> list[Message]:
        self._outcome = {"outcome": data.get("outcome"), "other_description": data.get("otherDescription")}
        return []

    def _step_transition(self, data: _Object) -> list[Message]:
        if "toStep" in data:
            steps = {"from_step": data.get("step"), "to_step": data["toStep"]}
            return [self._message("recipe_step_transition", **steps, **self._outcome)]
        return [self._exited(RESTARTED, None, self._outcome)]

    def _recipe_restarted(self, data: _Object) -> list[Message]:
        fields = {"session_id": self._used(str(data["fromSessionId"]))}
        return [Message(type="turn_complete", fields=fields, seq=self.seq, run_id=self.run_id)]

    def _recipe_exited(self, data: _Object) -> list[Message]:
        from app.dialects.agent_recipes import driver

        self._exit, error = data.get("reason"), data.get("error")
        unreadable = self._exit == driver.ORCHESTRATION_ERROR
        failed = self._failed({"code": "orchestration_error", "message": error}) if unreadable else []
        return [*failed, self._exited(self._exit, error, self._outcome)]

    # -- messages

    def _failed(self, error: _Object | None) -> list[Message]:
        if error is None:
            return []
        code, message = error.get("code"), error.get("message")
        if self._plain:
            return [Message(type="error", fields={"code": code, "message": message}, seq=self.seq, run_id=self.run_id)]
        return [recipe_error(self.agent_session_id, code, message, seq=self.seq, run_id=self.run_id)]

    def _place(self, data: _Object) -> None:
        step = data.get("step")
        self._recipe |= {"current_step": step, "step": step, "step_count": data.get("stepCount")}

    def _begun(self) -> Message:
        # In the order of both documents: the recipe, the conversation, the step.
        named = {name: self._recipe.get(name) for name in ("recipe_id", "recipe_label")}
        fields = {**named, "session_id": self.agent_session_id, **self._recipe}
        return Message(type="recipe_started", fields=fields, seq=self.seq, run_id=self.run_id)

    def _exited(self, reason: plain.Json, error: plain.Json, outcome: _Object) -> Message:
        return self._message("recipe_exited", reason=reason, error=error, **outcome)

    def _message(self, type: str, *, position: int | None = None, **fields: plain.Json) -> Message:
        fields = {"session_id": self.agent_session_id, **fields}
        return Message(type=type, fields=fields, seq=self.seq, run_id=self.run_id, position=position)


_NO_OUTCOME: dict[str, plain.Json] = {"outcome": None, "other_description": None}

_STARTED = ("recipe_started", "recipe_step_started")

_EVENTS: Mapping[str, Callable[[Narrator, _Object], list[Message]]] = {
    events.EventType.RECIPE_NOTE: Narrator._noted,
    events.EventType.STEP_FINISHED: Narrator._step_finished,
    events.EventType.STEP_FAILED: Narrator._step_failed,
    events.EventType.RUN_PAUSED: Narrator._run_paused,
    events.EventType.RUN_CANCEL_REQUESTED: Narrator._run_cancelled,
    events.EventType.RUN_RESUMED: Narrator._run_resumed,
    events.EventType.RUN_ENDED: Narrator._run_ended,
    events.EventType.RECOVERY_CORRUPT: Narrator._run_corrupt,
}

_NOTES: Mapping[str, Callable[[Narrator, _Object], list[Message]]] = {
    "recipe:started": Narrator._recipe_started,
    "step:started": Narrator._step_started,
    "step:retry": Narrator._step_retry,
    "step:outcome": Narrator._step_outcome,
    "step:transition": Narrator._step_transition,
    "recipe:restarted": Narrator._recipe_restarted,
    "recipe:exited": Narrator._recipe_exited,
}
