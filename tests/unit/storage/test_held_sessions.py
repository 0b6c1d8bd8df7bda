"""Held conversations: another process may have one for an earlier try of the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app import errors
from app.storage import agent_sessions

SESSION, RUN = "sess_abcdefgh", "20260210T143000Z-abcdef"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[agent_sessions.StoredAgentSessions, ...]]:
    """Return the conversations as two processes see them."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(closing(agent_sessions.in_folder(tmp_path))) for _ in range(2))


async def test_a_run_waits_for_its_own_earlier_try(
    processes: tuple[agent_sessions.StoredAgentSessions, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen worker may have the conversation when another one repeats its step, which waits; another run fails."""
    monkeypatch.setattr(agent_sessions, "RETRY_SECONDS", 0.01)
    frozen, fresh = processes
    order = []

    async def repeat() -> None:
        async with fresh.hold(SESSION, RUN):
            order.append("repeated")

    async with frozen.hold(SESSION, RUN):
        repeating = asyncio.create_task(repeat())
        with pytest.raises(errors.Conflict, match=RUN):
            async with fresh.hold(SESSION, "another run"):
                pass
        await asyncio.wait({repeating}, timeout=0.05)
        assert not repeating.done()
        order.append("over")
    await repeating

    assert order == ["over", "repeated"]


async def test_a_cancelled_wait_leaves_the_conversation_free(
    processes: tuple[agent_sessions.StoredAgentSessions, ...],
) -> None:
    """A run that is cancelled while it waits does not get the conversation later."""
    frozen, fresh = processes
    async with frozen.hold(SESSION, RUN):
        waiting = asyncio.create_task(fresh.hold(SESSION, RUN).__aenter__())
        await asyncio.wait({waiting}, timeout=0.05)
        waiting.cancel()
        await asyncio.wait({waiting})
    async with fresh.hold(SESSION, "another run"):
        pass

    assert waiting.cancelled()
