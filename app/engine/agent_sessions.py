"""
Agent sessions: what is kept of a conversation with an agent, beside the journals of the runs that speak in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from app import errors
from app.engine import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """
    A conversation, by the id that we gave it.
    """

    agent_session_id: str
    """Our id, derived before the first prompt (a UUID), or one that a person named."""
    backend: str
    """Name of the backend that it is held through."""
    working_dir: str
    """Folder that it began in; some programs find it from there only."""
    program_session_id: str | None = None
    """What the backend itself calls it, where that differs from our id."""
    created: bool = False
    """Whether the backend is known to have it; False: a first prompt was about to be sent."""
    system_sha256: str | None = None
    """Hash of the standing instruction that it was begun with; some programs keep to that whatever is said later."""


class AgentSessions(Protocol):
    """
    Where agent sessions are kept.

    Every method refuses an id that none can have (`errors.InputRefused`, `bad_agent_session_id`), and what reads says
    `errors.AgentFailed` with the code `agent_session_damaged` of a file that cannot be believed; nothing of it is lost.
    """

    async def find(self, agent_session_id: str) -> AgentSession | None:
        """
        Return what is known of a session; None if nothing is.
        """

    async def keep(self, session: AgentSession) -> None:
        """
        Put a session in the place of what was known of it; it is durable once this returns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def turns(self, agent_session_id: str) -> Sequence[Mapping[str, plain.Json]]:
        """
        Return what was said so far, for backends without a memory of their own: `{role, text, key, attempt}`, in order.
        """

    async def add_turns(self, agent_session_id: str, turns: Sequence[Mapping[str, plain.Json]]) -> None:
        """
        Append turns, all or none; they are durable once this returns.

        Raises:
            errors.StorageFault: they could not be written.
        """

    def hold(self, agent_session_id: str, holder: str) -> AbstractAsyncContextManager[None]:
        """
        Keep everybody else from speaking in a session for the block, other processes too; a holder may hold it several
        times over.

        Args:
            holder: Who asks, e.g. a run's id.

        Raises:
            errors.Conflict: `session_locked`; the detail names the present holder.
        """

    async def claim(self, agent_session_id: str, run_id: str) -> None:
        """
        Note that a run has the session from now on, in the place of any other; it is durable once this returns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def claimant(self, agent_session_id: str) -> str | None:
        """
        Return the run that claimed the session last, whatever has become of it; None if no run has.
        """


def locked(agent_session_id: str, holder: str) -> errors.Conflict:
    """
    Make the error that says who has a session.
    """
    return errors.Conflict(
        f"The conversation {agent_session_id:.80} is taken: {holder} speaks in it.",
        code="session_locked",
        detail={"agent_session_id": agent_session_id, "holder": holder},
    )
