"""Event streams: follow a run's events as they are written; the events are read and encoded once for all followers."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from app import clock, errors
from app.domain import events
from app.engine import aio, stores

if TYPE_CHECKING:
    from app.engine import run_engine

KEPT_EVENTS = 4096
"""Events of a run that are cached for slow and late followers, which read older ones themselves."""

BATCH_EVENTS = 256  # Events that are published at a time.
Encode = Callable[[events.Event], bytes]  # Encodes an event; all followers share the result.


class Batch:
    """Events that are published together, in order; an empty batch is a keep-alive."""

    __slots__ = ("_encoded", "events")

    def __init__(self, published: Sequence[events.Event] = ()) -> None:
        self.events = published
        """The events."""
        self._encoded: bytes | None = None

    @property
    def last(self) -> int:
        """Return the number of the last event."""
        return self.events[-1].seq

    def encoded(self, encode: Encode) -> bytes:
        """Return all events, encoded and joined at the first call."""
        if self._encoded is None:
            self._encoded = b"".join(map(encode, self.events))
        return self._encoded

    def behind(self, position: int) -> Batch:
        """Return the events with numbers above `position`."""
        if self.events[0].seq > position:
            return self
        return Batch([event for event in self.events if event.seq > position])


# When each follower read, parsed and encoded events itself, 100 followers slowed a run down 30 times. A feed reads once
# and pauses after each portion for twice the time it took, so that it uses at most a third of the loop.
class Feed:
    """The events of one run for all its followers; a task of `EventFollower` fills it."""

    def __init__(self, after: int) -> None:
        self.start = after
        """Number after which all published events are cached here."""
        self.position = after
        """Number of the newest published event."""
        self.newest: str | None = None
        """Type of that event."""
        self.followers = 0
        """Number of followers."""
        self.over = False
        """Whether the feed has ended."""
        self.failure: BaseException | None = None
        """Why the feed ended before the run."""
        self._batches: list[Batch] = []
        self._stored = 0
        self._news = asyncio.Event()

    async def publish(self, published: Sequence[events.Event]) -> None:
        """Publish new events to all followers; an empty sequence is a keep-alive."""
        self._batches += batches(published)
        self._stored += len(published)
        if published:
            self.position = published[-1].seq
            self.newest = published[-1].type
        # The newest portion is kept, however large it is.
        while self._stored > KEPT_EVENTS and len(self._batches) > 1:
            dropped = self._batches.pop(0)
            self._stored -= len(dropped.events)
            self.start = dropped.last
        self._wake()
        # Followers take the portion before the next one is read.
        await asyncio.sleep(0)

    def end(self) -> None:
        """End the feed."""
        self.over = True
        self._wake()

    def next(self, position: int) -> Batch | None:
        """Return the next cached events after a position; None if none is published yet."""
        found = bisect_right(self._batches, position, key=_last)
        return self._batches[found].behind(position) if found < len(self._batches) else None

    async def news(self) -> None:
        """Wait for the next publication."""
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def batches(published: Sequence[events.Event]) -> Iterator[Batch]:
    """Return events in portions."""
    return (Batch(published[begin : begin + BATCH_EVENTS]) for begin in range(0, len(published), BATCH_EVENTS))


def _last(batch: Batch) -> int:
    return batch.last


TICK_SECONDS = 1.0
"""Longest pause between two checks of a run, since writes of other processes are not announced."""

SILENCE_SECONDS = 15.0  # Longest time without events; then followers get a keep-alive.
PAGE_EVENTS = 1024  # Events of a run that are read, and processed on the loop, at a time, however long the run is.

LARGEST_SHARE = 1 / 3
"""Share of the time that publishing a run's events may take, so that followers do not slow it down."""

Finished = Callable[[], Awaitable[bool]]  # Returns whether the run has ended.

_Events: TypeAlias = list[events.Event]


