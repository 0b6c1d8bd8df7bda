"""Conversations: whether a prompt begins one or continues one, and by which name the program knows it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from app import errors
from app.agents.programs.program import Program
from app.domain import agent_sessions, plain, records
from app.engine import ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationAddress:
    """How a turn opens."""

    session_id: str | None = None  # Conversation by the program's name for it; None: it chooses one, or there is none.
    resumes: bool = False  # Whether that conversation continues.
    may_begin: bool = False  # Whether an unknown one is begun anew: its first prompt may never have arrived.
    may_resume: bool = False  # Whether it continues if the program has it already, against what we know.
    foreign: bool = False  # Whether it was begun elsewhere.
    instructed_otherwise: bool = False  # Whether it began with another standing instruction, or an unknown one.


def opening(
    program: Program, backend: str, prompt: ports.AgentPrompt, stored: agent_sessions.AgentSession | None
) -> ConversationAddress:
    """Decide how a turn opens, by the record of its conversation."""
    ours = prompt.agent_session_id
    if ours is None:
        return ConversationAddress()
    if stored is None:
        if prompt.session_created:
            # It was begun elsewhere, under the name that the user gave us.
            return ConversationAddress(session_id=ours, resumes=True, foreign=True, instructed_otherwise=True)
        # Nothing was sent before it was kept, so that nothing was sent.
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
        # It was just lost, and is begun under another name.
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


def system_sha256(prompt: ports.AgentPrompt) -> str | None:
    """Return the hash of a prompt's standing instruction; None without one."""
    return plain.sha256(prompt.system.encode("utf-8", "replace")) if prompt.system else None


def again(
    program: Program,
    opened: ConversationAddress,
    prompt: ports.AgentPrompt,
    stored: agent_sessions.AgentSession | None,
    error: records.StepError,
) -> ConversationAddress | None:
    """Decide how a turn opens a second time, after the program has contradicted what we believed; None: not at all."""
    if error.code == "unknown_agent_session" and opened.resumes and opened.may_begin:
        # Some programs keep the name of a conversation whose first prompt failed, and yet do not know it.
        return ConversationAddress(
            session_id=_named(program, prompt.agent_session_id or "", (stored.names if stored else 0) + 1)
        )
    if error.code == "agent_session_exists" and not opened.resumes and opened.may_resume:
        return ConversationAddress(
            # Its instruction was the first attempt's; that of now cannot be put in its place.
            session_id=opened.session_id,
            resumes=True,
            may_begin=True,
            instructed_otherwise=True,
        )
    return None


def _named(program: Program, ours: str, names: int = 0) -> str | None:
    """Return the name that we give to a new conversation, a UUID; None where the program names it."""
    if program.names_sessions == "it":
        return None
    if names:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{ours} {names}"))
    try:
        # Programs demand a UUID. Derived, so that a second attempt finds the conversation of the first.
        return str(uuid.UUID(ours))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, ours))
