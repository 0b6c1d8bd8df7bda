"""Adding endpoints and triggers: simultaneous requests are answered as if they came one after another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app import clock, errors
from app.domain import triggers
from app.services.notifications import endpoints, requests
from app.services.notifications import repository as notified
from app.services.triggers import repository
from tests.unit.services import memory_documents

AT = "2026-02-10T14:30:00.000Z"


def _endpoints() -> tuple[notified.EndpointRepository, endpoints.Endpoints]:
    kept = notified.EndpointRepository(memory_documents.MemoryDocuments(), lambda _: memory_documents.MemoryDocuments())
    audit: Any = memory_documents.NoAudit()
    made = endpoints.Endpoints(repository=kept, senders={}, log=audit, clock=clock.FakeClock(), ids=clock.RandomIds())
    return kept, made


async def test_a_request_that_is_repeated_at_once_makes_one_endpoint() -> None:
    """Two equal requests at once create one endpoint; one answer has its signing secret, the other that it existed."""
    kept, tested = _endpoints()
    new = requests.NewEndpoint(url="https://receiver.example/x", idempotency_key="one")
    (first, first_existed), (second, second_existed) = await asyncio.gather(
        tested.add(new, None), tested.add(new, None)
    )

    assert first.endpoint_id == second.endpoint_id
    assert (first_existed, second_existed) == (False, True)
    assert first.signing_secret == (await kept.get(first.endpoint_id)).signing_secret
    assert second.signing_secret is None


async def test_endpoints_added_together_keep_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints that are added at the same time do not exceed the limit."""
    monkeypatch.setattr(endpoints, "MOST_ENDPOINTS", 1)
    kept, tested = _endpoints()
    new = requests.NewEndpoint(url="https://receiver.example/x")
    _, refused = await asyncio.gather(tested.add(new, None), tested.add(new, None), return_exceptions=True)

    assert isinstance(refused, errors.Conflict)
    assert refused.code == "too_many_endpoints"
    assert len(await kept.all()) == 1


async def test_triggers_added_together_keep_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triggers that are added at the same time do not exceed the limit."""
    monkeypatch.setattr(repository, "MOST_TRIGGERS", 1)
    audit: Any = memory_documents.NoAudit()
    kept = repository.TriggerRepository(memory_documents.MemoryDocuments(), audit)
    made = [
        triggers.Trigger(
            trigger_id=name, name=name, kind="webhook", recipe_id="x", created_at=AT, updated_at=AT, cursor=AT
        )
        for name in ("first", "second")
    ]
    _, refused = await asyncio.gather(*(kept.put(each) for each in made), return_exceptions=True)

    assert isinstance(refused, errors.Conflict)
    assert refused.code == "too_many_triggers"
    assert await kept.all() == made[:1]
