"""Feeds: a run's events as they are written, read and encoded once for everybody who follows it."""

# Each follower used to read, parse and encode events for itself; 100 followers slowed a run down 30 times. A feed
# reads once and pauses after each portion for twice the time it took, so that it uses at most a third of the loop.

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from app.domain import events

KEPT_EVENTS = 4096
"""Events of a run that are kept for whoever is slow or comes late; what is older, they read for themselves."""

BATCH_EVENTS = 256
"""Events that are told at a time."""

Encode = Callable[[events.Event], bytes]
"""Writes an event; everybody who follows gets what the first one's made."""


class Batch:
    """Events that are told together, in their order; none is a sign of life."""

    __slots__ = ("_encoded", "events")

    def __init__(self, told: Sequence[events.Event] = ()) -> None:
        self.events = told
        """The events."""
        self._encoded: bytes | None = None

    @property
    def last(self) -> int:
        """Return the number of the last event."""
        return self.events[-1].seq

    def encoded(self, encode: Encode) -> bytes:
        """Return all events written one after the other, made when the first of all followers asks."""
        if self._encoded is None:
            self._encoded = b"".join(map(encode, self.events))
        return self._encoded

    def behind(self, position: int) -> Batch:
        """Return what is numbered above `position`."""
        if self.events[0].seq > position:
            return self
        return Batch([event for event in self.events if event.seq > position])


class Feed:
    """What is told about one run to all who follow it; somebody else fills it."""

    def __init__(self, after: int) -> None:
        self.start = after
        """Number behind which everything told is kept here."""
        self.position = after
        """Number of the newest event told."""
        self.newest: str | None = None
        """Its type."""
        self.followers = 0
        """How many follow."""
        self.over = False
        """Whether nothing more will be told."""
        self.failure: BaseException | None = None
        """Why it ended before the run."""
        self._batches: list[Batch] = []
        self._kept = 0
        self._news = asyncio.Event()

    async def tell(self, told: Sequence[events.Event]) -> None:
        """Tell everybody what was written, and let them take it; nothing is a sign of life."""
        self._batches += batches(told)
        self._kept += len(told)
        if told:
            self.position = told[-1].seq
            self.newest = told[-1].type
        while self._kept > KEPT_EVENTS and len(self._batches) > 1:
            dropped = self._batches.pop(0)
            self._kept -= len(dropped.events)
            self.start = dropped.last
        self._wake()
        await asyncio.sleep(0)

    def end(self) -> None:
        """Say that nothing follows."""
        self.over = True
        self._wake()

    def next(self, position: int) -> Batch | None:
        """Return what follows on an event, as far as it was told at a time; None: nothing yet."""
        found = bisect_right(self._batches, position, key=_last)
        return self._batches[found].behind(position) if found < len(self._batches) else None

    async def news(self) -> None:
        """Wait until everybody is woken."""
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def batches(told: Sequence[events.Event]) -> Iterator[Batch]:
    """Return events in portions."""
    return (Batch(told[begin : begin + BATCH_EVENTS]) for begin in range(0, len(told), BATCH_EVENTS))


def _last(batch: Batch) -> int:
    return batch.last
