"""The event feed keeps the newest events within its limits."""

from __future__ import annotations

import pytest

from app.domain.events import Event
from app.domain.runs import RunStart
from app.engine import event_feed
from app.engine.event_feed import EventFeed


class Time:
    """A clock that the test advances."""

    now = 0.0

    def __call__(self) -> float:
        """Return the current time."""
        return self.now


def start(run_id: str = "r1") -> RunStart:
    """Return the start of a run."""
    facts = {"run_id": run_id, "recipe_id": "draft", "dialect": "control_room", "driver_version": 1}
    return RunStart.from_json({**facts, "created_at": "", "recipe": {}, "recipe_sha256": ""})


def events(*numbers: int) -> list[Event]:
    """Return events with these numbers."""
    return [Event(seq=number, at="", type="x", run_id="r1") for number in numbers]


def kept(feed: EventFeed, place: int = 0) -> list[int]:
    """Return the numbers of events after a position."""
    return [event.seq for portion in feed.behind(place) for event in portion.events]


def test_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are dropped when there are too many, when they are too large, and when they are too old."""
    monkeypatch.setattr(event_feed, "KEPT_EVENTS", 4)
    time = Time()
    feed = EventFeed(time)
    for number in range(1, 7):
        feed.publish(start(), events(number), 1)
    by_number = kept(feed)
    feed.publish(start(), events(7), event_feed.KEPT_BYTES)
    by_size = kept(feed)
    feed.publish(start(), events(8), 1)
    time.now = event_feed.KEPT_SECONDS + 1
    first = feed.first

    assert (by_number, by_size) == ([3, 4, 5, 6], [7])
    assert (first, feed.last, kept(feed)) == (9, 8, [])


def test_the_portions_after_a_position_come_in_order() -> None:
    """Portions after a position come in order, and the first one may begin before the position."""
    feed = EventFeed(Time())
    feed.publish(start(), events(1, 2, 3), 3)
    feed.publish(start("sp_plan"), events(9), 1)
    feed.publish(start(), events(4), 1)

    assert [portion.first for portion in feed.behind(0)] == [1, 4]
    assert [portion.first for portion in feed.behind(2)] == [1, 4]
    assert [portion.first for portion in feed.behind(3)] == [4]
    assert feed.behind(4) == []
