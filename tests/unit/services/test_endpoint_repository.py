"""Endpoints and dead letters: overlapping calls lose no data."""

from __future__ import annotations

import asyncio

import pytest

from app.domain import notifications
from app.services.notifications import repository
from tests.unit.services import memory_documents

AT = "2026-02-10T14:30:00.000Z"
MOST = 5


def _letter(number: int) -> notifications.DeadLetter:
    message = notifications.Message(
        message_id=f"m{number}", kind="done", at=AT, run_id=f"r{number}", recipe_id="x", text="x is done"
    )
    return notifications.DeadLetter(message=message, attempts=8, error="503", given_up_at=f"{AT[:17]}{number:02}.000Z")


def _endpoint() -> notifications.Endpoint:
    return notifications.Endpoint(endpoint_id="ep_1", name="x", channel="command", argv=("x",), created_at=AT, since=AT)


async def _full(monkeypatch: pytest.MonkeyPatch) -> tuple[memory_documents.MemoryDocuments, repository.DeadLetters]:
    monkeypatch.setattr(repository, "MOST_DEAD", MOST)
    documents = memory_documents.MemoryDocuments()
    letters = repository.DeadLetters(documents)
    for number in range(MOST):
        await letters.put(f"m{number}", _letter(number))
    return documents, letters


async def test_messages_given_up_together_drop_the_oldest_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many letters, as many of the oldest are dropped as were added, each once."""
    documents, letters = await _full(monkeypatch)
    await asyncio.gather(*(letters.put(f"m{number}", _letter(number)) for number in range(MOST, MOST + 3)))

    assert [letter.message.message_id for letter in await letters.all()] == ["m3", "m4", "m5", "m6", "m7"]
    assert sorted(documents.kept) == ["m3", "m4", "m5", "m6", "m7"]


async def test_a_letter_can_be_removed_twice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter can be removed by two calls at once."""
    documents, letters = await _full(monkeypatch)
    await asyncio.gather(letters.remove("m1"), letters.remove("m1"))

    assert sorted(documents.kept) == ["m0", "m2", "m3", "m4"]


async def test_a_first_look_does_not_hide_a_letter_written_meanwhile() -> None:
    """Letters are read once, so that a slow first read does not replace a newer list."""
    letters = repository.DeadLetters(memory_documents.MemoryDocuments())
    await asyncio.gather(letters.all(), letters.put("m1", _letter(1)))

    assert await letters.all() == [_letter(1)]


async def test_a_first_look_does_not_hide_an_endpoint_added_meanwhile() -> None:
    """Endpoints are read once, so that a slow first read does not replace a newer list."""
    documents = memory_documents.MemoryDocuments()
    kept = repository.EndpointRepository(documents, lambda _: memory_documents.MemoryDocuments())
    added = _endpoint()
    await asyncio.gather(kept.all(), kept.put(added))

    assert await kept.all() == [added]
    assert documents.reads == 1


async def test_a_removed_endpoint_leaves_no_letters() -> None:
    """A delivery that gives up during a removal leaves no letter, and an endpoint that is added again keeps its own."""
    documents = memory_documents.MemoryDocuments()
    kept = repository.EndpointRepository(memory_documents.MemoryDocuments(), lambda _: documents)
    await kept.put(_endpoint())
    letters = kept.dead_letters("ep_1")
    await letters.put("m1", _letter(1))
    await asyncio.gather(kept.remove("ep_1"), letters.put("m2", _letter(2)))
    await kept.dead_letters("ep_1").put("m3", _letter(3))
    left = dict(documents.kept)
    await kept.put(_endpoint())
    await kept.dead_letters("ep_1").put("m4", _letter(4))

    assert left == {}
    assert list(documents.kept) == ["m4"]
