"""The dispatcher of notifications when a delivery breaks."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, cast

import pytest

from app import clock, errors
from app.domain import notifications, plain
from app.engine import event_feed
from app.services.notifications import dispatcher, endpoints, plan_questions, repository, senders
from tests.unit.services import memory_documents

AT = "2026-02-10T14:30:00.000Z"


class _Empty:
    """A store without runs and plans."""

    async def list_runs(self, *_: object) -> list[Any]:
        return []

    async def list(self, *_: object) -> list[Any]:
        return []


class _Sender:
    """A sender that raises an unexpected error once."""

    def __init__(self) -> None:
        self.is_broken = True
        self.called = asyncio.Event()
        self.sent: list[str] = []

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        self.called.set()
        if self.is_broken:
            raise RuntimeError("a fault of the program")
        self.sent.append(message.message_id)
        return ""


class _Refusing(_Sender):
    """A sender whose receiver refuses every message."""

    refused = 0

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        self.refused += 1
        raise senders.NotDelivered("503")


class _RefusingForGood(_Refusing):
    """A sender whose receiver refuses every message, which another attempt does not change."""

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        self.refused += 1
        raise senders.NotDelivered("550", is_final=True)


async def _endpoint_with_a_message() -> repository.EndpointRepository:
    """Return an endpoint with one message to deliver."""
    documents: dict[str, memory_documents.MemoryDocuments] = {}
    kept = repository.EndpointRepository(
        memory_documents.MemoryDocuments(),
        lambda name: documents.setdefault(name, memory_documents.MemoryDocuments()),
    )
    await kept.put(
        notifications.Endpoint(endpoint_id="ep_1", name="x", channel="command", argv=("x",), created_at=AT, since=AT)
    )
    message = notifications.Message(message_id="m1", kind="done", at=AT, run_id="r1", recipe_id="x", text="x is done")
    letter = notifications.DeadLetter(message=message, attempts=8, error="503", given_up_at=AT, replayed=True)
    await kept.dead_letters("ep_1").put("m1", letter)
    return kept


def _dispatcher(kept: repository.EndpointRepository, sender: _Sender) -> dispatcher.Dispatcher:
    time, anything = clock.FakeClock(), cast(Any, _Empty())
    return dispatcher.Dispatcher(
        repository=kept,
        store=anything,
        feed=event_feed.EventFeed(time.monotonic),
        senders={"command": sender},
        clock=time,
        other_messages=plan_questions.PlanQuestions(anything, plain.Masker()),
    )


async def turn() -> None:
    """Let every other task run once."""
    await asyncio.sleep(0)


async def test_a_message_delivered_before_a_stop_is_not_repeated() -> None:
    """A message that was delivered just before an orderly stop is not sent again."""
    kept, sender = await _endpoint_with_a_message(), _Sender()
    sender.is_broken = False
    tested = _dispatcher(kept, sender)
    tested.start()
    async with asyncio.timeout(60):
        while kept.waiting.get("ep_1") != {}:
            await turn()
    await tested.stop()

    (endpoint,) = await kept.all()
    assert sender.sent == ["m1"]
    assert (endpoint.delivered, endpoint.since) == (("m1",), AT)


async def test_a_failing_message_names_those_that_wait_for_it() -> None:
    """Later messages of a run wait for its refused message; those of other runs do not."""
    kept, sender = await _endpoint_with_a_message(), _Refusing()
    letters = kept.dead_letters("ep_1")
    (first,) = await letters.all()
    for name, run_id in (("m2", "r1"), ("m3", "r2")):
        message = dataclasses.replace(first.message, message_id=name, run_id=run_id)
        await letters.put(name, dataclasses.replace(first, message=message))
    tested, listed = _dispatcher(kept, sender), endpoints.EndpointQueries(kept)
    tested.start()
    async with asyncio.timeout(60):
        while len(failing := await listed.list_failing("ep_1")) < 2:
            await turn()
    (shown,) = await listed.list_endpoints()
    await tested.stop()

    assert {each.message_id: each.behind for each in failing} == {"m1": 1, "m3": 0}
    assert (shown.failing, shown.behind) == (2, 1)


async def test_a_final_refusal_is_a_dead_letter_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A message that another attempt does not deliver is given up after the first; the log names its endpoint."""
    kept, sender = await _endpoint_with_a_message(), _RefusingForGood()
    tested = _dispatcher(kept, sender)
    tested.start()
    async with asyncio.timeout(60):
        while (await kept.get("ep_1")).delivered != ("m1",):
            await turn()
    await tested.stop()
    (letter,) = await kept.dead_letters("ep_1").all()

    assert (sender.refused, letter.attempts, letter.error, letter.replayed) == (1, 1, "550", False)
    assert caplog.messages == [
        "message m1 of run r1 not delivered to endpoint ep_1: 550",
        "message m1 of run r1 given up: endpoint ep_1 has a new dead letter",
    ]


async def test_tries_that_a_person_ends_are_not_begun_again() -> None:
    """A message whose tries a person ended becomes a dead letter at once, also after a restart."""
    kept, sender = await _endpoint_with_a_message(), _Refusing()
    tested = _dispatcher(kept, sender)
    tested.start()
    async with asyncio.timeout(60):
        while not (await kept.get("ep_1")).tried:
            await turn()
        await tested.stop()
        refused, sender.refused = sender.refused, 0
        await kept.edit("ep_1", lambda endpoint: dataclasses.replace(endpoint, given_up=("m1",)))
        tested.start()
        while (await kept.get("ep_1")).delivered != ("m1",):
            await turn()
    await tested.stop()

    (letter,) = await kept.dead_letters("ep_1").all()
    endpoint = await kept.get("ep_1")
    assert (refused, sender.refused, letter.replayed, letter.attempts, letter.error) == (1, 0, False, 1, "503")
    assert (endpoint.tried, endpoint.given_up) == ({}, ())


async def test_a_restart_sends_the_message_of_a_broken_delivery() -> None:
    """An unexpected error makes the service unready; after a restart it is ready, and the message is sent."""
    sender = _Sender()
    tested = _dispatcher(await _endpoint_with_a_message(), sender)
    tested.start()
    await asyncio.wait_for(sender.called.wait(), 60)
    await tested.stop()
    with pytest.raises(errors.Unavailable) as broken:
        tested.check()
    sender.is_broken = False
    sender.called.clear()
    tested.start()
    await asyncio.wait_for(sender.called.wait(), 60)
    tested.check()
    await tested.stop()

    assert broken.value.code == "notifications_broken"
    assert sender.sent == ["m1"]
