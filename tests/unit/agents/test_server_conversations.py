"""Stored conversations with servers, which keep no history themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from app import errors
from app.agents.servers import transcripts
from app.storage.agent_sessions import MemoryAgentSessions
from tests.unit.agents import prompts

T = TypeVar("T")
TALK = "a-talk"


async def retry_until_space(write: Callable[[], Awaitable[T]]) -> T:
    """Repeat a write until it succeeds."""
    while True:
        try:
            return await write()
        except errors.StorageFault:
            continue


@pytest.mark.parametrize("refused", ["add_turns", "keep"])
async def test_a_reply_that_was_paid_for_is_kept_as_soon_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A turn whose first write fails is written whole and once at the second attempt."""
    sessions, tried = MemoryAgentSessions(), list[str]()
    unhindered = getattr(sessions, refused)

    async def write(*given: Any) -> None:
        tried.append(refused)
        if len(tried) == 1:
            raise errors.StorageFault
        await unhindered(*given)

    monkeypatch.setattr(sessions, refused, write)
    await transcripts.remember(
        sessions, "hosted", prompts.prompt(agent_session_id=TALK, retry_until_space=retry_until_space), "Hello, Kael."
    )
    kept = await sessions.find(TALK)

    assert tried == [refused, refused]
    assert [turn["text"] for turn in await sessions.turns(TALK)] == ["Say hello to Kael.", "Hello, Kael."]
    assert kept is not None
    assert kept.created
