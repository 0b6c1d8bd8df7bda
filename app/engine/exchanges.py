"""Exchanges: what a run has said in conversations that a person has begun again, as its journal holds it."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain import operations
from app.domain.records import Record
from app.engine import ports
from app.engine.driver_scheduler import Ask


class Exchanges:
    """Collect prompts and replies while a run's lines are handed to its driver."""

    def __init__(self, agent_session_ids: Iterable[str]) -> None:
        self._said: dict[str, list[ports.Exchange]] = {name: [] for name in agent_session_ids}

    def note(self, ask: Ask, record: Record) -> None:
        """Take in a line; a prompt that got no reply is no part of a conversation."""
        said = self._of(ask)
        if said is not None and record.done and isinstance(ask.operation, operations.AgentCall):
            said.append(ports.Exchange(prompt=ask.operation.prompt, reply=record.output, blob=record.blob))

    def before(self, ask: Ask) -> tuple[ports.Exchange, ...]:
        """Return what was said in the conversation that an open step speaks in."""
        return tuple(self._of(ask) or ())

    def _of(self, ask: Ask) -> list[ports.Exchange] | None:
        operation = ask.operation
        if not self._said or not isinstance(operation, operations.AgentCall) or operation.agent_session_id is None:
            return None
        return self._said.get(operation.agent_session_id)
