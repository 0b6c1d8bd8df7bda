"""Conversation claims: an agent session takes one prompt at a time, and belongs to one run while that runs."""

# Why: docs/decisions/0106.

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from app import errors
from app.domain import agent_sessions, runs
from app.engine import dry_replay, ports, stores

ARGUMENT = "agent_session_id"  # Argument of a run that names the conversation to continue.


class ConversationClaims:
    """Decides which run may use a conversation (agent-recipes, 3.3).

    A run owns a conversation from its claim until the run has ended or uses another one. The claim is a file, and the
    run's journals show whether it is still valid, so the decision accounts for crashes and other processes.
    """

    def __init__(
        self,
        sessions: agent_sessions.AgentSessions,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._drivers = drivers

    @asynccontextmanager
    async def claimed(self, agent_session_id: str, run_id: str) -> AsyncIterator[None]:
        """Hold a conversation during the block, and claim it for a run.

        Raises:
            errors.Conflict: `session_locked`; `detail` names the `holder`.
            errors.InputRefused: no conversation has that id.
            errors.AgentFailed: `agent_session_damaged`.
            errors.StorageFault: the claim could not be made durable.
        """
        # A refused run must not hold the conversation even briefly: the run that owns it would be refused meanwhile.
        await self._claimant(agent_session_id, run_id)
        async with self._sessions.hold(agent_session_id, run_id):
            # The claim is checked again under the lock: another run may have claimed the conversation since.
            if await self._claimant(agent_session_id, run_id) != run_id:
                await self._sessions.claim(agent_session_id, run_id)
            yield

    async def begin_again(self, fresh: agent_sessions.AgentSession, order: str) -> agent_sessions.AgentSession:
        """Restart a conversation by order of a person, and return it; a repeated order changes nothing.

        Args:
            fresh: The conversation in its initial state.
            order: Name of the order.

        Raises:
            errors.StorageFault: the restart could not be made durable.
        """
        try:
            session = await self._sessions.find(fresh.agent_session_id)
        except errors.AgentFailed:
            # The order of the person abandons the damaged conversation.
            session = None
        if session is not None and order in session.orders:
            return session
        before = session or fresh
        renewed = dataclasses.replace(fresh.anew(), names=before.names + 1, orders=(*before.orders, order))
        await self._sessions.renew(renewed)
        return renewed

    async def has_begun(self, agent_session_id: str) -> None:
        """Record that a conversation has had a reply.

        Raises:
            errors.StorageFault: the record could not be made durable.
        """
        session = await self._sessions.find(agent_session_id)
        if session is not None and not session.created:
            await self._sessions.keep(dataclasses.replace(session, created=True))

    async def holder(self, agent_session_id: str) -> str | None:
        """Return the run that owns a conversation; None if no run does.

        Raises:
            errors.InputRefused, errors.AgentFailed: as `claimed`.
        """
        claimant = await self._sessions.claimant(agent_session_id)
        has = claimant is not None and await self._speaks(claimant, agent_session_id)
        return claimant if has else None

    async def refuse_held(self, agent_session_id: str, run_id: str | None) -> None:
        """Refuse a conversation that another run owns now.

        Raises:
            errors.Conflict, errors.InputRefused, errors.AgentFailed: as `claimed`.
        """
        await self._claimant(agent_session_id, run_id)

    async def _claimant(self, agent_session_id: str, run_id: str | None) -> str | None:
        claimant = await self._sessions.claimant(agent_session_id)
        if claimant not in (None, run_id) and await self._speaks(claimant, agent_session_id):
            raise agent_sessions.locked(agent_session_id, claimant)
        return claimant

    async def _speaks(self, run_id: str, agent_session_id: str) -> bool:
        try:
            loaded = await self._store.read(run_id)
        except (errors.NotFound, errors.JournalCorrupt):
            return False
        return loaded.decisions.ended is None and await self._present(run_id, loaded) in (None, agent_session_id)

    async def _present(self, run_id: str, loaded: stores.Loaded) -> str | None:
        driver = self._drivers.get(loaded.start.dialect)
        read_blob = functools.partial(self._store.read_blob, run_id)
        progress = (await dry_replay.view_of(loaded, driver, read_blob)).board.progress
        named = (progress.machine or {}).get("sessionId")
        return loaded.start.conversation(named) if isinstance(named, str) else None


def continued(start: runs.RunStart) -> str | None:
    """Return the conversation that a run continues; None if the run begins one of its own."""
    named = start.args.get(ARGUMENT)
    return named if isinstance(named, str) else None
