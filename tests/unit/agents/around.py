"""Surroundings of backends in tests: the real supervisor, started with the first program, and sessions in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from app import clock
from app.agents.configuration import BackendContext, Supervisor
from app.domain import agent_sessions
from app.engine.conversation_claims import ConversationClaims
from app.processes import supervisor
from app.storage.agent_sessions import MemoryAgentSessions
from app.storage.memory_store import MemoryStore


def surroundings(
    *,
    running: Supervisor | None = None,
    sessions: agent_sessions.AgentSessions | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    time: clock.Clock | None = None,
) -> BackendContext:
    """Return surroundings, with a test's own parts in place of the usual ones."""
    place = Path(tempfile.gettempdir()) / "control-room-of-nobody"
    return BackendContext(
        clock=time or clock.SystemClock(),
        supervisor=running or supervisor.Supervisor(place / "processes", clock.RandomIds(), os.environ),
        sessions=sessions or MemoryAgentSessions(),
        environ=os.environ if environ is None else environ,
        home=home or Path.home(),
    )


def conversations(sessions: agent_sessions.AgentSessions | None = None) -> ConversationClaims:
    """Return conversation claims beside an empty store, where no other run has a conversation."""
    return ConversationClaims(sessions or MemoryAgentSessions(), MemoryStore(clock=clock.SystemClock()), {})
