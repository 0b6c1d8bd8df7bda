"""Binding: claims the conversation of a run when the run is accepted or resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from app import errors
from app.domain import plain, runs, states, views
from app.engine import conversation_claims, run_engine, stores
from app.services.requests import StartRequest

ARGUMENT = conversation_claims.ARGUMENT  # Argument that names the conversation that a run continues.
DIALECT = "agent_recipes"  # Language whose runs begin in a new conversation of their own.


class ConversationBinding:
    """Creates and resumes runs, each with its conversation if that is free."""

    def __init__(
        self,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        conversations: conversation_claims.ConversationClaims,
    ) -> None:
        self._store = store
        self._engine = engine
        self._conversations = conversations
        self._turn = asyncio.Lock()

    async def create(self, start: runs.RunStart, request: StartRequest) -> stores.Created:
        """Make an accepted run durable.

        Raises:
            errors.Conflict: as `RunStore.create`, or `session_locked`: the `holder` speaks in its conversation.
            errors.WriteFailed, errors.StorageFault: the disk is full or failing.
        """
        session_id = conversation(start)
        if session_id is None:
            return await self._store.create(start, exclusive=request.exclusive)
        if conversation_claims.continued(start) is None:
            return await self._create(session_id, start, request)
        # One at a time, so that a repetition finds the run of the first request instead of a locked conversation.
        async with self._turn:
            return await self._create(session_id, start, request)

    async def resume(self, run_id: str, view: views.RunView, how: run_engine.Resume) -> states.RunState:
        """Resume a run.

        Args:
            run_id: Its id in this store, which may differ from the one inside a copied folder.

        Raises:
            errors.Conflict: as `RunEngine.resume`, or `session_locked`: the `holder` speaks in its conversation.
            errors.StorageFault: the disk is full or failing.
        """
        session_id = _present(view)
        if session_id is None:
            return await self._engine.resume(run_id, how)
        async with self._claimed(session_id, run_id):
            return await self._engine.resume(run_id, how)

    async def check(self, run_id: str, view: views.RunView) -> None:
        """Refuse to resume a run whose conversation another run owns now.

        Raises:
            errors.Conflict: as `resume`.
        """
        session_id = _present(view)
        if session_id is not None:
            await self.refuse_held(session_id, run_id)

    async def refuse_held(self, session_id: str, run_id: str | None = None) -> None:
        """Refuse a conversation that a run owns, other than the given one.

        Raises:
            errors.Conflict: `session_locked`, `agent_session_damaged`.
            errors.InputRefused: no conversation has that id.
        """
        with _as_conflicts():
            await self._conversations.refuse_held(session_id, run_id)

    async def _create(self, session_id: str, start: runs.RunStart, request: StartRequest) -> stores.Created:
        repeated = await self._repeated(start)
        if repeated is not None:
            return stores.Created(run_id=repeated, existed=True)
        async with self._claimed(session_id, start.run_id):
            return await self._store.create(start, exclusive=request.exclusive)

    async def _repeated(self, start: runs.RunStart) -> str | None:
        if start.idempotency_key is None or start.request_sha256 is None:
            return None
        return await self._store.find_repeated(start.idempotency_key, start.request_sha256)

    @asynccontextmanager
    async def _claimed(self, session_id: str, run_id: str) -> AsyncIterator[None]:
        with _as_conflicts():
            async with self._conversations.claimed(session_id, run_id):
                yield


@contextmanager
def _as_conflicts() -> Iterator[None]:
    try:
        yield
    except errors.AgentFailed as error:
        raise errors.Conflict(error.message, code=error.code, detail=error.detail) from error


def begun_again(view: views.RunView) -> dict[str, plain.Json]:
    """Return the restarted conversations of a run, with the one that it uses now.

    Raises:
        errors.RequestInvalid: `no_conversation`.
    """
    session_id, before = _named(view), view.start.begun_again
    if session_id is None:
        message = f"run {view.start.run_id} has no conversation to begin again; omit `conversation`"
        flaw = errors.Flaw(path="$.conversation", code="no_conversation", message=message)
        raise errors.RequestInvalid(message, code="no_conversation", flaws=[flaw])
    return {**before, session_id: before.get(session_id, 0) + 1}


def _present(view: views.RunView) -> str | None:
    named = _named(view)
    return None if named is None else view.start.conversation(named)


def _named(view: views.RunView) -> str | None:
    current = (view.board.progress.machine or {}).get("sessionId")
    return current if isinstance(current, str) else conversation_claims.continued(view.start)


def conversation(start: runs.RunStart) -> str | None:
    """Return the conversation in which a run begins; None if it has none."""
    named = conversation_claims.continued(start)
    if named is None and start.dialect == DIALECT:
        named = runs.agent_session_id(start.root_id, 0)
    return None if named is None else start.conversation(named)
