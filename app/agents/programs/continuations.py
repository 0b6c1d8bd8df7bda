"""Conversations: whether a prompt begins or continues one, and the program's name for it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from app import errors
from app.agents.programs.program import Program
from app.domain import agent_sessions, plain, records
from app.engine import agent_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationAddress:
    """How a turn opens its conversation."""

    session_id: str | None = None  # The program's name for it; None: the program chooses one, or there is none.
    resumes: bool = False  # Whether the turn continues that conversation.
    may_begin: bool = False  # Whether to begin a new one if it is unknown: its first prompt may never have arrived.
    may_resume: bool = False  # Whether to continue it if the program already has it, contrary to our record.
    foreign: bool = False  # Whether it was begun elsewhere.
    instructed_otherwise: bool = False  # Whether it began with another standing instruction, or an unknown one.


def opening(
    program: Program, backend: str, prompt: agent_ports.AgentPrompt, stored: agent_sessions.AgentSession | None
) -> ConversationAddress:
    """Decide how a turn opens, from the record of its conversation."""
    ours = prompt.agent_session_id
    if ours is None:
        return ConversationAddress()
    if stored is None:
        if prompt.session_created:
            # It was begun elsewhere, under the name that the user gave us.
            return ConversationAddress(session_id=ours, resumes=True, foreign=True, instructed_otherwise=True)
        # The record is stored before the first prompt is sent; without a record, no prompt was sent.
        return ConversationAddress(session_id=_named(program, ours), may_resume=prompt.attempt > 1)
    if stored.backend != backend:
        raise errors.AgentFailed(
            f"The conversation {ours:.80} belongs to the backend {stored.backend}; {backend} does not know it.",
            code="unknown_agent_session",
            detail={"agent_session_id": ours, "backend": stored.backend},
        )
    known = stored.program_session_id or _named(program, ours, stored.names)
    certain = prompt.session_created or stored.created
    if not certain and stored.names and stored.program_session_id is None:
        # The program has just lost it; begin it under another name.
        return ConversationAddress(session_id=known)
    if not certain and not program.resumes:
        return ConversationAddress(session_id=known)
    if known is None and certain:
        message = f"{program.label} has never reported its id of the conversation {ours:.80}, so it cannot continue."
        raise errors.AgentFailed(message, code="unknown_agent_session", detail={"agent_session_id": ours})
    return ConversationAddress(
        session_id=known,
        resumes=known is not None,
        may_begin=not certain,
        instructed_otherwise=known is not None and stored.system_sha256 != system_sha256(prompt),
    )


def system_sha256(prompt: agent_ports.AgentPrompt) -> str | None:
    """Return the hash of a prompt's standing instruction; None without one."""
    return plain.sha256(prompt.system.encode("utf-8", "replace")) if prompt.system else None


def again(
    program: Program,
    opened: ConversationAddress,
    prompt: agent_ports.AgentPrompt,
    stored: agent_sessions.AgentSession | None,
    error: records.StepError,
) -> ConversationAddress | None:
    """Decide how to open a turn a second time, after the program contradicted our record; None: do not."""
    if error.code == "unknown_agent_session" and opened.resumes and opened.may_begin:
        # Some programs keep the name of a conversation whose first prompt failed, but cannot continue it.
        return ConversationAddress(
            session_id=_named(program, prompt.agent_session_id or "", (stored.names if stored else 0) + 1)
        )
    if error.code == "agent_session_exists" and not opened.resumes and opened.may_resume:
        return ConversationAddress(
            # It has the standing instruction of the first attempt; the present one cannot replace it.
            session_id=opened.session_id,
            resumes=True,
            may_begin=True,
            instructed_otherwise=True,
        )
    return None


def _named(program: Program, ours: str, names: int = 0) -> str | None:
    """Return our name for a new conversation, a UUID; None if the program names it."""
    if program.names_sessions == "it":
        return None
    if names:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{ours} {names}"))
    try:
        # Programs require a UUID. Derived, so that a second attempt finds the conversation of the first.
        return str(uuid.UUID(ours))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, ours))