class EventFollower:
    """Lets polls and streams wait for changes until the service stops."""

    def __init__(self, *, store: stores.RunStore, engine: run_engine.RunEngine, clock: clock.Clock) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self.stopping = asyncio.Event()
        """Set when the service stops: this wakes all waiting clients, and no client waits again."""
        self._feeds: dict[str, list[Feed]] = {}
        self._filling: dict[Feed, asyncio.Task[None]] = {}

    async def change(self, run_id: str, since: int, seconds: float) -> None:
        """Wait until a run's change number differs from `since`, the time is over, or the service stops."""
        await aio.wait_first(
            self._engine.changed(run_id, since),
            self._clock.sleep(min(seconds, TICK_SECONDS)),
            self.stopping.wait(),
        )

    async def events(self, run_id: str, after: int, finished: Finished) -> AsyncGenerator[events.Event, None]:
        """Yield a run's events after `after` as they are written, until the run has ended or is deleted."""
        async with aclosing(self.batches(run_id, after, finished)) as published:
            async for batch in published:
                for event in batch.events:
                    yield event

    async def batches(self, run_id: str, after: int, finished: Finished) -> AsyncGenerator[Batch, None]:
        """Yield the same in batches that all followers share; an empty batch is a keep-alive."""
        position, newest, behind, alone = after, "", False, False
        while True:
            feed = None if behind else self._feed(run_id, position, finished, alone)
            began = position
            async with aclosing(self._published(run_id, feed, position)) as published:
                async for batch in published:
                    yield batch
                    if batch.events:
                        position, newest = batch.events[-1].seq, batch.events[-1].type
            if await self._is_over(feed, position, newest, finished):
                return
            # A follower that is slower than the cache reads alone, and so does one that starts at a future number.
            behind, alone = feed is not None, feed is None and position == began

    async def _is_over(self, feed: Feed | None, position: int, newest: str, finished: Finished) -> bool:
        if feed is not None:
            return feed.over and feed.start <= position
        return newest == events.EventType.RUN_ENDED and await finished()

    def _feed(self, run_id: str, position: int, finished: Finished, alone: bool) -> Feed | None:
        there = self._feeds.get(run_id, ())
        reaching = next((feed for feed in there if feed.start <= position), None)
        if reaching is not None or (there and not alone):
            return reaching
        feed = Feed(position)
        self._feeds.setdefault(run_id, []).append(feed)
        self._filling[feed] = asyncio.create_task(self._fill(run_id, feed, finished), name=f"feed {run_id}")
        return feed

    def _published(self, run_id: str, feed: Feed | None, position: int) -> AsyncGenerator[Batch, None]:
        return self._own(run_id, position) if feed is None else self._shared(run_id, feed, position)

    async def _shared(self, run_id: str, feed: Feed, position: int) -> AsyncGenerator[Batch, None]:
        with self._joined(run_id, feed):
            while feed.start <= position:
                newest = feed.position
                if (batch := feed.next(position)) is not None:
                    yield batch
                    position = batch.last
                elif feed.over:
                    break
                else:
                    await feed.news()
                    if feed.position == newest and not feed.over:
                        yield Batch()
        if feed.failure is not None:
            raise feed.failure

    @contextmanager
    def _joined(self, run_id: str, feed: Feed) -> Iterator[None]:
        feed.followers += 1
        try:
            yield
        finally:
            feed.followers -= 1
            if not feed.followers:
                self._drop(run_id, feed)

    async def _own(self, run_id: str, position: int) -> AsyncGenerator[Batch, None]:
        with suppress(errors.NotFound):
            while page := await self._page(run_id, position):
                for batch in batches(page):
                    yield batch
                position = page[-1].seq

    async def _page(self, run_id: str, position: int) -> _Events:
        while not self.stopping.is_set():
            with suppress(errors.Unreadable):
                return await self._store.read_events(run_id, position, PAGE_EVENTS)
            await aio.wait_first(self._clock.sleep(TICK_SECONDS), self.stopping.wait())
        return []

    # -- filling a feed

    async def _fill(self, run_id: str, feed: Feed, finished: Finished) -> None:
        try:
            await self._publish_all(run_id, feed, finished)
        except errors.NotFound:
            # The run was deleted.
            return
        except (Exception, errors.Fault) as failure:  # noqa: BLE001 - raised again in all followers
            feed.failure = failure
        finally:
            self._drop(run_id, feed)
            feed.end()

    def _drop(self, run_id: str, feed: Feed) -> None:
        # At once, so that no follower joins an ended feed.
        filling = self._filling.pop(feed, None)
        if filling is not None:
            self._feeds[run_id].remove(feed)
            if not self._feeds[run_id]:
                del self._feeds[run_id]
            if not feed.followers:
                filling.cancel()

    async def _publish_all(self, run_id: str, feed: Feed, finished: Finished) -> None:
        loop, published_at = asyncio.get_running_loop(), self._clock.monotonic()
        quiet_since_the_end = 0
        while True:
            began, since, position = loop.time(), self._engine.change_number(run_id), feed.position
            over = False
            # Read again in a moment; meanwhile followers get keep-alives.
            with suppress(errors.Unreadable):
                over = await self._publish_written(run_id, feed, finished)
            quiet = feed.position == position
            if quiet and self._clock.monotonic() - published_at >= SILENCE_SECONDS:
                await feed.publish([])
                quiet = False
            published_at = published_at if quiet else self._clock.monotonic()
            quiet_since_the_end = quiet_since_the_end + 1 if over and quiet else 0
            ended = over and feed.newest == events.EventType.RUN_ENDED
            if self.stopping.is_set() or ended or quiet_since_the_end == 2:
                return
            not_before = loop.time() + (loop.time() - began) * (1 / LARGEST_SHARE - 1)
            await self.change(run_id, since, TICK_SECONDS)
            # A share of the loop's own time, independent of the clock of runs.
            await asyncio.sleep(max(0, not_before - loop.time()))

    async def _publish_written(self, run_id: str, feed: Feed, finished: Finished) -> bool:
        ending = await self._publish_pages(run_id, feed, holds_back=True)
        # A client that receives an ending may read the list next, so only the ending itself waits for the row.
        over = await finished()
        await (self._publish_pages(run_id, feed, holds_back=False) if over else _publish(feed, ending))
        return over

    async def _publish_pages(self, run_id: str, feed: Feed, *, holds_back: bool) -> _Events:
        held: _Events = []
        position = feed.position
        while True:
            page = await self._store.read_events(run_id, position, PAGE_EVENTS)
            published = [*held, *page]
            held = [event for event in published[-1:] if holds_back and event.type == events.EventType.RUN_ENDED]
            await _publish(feed, published[: len(published) - len(held)])
            if len(page) < PAGE_EVENTS:
                return held
            position = page[-1].seq


async def _publish(feed: Feed, published: _Events) -> None:
    if published:
        await feed.publish(published)
