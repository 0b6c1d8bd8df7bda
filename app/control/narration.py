"""
Narration: a run's events as messages about its conversation (agent-recipes, 16.2), the same each time they are told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.engine import events, plain, states

RESTARTED = "restart-new-session"
"""Reason with which a recipe leaves a conversation because it begins anew in another."""

_Object: TypeAlias = Mapping[str, plain.Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    What a client is told.
    """

    type: str
    """Kind of message."""
    fields: Mapping[str, plain.Json] = field(default_factory=dict)
    """Its own fields."""
    seq: int | None = None
    """Number of the event that it tells; None for an answer that no event stands behind."""
    run_id: str | None = None
    """Run that it is about."""
    position: int | None = None
    """Journal line whose output is to be put in as `text`."""

    def to_json(self) -> dict[str, plain.Json]:
        """
        Return the message as it is sent.
        """
        return {"type": self.type, **self.fields, "seq": self.seq, "run_id": self.run_id}

    def with_text(self, text: plain.Json) -> Message:
        """
        Return the message with the output that it refers to.
        """
        return dataclasses.replace(self, fields={**self.fields, "text": text}, position=None)


class Narrator:
    """
    Tell one run. It must hear every event from the first on, also where a client knows many of them already.
    """

    def __init__(self, run_id: str, agent_session_id: str | None, *, plain_prompt: bool) -> None:
        """
        Args:
            agent_session_id: Conversation that the run begins in.
            plain_prompt: Whether it is one prompt without a recipe.
        """
        self.run_id = run_id
        """Run that is told."""
        self.agent_session_id = agent_session_id
        """Conversation that the run speaks in at present."""
        self.seq = 0
        """Number of the newest event heard."""
        self.over = False
        """Whether the run's end was told."""
        self._plain = plain_prompt
        self._recipe: dict[str, plain.Json] = {}
        self._cancelled = False
        self._exit: str | None = None
        self._failure: _Object | None = None

    def tell(self, event: events.Event) -> list[Message]:
        """
        Return what an event means to a client; most mean nothing.
        """
        self.seq = event.seq
        tell = _EVENTS.get(event.type)
        return [] if tell is None else tell(self, event.data)

    def rest(self) -> Message:
        """
        Return once more that nothing goes on in the conversation.
        """
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
        self._exit, self._failure, self.over, self._cancelled = None, None, False, False
        return [] if self._plain or not self._recipe else [self._message("recipe_started", **self._recipe)]

    def _run_ended(self, data: _Object) -> list[Message]:
        self.over = True
        reason = (data.get("ending") or {}).get("reason") or data.get("status")
        error = data.get("error")
        told = self._ended_prompt(data.get("status"), error) if self._plain else self._ended_recipe(reason, error)
        return [*told, self.rest()]

    def _ended_recipe(self, reason: str | None, error: _Object | None) -> list[Message]:
        if self._exit == reason:
            return []
        return [self._message("recipe_exited", reason=reason, error=error and error.get("message"))]

    def _ended_prompt(self, status: plain.Json, error: _Object | None) -> list[Message]:
        if status == states.RunState.CANCELLED:
            return self._failed({"code": "cancelled", "message": "the prompt was cancelled"})
        return [] if error is None or self._failure is not None else self._failed(error)

    # -- what the driver notes

    def _noted(self, data: _Object) -> list[Message]:
        note = _NOTES.get(str(data.get("event")))
        if "sessionId" in data:
            self.agent_session_id = data["sessionId"]
        if note is None:
            return []
        told = note(self, data)
        # What a driver notes on its way to a step that is not performed any more has not begun.
        return [] if self._cancelled and told.type in _BEGINNINGS else [told]

    def _recipe_started(self, data: _Object) -> Message:
        self._recipe = {
            "recipe_id": data.get("recipeId"),
            "recipe_label": data.get("recipeLabel"),
            "current_step": data.get("step"),
            "step_count": data.get("stepCount"),
        }
        return self._message("recipe_started", **self._recipe)

    def _step_started(self, data: _Object) -> Message:
        place = {"step": data.get("step"), "step_count": data.get("stepCount")}
        self._recipe |= {"current_step": place["step"], "step_count": place["step_count"]}
        return self._message("recipe_step_started", **place)

    def _step_retry(self, data: _Object) -> Message:
        return self._message("orchestration_retry", step=data.get("step"), error=data.get("error"))

    def _step_transition(self, data: _Object) -> Message:
        if "toStep" in data:
            return self._message("recipe_step_transition", from_step=data.get("step"), to_step=data["toStep"])
        return self._message("recipe_exited", reason=RESTARTED, error=None)

    def _recipe_restarted(self, data: _Object) -> Message:
        return Message(
            type="turn_complete", fields={"session_id": data.get("fromSessionId")}, seq=self.seq, run_id=self.run_id
        )

    def _recipe_exited(self, data: _Object) -> Message:
        self._exit = data.get("reason")
        return self._message("recipe_exited", reason=self._exit, error=data.get("error"))

    # -- messages

    def _failed(self, error: _Object | None) -> list[Message]:
        if error is None:
            return []
        code, message = error.get("code"), error.get("message")
        if self._plain:
            return [Message(type="error", fields={"code": code, "message": message}, seq=self.seq, run_id=self.run_id)]
        return [self._message("recipe_error", code=code, error=message)]

    def _message(self, type: str, *, position: int | None = None, **fields: plain.Json) -> Message:
        fields = {"session_id": self.agent_session_id, **fields}
        return Message(type=type, fields=fields, seq=self.seq, run_id=self.run_id, position=position)


_BEGINNINGS = ("recipe_started", "recipe_step_started")

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

_NOTES: Mapping[str, Callable[[Narrator, _Object], Message]] = {
    "recipe:started": Narrator._recipe_started,
    "step:started": Narrator._step_started,
    "step:retry": Narrator._step_retry,
    "step:transition": Narrator._step_transition,
    "recipe:restarted": Narrator._recipe_restarted,
    "recipe:exited": Narrator._recipe_exited,
}
