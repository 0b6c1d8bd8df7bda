"""The feed: keeps the newest events of all runs for followers, and change numbers for polls."""

# A run pays one call for each write of its events, and one check for each event. Events are written earlier than
# usual only while a client follows.

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app import clock
from app.domain.events import Event

KEPT_EVENTS = 10_000  # Largest number of events that are kept.
KEPT_BYTES = 16 * 2**20  # Largest size of the events that are kept.
KEPT_SECONDS = 3600.0  # Longest time that an event is kept.
STIR_SECONDS = 0.1  # Time for which events wait for others before they are written for followers.

_NUMBERS_KEPT = 10_000


class Source(Protocol):
    """A run whose events wait to be written."""

    async def write_events(self) -> None:
        """Write the waiting events now; those that cannot be written continue to wait."""


class Run(Protocol):
    """The run that events belong to, with the fields by which followers select it."""

    @property
    def run_id(self) -> str:
        """Return the id of the run."""

    @property
    def recipe_id(self) -> str:
        """Return the id of the run's recipe."""

    @property
    def session_id(self) -> str:
        """Return the id of the run's work session."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of the run."""


class CommitListener(Protocol):
    """Listens to announcements of what other processes write to a shared store."""

    on_begun: Callable[[str], Awaitable[None]] | None
    """Called with each run that another process has begun or resumed."""

    @property
    def is_listening(self) -> bool:
        """Return whether all writes are announced at present; if not, callers must poll."""

    def start(self, on_write: Callable[[str | None], None]) -> None:
        """Begin to listen, and to publish the events of other processes in the feed.

        Args:
            on_write: Called with the id of each run that was written to; with None if one may have been missed.
        """

    async def stop(self) -> None:
        """Stop listening, and wait until that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Events of one run that were written together."""

    first: int  # Place of the first event among all events of this process, from 1.
    events: Sequence[Event]  # The events.
    size_bytes: int  # Their size.
    written_at: float  # When they were written, in seconds of a clock that never runs backwards.
    recipe_id: str  # Recipe of the run.
    session_id: str  # Its work session.
    labels: Mapping[str, str]  # Its labels.

    @property
    def last(self) -> int:
        """Return the place of the last event."""
        return self.first + len(self.events) - 1


class EventFeed:
    """Keeps the newest written events of all runs, within bounds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: deque[Portion] = deque()
        self._count = self._bytes = 0
        self._stirred: dict[Source, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self.followers = 0
        """Number of followers; without followers, each run chooses when it writes its events."""
        self.listeners = 0
        """Number of listeners, which wait for written events without hurrying the writes."""
        self.last = 0
        """Place of the newest event."""
        self.interrupted = 0
        """Place of the newest gap, at which events may have been missed."""

    @property
    def first(self) -> int:
        """Return the place of the oldest kept event; if none is kept, the place of the next one."""
        self._trim(self._monotonic())
        return self._kept[0].first if self._kept else self.last + 1

    def publish(self, run: Run, events: Sequence[Event], size_bytes: int) -> None:
        """Keep events that were written, and wake the followers."""
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
        """Record that events may have been missed, so that followers read their lists again."""
        self._kept.clear()
        self._count = self._bytes = 0
        # The gap has a place of its own, so that even a follower that has every earlier event notices it.
        self.last += 1
        self.interrupted = self.last
        self._wake()

    def stir(self, source: Source) -> None:
        """Schedule a run to write its events soon, since a client follows."""
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
        # A follower that begins to wait now waits for the next publication, even before those woken here have run.
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
    """Numbers each change of a run; numbers rise over all runs and live as long as the process."""

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
            # The floor is the highest number of any dropped run: a dropped run may look changed, but never unchanged.
            _, self._floor = self._numbers.popitem(last=False)
        if run_id in self._waiting:
            _wake(self._waiting[run_id])

    def number(self, run_id: str) -> int:
        """Return a run's present number; after its number was dropped, a run may look changed, but never unchanged."""
        return self._numbers.get(run_id, self._floor)

    async def differs(self, run_id: str, since: int) -> int:
        """Wait until a run's number differs from `since`, and return the number."""
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
