"""Feeds of all runs: filtered portions of the feed for one client, from the client's last position on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass

from app import clock
from app.domain import events
from app.domain.access import Scope
from app.engine import aio, event_feed
from app.services import event_streams

PAUSE_SECONDS = 0.1  # Time between two portions for one client, so that many small ones travel together.
MOST_AT_ONCE = 1000  # Most events of one portion.

_SHARED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFilter:
    """Filter of the events that a client wants; empty: all."""

    types: frozenset[str] = frozenset()  # Only events of these types.
    run_id: str | None = None  # Only events of this run.
    recipe_id: str | None = None  # Only events of runs of this recipe.
    session_id: str | None = None  # Only events of runs of this work session.
    label: tuple[str, str] | None = None  # Only events of runs with this label.
    scope: Scope | None = None  # Only events of runs in this scope; None: of all runs.

    def means(self, portion: event_feed.Portion) -> bool:
        """Return whether the run of a portion matches the filter."""
        if self.scope is not None and not self.scope.covers(portion.recipe_id, portion.labels):
            return False
        wanted = (self.run_id, self.recipe_id, self.session_id)
        found = (portion.events[0].run_id, portion.recipe_id, portion.session_id)
        if any(value is not None and value != known for value, known in zip(wanted, found, strict=True)):
            return False
        return self.label is None or portion.labels.get(self.label[0]) == self.label[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedItem:
    """The next portion for a client."""

    cursor: str  # Position of the client after the portion.
    encoded: bytes = b""  # Encoded events, joined; empty: a keep-alive.
    reset: str | None = None  # Why the client must read its lists again; None: it need not.


Encode = Callable[[events.Event, str], bytes]  # Encodes an event with its cursor.


class FeedFollower:
    """Follows the feed on behalf of clients.

    Args:
        stopping: Set when the service stops.
    """

    def __init__(
        self, feed: event_feed.EventFeed, stopping: asyncio.Event, time: clock.Clock, ids: clock.Ids, encode: Encode
    ) -> None:
        self._feed = feed
        self._stopping = stopping
        self._clock = time
        self._encode = encode
        # A cursor of another process has no meaning here.
        self._process = ids.token("")[:16]
        self._encoded: OrderedDict[tuple[int, int, FeedFilter], bytes] = OrderedDict()

    async def follow(self, wanted: FeedFilter, cursor: str | None) -> AsyncGenerator[FeedItem, None]:
        """Yield portions from the client's last position; a client that falls too far behind is reset and disconnected.

        Args:
            cursor: The last position; None: the present end of the feed.
        """
        self._feed.followers += 1
        try:
            place = self._feed.last if cursor is None else self._place(cursor)
            known = place is not None
            place = self._feed.last if place is None else place
            yield FeedItem(cursor=self._cursor(place), reset=None if known else "unknown_cursor")
            async for item in self._continued(wanted, place):
                yield item
        finally:
            self._feed.followers -= 1

    async def _continued(self, wanted: FeedFilter, place: int) -> AsyncGenerator[FeedItem, None]:
        sent_at = self._clock.monotonic()
        while not self._stopping.is_set():
            # The client has fallen behind the cached events. After an interruption it may continue; a client that is
            # too slow would fall behind again.
            if place < self._feed.first - 1:
                interrupted = place < self._feed.interrupted
                place = self._feed.last
                yield FeedItem(cursor=self._cursor(place), reset="interrupted" if interrupted else "too_slow")
                if not interrupted:
                    return
            reached = min(self._feed.last, place + MOST_AT_ONCE)
            encoded = self._written(wanted, place, reached)
            place = reached
            now = self._clock.monotonic()
            if encoded or now - sent_at >= event_streams.SILENCE_SECONDS:
                yield FeedItem(cursor=self._cursor(place), encoded=encoded)
                sent_at = now
            if place == self._feed.last:
                silence = sent_at + event_streams.SILENCE_SECONDS - now
                await aio.wait_first(self._feed.news(), self._clock.sleep(silence), self._stopping.wait())
            # Portions of a short time are sent together.
            await asyncio.sleep(PAUSE_SECONDS)

    def _written(self, wanted: FeedFilter, place: int, reached: int) -> bytes:
        if place == reached:
            return b""
        key = place, reached, wanted
        known = self._encoded.get(key)
        if known is None:
            # Clients at the same position with the same filter share encoded events.
            known = self._encoded[key] = b"".join(self._events(wanted, place, reached))
            while len(self._encoded) > _SHARED:
                self._encoded.popitem(last=False)
        return known

    def _events(self, wanted: FeedFilter, place: int, reached: int) -> Iterator[bytes]:
        for portion in self._feed.behind(place):
            if not wanted.means(portion):
                continue
            for number, event in enumerate(portion.events, portion.first):
                if place < number <= reached and (not wanted.types or event.type in wanted.types):
                    yield self._encode(event, self._cursor(number))

    def _cursor(self, place: int) -> str:
        return f"{self._process}-{place}"

    def _place(self, cursor: str) -> int | None:
        process, _, number = cursor.partition("-")
        if process != self._process or not (number.isascii() and number.isdecimal() and len(number) < 16):
            return None
        place = int(number)
        return place if self._feed.first - 1 <= place <= self._feed.last else None
