"""Followers of all runs: the events that a client gets, and when its stream ends."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from app import clock
from app.domain.events import Event
from app.domain.runs import RunStart
from app.engine import event_feed
from app.services import event_feeds

START = RunStart.from_json(
    {
        "run_id": "r1",
        "recipe_id": "draft",
        "dialect": "control_room",
        "driver_version": 1,
        "created_at": "",
        "recipe": {},
        "recipe_sha256": "",
    }
)


def publish(feed: event_feed.EventFeed, *numbers: int) -> None:
    """Publish events of these numbers."""
    feed.publish(START, [Event(seq=number, at="", type="x", run_id="r1") for number in numbers], 1)


@pytest.fixture
def feed() -> event_feed.EventFeed:
    """Return an empty feed."""
    return event_feed.EventFeed(clock.SystemClock().monotonic)


def follower(feed: event_feed.EventFeed, stopping: asyncio.Event) -> event_feeds.FeedFollower:
    """Return a follower for clients; an event is encoded as its number."""
    return event_feeds.FeedFollower(
        feed, stopping, clock.SystemClock(), clock.RandomIds(), lambda event, _: b"%d " % event.seq
    )


async def test_a_slow_client_is_reset_and_let_go(feed: event_feed.EventFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of a client that falls behind the kept events ends with the reset `too_slow`."""
    monkeypatch.setattr(event_feed, "KEPT_EVENTS", 3)
    async with aclosing(follower(feed, asyncio.Event()).follow(event_feeds.FeedFilter(), None)) as news:
        first = await anext(news)
        publish(feed, 1)
        heard = await anext(news)
        for number in range(2, 9):
            publish(feed, number)
        reset = [each async for each in news]

    assert (first.encoded, first.reset, heard.encoded) == (b"", None, b"1 ")
    assert [each.reset for each in reset] == ["too_slow"]
    assert reset[0].cursor.endswith("-8")


async def test_clients_with_equal_filters_share_one_encoding(feed: event_feed.EventFeed) -> None:
    """Fifty clients with equal filters cost one encoding of each event, and none after they have left."""
    stopping, encoded = asyncio.Event(), list[int]()

    def encode(event: Event, _: str) -> bytes:
        encoded.append(event.seq)
        return b"x"

    shared = event_feeds.FeedFollower(feed, stopping, clock.SystemClock(), clock.RandomIds(), encode)
    streams = [shared.follow(event_feeds.FeedFilter(), None) for _ in range(50)]
    for stream in streams:
        await anext(stream)
    followers = feed.followers
    publish(feed, 1, 2, 3)
    heard = [await anext(stream) for stream in streams]
    for stream in streams:
        await stream.aclose()

    assert {news.encoded for news in heard} == {b"xxx"}
    assert (encoded, followers, feed.followers) == ([1, 2, 3], 50, 0)


async def test_a_stopping_service_ends_streams(feed: event_feed.EventFeed) -> None:
    """A stream ends when the service stops."""
    stopping = asyncio.Event()
    async with asyncio.timeout(30), aclosing(follower(feed, stopping).follow(event_feeds.FeedFilter(), None)) as news:
        await anext(news)
        stopping.set()
        left = [each async for each in news]

    assert left == []
