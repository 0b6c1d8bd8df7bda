"""Transcripts: conversations with services that remember none; each prompt is sent with the conversation so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app import errors
from app.domain import agent_sessions, plain
from app.engine import agent_ports

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role  # Who wrote it.
    text: str  # Its text.


async def messages(sessions: agent_sessions.AgentSessions, prompt: agent_ports.AgentPrompt) -> list[Message]:
    """Return the conversation so far with the prompt as its last message."""
    past: list[Message] = []
    if (agent_session_id := prompt.agent_session_id) is not None:
        turns = await prompt.retry_until_space(lambda: sessions.turns(agent_session_id))
        if prompt.session_created and not turns:
            raise errors.AgentFailed(
                f"There is no conversation {prompt.agent_session_id!r:.80} to continue.",
                code="unknown_agent_session",
                detail={"agent_session_id": prompt.agent_session_id},
            )
        past = [_message(turn) for turn in _without(_in_force(turns), prompt.run_id, prompt.key)]
    return _merged([*past, Message(role="user", text=prompt.text)])


async def remember(
    sessions: agent_sessions.AgentSessions, backend: str, prompt: agent_ports.AgentPrompt, reply: str
) -> None:
    """Store a prompt and its reply, both or neither."""
    if prompt.agent_session_id is None:
        return
    place = {"run_id": prompt.run_id, "key": prompt.key, "attempt": prompt.attempt}
    reply_text = [{"role": "user", "text": prompt.text, **place}, {"role": "assistant", "text": reply, **place}]
    agent_session_id = prompt.agent_session_id
    # The turns come first: a crash before the record leaves turns of a step without a journal line. That step is
    # tried again, and its new turns replace the earlier ones (`_in_force`).
    await prompt.retry_until_space(lambda: sessions.add_turns(agent_session_id, reply_text))
    if await prompt.retry_until_space(lambda: sessions.find(agent_session_id)) is None:
        session = agent_sessions.AgentSession(
            agent_session_id=agent_session_id, backend=backend, working_dir=str(prompt.working_dir), created=True
        )
        await prompt.retry_until_space(lambda: sessions.keep(session))


def _in_force(turns: Sequence[plain.Object]) -> list[plain.Object]:
    """Return the valid turns: when a run tries a step again, that run's turns from this step on are dropped."""
    stored: list[plain.Object] = []
    for turn in turns:
        if turn["role"] == "user":
            stored = _without(stored, turn.get("run_id"), turn["key"])
        stored.append(turn)
    return stored


def _without(turns: Sequence[plain.Object], run_id: plain.Json, key: plain.Json) -> list[plain.Object]:
    first = next((n for n, turn in enumerate(turns) if turn.get("run_id") == run_id and turn["key"] == key), len(turns))
    return [turn for n, turn in enumerate(turns) if n < first or turn.get("run_id") != run_id]


def _message(turn: plain.Object) -> Message:
    return Message(role="assistant" if turn["role"] == "assistant" else "user", text=turn["text"])


def _merged(reply_text: Sequence[Message]) -> list[Message]:
    """Omit blank messages and join adjacent ones of one role: services refuse the former, some models the latter."""
    merged: list[Message] = []
    for message in reply_text:
        if not message.text.strip():
            continue
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(role=message.role, text=f"{merged[-1].text}\n\n{message.text}")
        else:
            merged.append(message)
    return merged
