"""The feed: the newest events of all runs for followers, and change numbers for polls."""

# A run pays one call for each write of its events, and one test for each event. Events are written out earlier than
# usual only while a client follows.

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app import clock
from app.domain.events import Event

KEPT_EVENTS = 10_000  # Most events that are kept.
KEPT_BYTES = 16 * 2**20  # Most bytes of events that are kept.
KEPT_SECONDS = 3600.0  # Longest time that an event is kept.
STIR_SECONDS = 0.1  # Time that events wait for others before they are written out for followers.

_NUMBERS_KEPT = 10_000


class Source(Protocol):
    """A run whose events wait to be written."""

    async def write_events(self) -> None:
        """Write them now; what cannot be written waits."""


class Run(Protocol):
    """The run of some events, as far as followers ask for it."""

    @property
    def run_id(self) -> str:
        """Return its id."""

    @property
    def recipe_id(self) -> str:
        """Return its recipe."""

    @property
    def session_id(self) -> str:
        """Return its work session."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Return its labels."""


class CommitListener(Protocol):
    """Announcements of what other processes write to a shared store."""

    on_begun: Callable[[str], Awaitable[None]] | None
    """Called with each run that another process has begun or resumed."""

    @property
    def is_listening(self) -> bool:
        """Return whether all writes are announced at present; if not, callers must poll."""

    def start(self, on_write: Callable[[str | None], None]) -> None:
        """Begin to listen, and to publish events of others in the feed.

        Args:
            on_write: Called with each run that was written to; with None if something may have been missed.
        """

    async def stop(self) -> None:
        """Stop, and wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Events of one run that were written together."""

    first: int  # Place of the first of them among all events of this process, from 1.
    events: Sequence[Event]  # The events.
    size_bytes: int  # Their length.
    written_at: float  # When they were written, in seconds of a clock that never runs backwards.
    recipe_id: str  # Recipe of the run.
    session_id: str  # Its work session.
    labels: Mapping[str, str]  # Its labels.

    @property
    def last(self) -> int:
        """Return the place of the last event."""
        return self.first + len(self.events) - 1


class EventFeed:
    """Keep the newest written events of all runs, within bounds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: deque[Portion] = deque()
        self._count = self._bytes = 0
        self._stirred: dict[Source, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self.followers = 0
        """Number of followers; without one, events are written when it suits their run."""
        self.listeners = 0
        """Number of listeners, which wait for written events without hurrying them."""
        self.last = 0
        """Place of the newest event."""
        self.interrupted = 0
        """Place at which events may have been missed the last time."""

    @property
    def first(self) -> int:
        """Return the place of the oldest event that is kept, or the next place."""
        self._trim(self._monotonic())
        return self._kept[0].first if self._kept else self.last + 1

    def publish(self, run: Run, events: Sequence[Event], size_bytes: int) -> None:
        """Keep written events, and wake the followers."""
        if not events or clock.is_internal(run.run_id):
            return
        now = self._monotonic()
        portion = Portion(
            first=self.last + 1,
            events=events,
            size_bytes=size_bytes,
            written_at=now,
            recipe_id=run.recipe_id,
            session_id=run.session_id,
            labels=run.labels,
        )
        self._kept.append(portion)
        self.last += len(events)
        self._count += len(events)
        self._bytes += size_bytes
        self._trim(now)
        if self.followers or self.listeners:
            self._wake()

    def interrupt(self) -> None:
        """Note that events may have been missed, so that followers read their lists again."""
        self._kept.clear()
        self._count = self._bytes = 0
        # The gap has a place of its own, so that a follower who has had everything before it notices it, too.
        self.last += 1
        self.interrupted = self.last
        self._wake()

    def stir(self, source: Source) -> None:
        """Have a run write its events soon, since a client follows."""
        self._stirred[source] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STIR_SECONDS, self._write_out)

    def behind(self, place: int) -> list[Portion]:
        """Return the kept portions after a place, oldest first; the first portion may begin before it."""
        portions: list[Portion] = []
        for portion in reversed(self._kept):
            if portion.last <= place:
                break
            portions.append(portion)
        return portions[::-1]

    async def news(self) -> None:
        """Wait for the next publication."""
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        # A follower that begins to wait now waits for the next publication, even before those of this one have run.
        self._news = asyncio.Event()

    def _write_out(self) -> None:
        self._timer = None
        stirred, self._stirred = self._stirred, {}
        for source in stirred:
            task = asyncio.ensure_future(source.write_events())
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    def _trim(self, now: float) -> None:
        oldest = now - KEPT_SECONDS
        while self._kept and (
            self._count > KEPT_EVENTS or self._bytes > KEPT_BYTES or self._kept[0].written_at < oldest
        ):
            oldest_portion = self._kept.popleft()
            self._count -= len(oldest_portion.events)
            self._bytes -= oldest_portion.size_bytes


class RunVersions:
    """Give each change of a run a number; numbers rise over all runs and live as long as the process."""

    def __init__(self, kept: int = _NUMBERS_KEPT) -> None:
        self._kept = kept
        self._latest = 0
        self._floor = 0
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def note(self, run_id: str) -> None:
        """Note that a run has changed."""
        self._latest += 1
        self._numbers[run_id] = self._latest
        self._numbers.move_to_end(run_id)
        if len(self._numbers) > self._kept:
            # No lower than the number of any run that was dropped: such a run may look changed, never unchanged.
            _, self._floor = self._numbers.popitem(last=False)
        if run_id in self._waiting:
            _wake(self._waiting[run_id])

    def number(self, run_id: str) -> int:
        """Return a run's present number; a run whose number was dropped may seem changed once more, never unchanged."""
        return self._numbers.get(run_id, self._floor)

    async def differs(self, run_id: str, since: int) -> int:
        """Wait until a run's number is another one than `since`, and return it."""
        while (number := self.number(run_id)) == since:
            await self._next(run_id)
        return number

    def wake_all(self) -> None:
        """Mark every run as changed, so that no poll waits."""
        self._latest += 1
        self._floor = self._latest
        self._numbers.clear()
        for waiters in self._waiting.values():
            _wake(waiters)

    async def _next(self, run_id: str) -> None:
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._waiting.setdefault(run_id, set())
        waiters.add(waiter)
        try:
            await waiter
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiting.get(run_id) is waiters:
                del self._waiting[run_id]


def _wake(waiters: set[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
