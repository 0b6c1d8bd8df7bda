"""The dispatcher: one task that turns events into messages, and delivers each at least once, a run's in order."""

# No message exists only in memory. An endpoint's file contains an instant before which every message was delivered or
# given up, and the newest ids; after any end of the process, later messages are read again from the events of the runs.
# Ids are derived from the event, so that a repetition can be recognised.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from app import clock, errors
from app.domain import notifications
from app.engine import aio, event_feed, outages, stores
from app.services.notifications import derivation, eventless
from app.services.notifications.repository import EndpointRepository
from app.services.notifications.senders import MOST_WAIT_SECONDS, NotDelivered, Sender

RETRY_SECONDS = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 8 * 3600.0)
"""Pauses between the attempts to deliver a message; after the last attempt the message becomes a dead letter."""

MOST_PENDING = 1000  # Messages of an endpoint in memory; others are read again when these are delivered.

_AT_ONCE = 4
_IDLE_SECONDS = 45.0
_RETRY_STORAGE_SECONDS = 10.0

_HELD_LOOK_SECONDS = 30.0  # Time between two checks whether a held endpoint has another receiver.

_HELD = NotDelivered("the receiver wants no message yet")

_log = logging.getLogger(__name__)


class _EndpointQueue:
    """The undelivered messages of one endpoint, and the progress that its file records."""

    def __init__(self, endpoint: notifications.Endpoint, now: datetime) -> None:
        self.endpoint = endpoint
        self.pending: dict[str, notifications.Message] = {}
        self.delivered = dict.fromkeys(endpoint.delivered)
        self.tried = dict(endpoint.tried)
        self.held_until = endpoint.held_until
        # Earlier messages are older than the endpoint. If the clock was set back, this is uncertain: a message too
        # many, under its id, is better than a lost one.
        self.floor = min(endpoint.created_at, endpoint.since)
        self.behind: str | None = endpoint.since
        if clock.stamp(now) < endpoint.since:
            self.behind, self.floor = clock.stamp(now), clock.stamp(now - derivation.MARGIN)
        self.margin = derivation.MARGIN
        self.lanes: dict[str, asyncio.Task[None]] = {}
        self.capacity = asyncio.Semaphore(_AT_ONCE)
        self.woken: dict[str, asyncio.Event] = {}
        self.is_dirty = False
        self.is_unread = False
        self.is_open = False

    def held_seconds(self, now: datetime) -> float:
        """Return the time for which the receiver wants no message."""
        held = 0.0 if self.held_until is None else (clock.instant(self.held_until) - now).total_seconds()
        # Longer only if the clock was set back.
        return min(max(held, 0.0), MOST_WAIT_SECONDS)

    def hold(self, seconds: float, now: datetime) -> None:
        """Record the time for which the receiver wants no message; a longer known time is kept."""
        if seconds > self.held_seconds(now):
            self.held_until = clock.stamp(now + timedelta(seconds=seconds))

    def since(self, now: str) -> str:
        """Return the instant before which every message was delivered or given up."""
        waiting = [message.at for message in self.pending.values()]
        return min([now, *waiting, *([self.behind] if self.behind else [])])


class Dispatcher:
    """Delivers messages; only the service of a data directory starts it.

    Args:
        other_messages: Messages that no event of a run contains.
        hears_all: Whether the feed has the events of all runs; otherwise the dispatcher searches the store.
    """

    def __init__(
        self,
        *,
        repository: EndpointRepository,
        store: stores.RunStore,
        feed: event_feed.EventFeed,
        senders: Mapping[str, Sender],
        clock: clock.Clock,
        other_messages: eventless.Source,
        hears_all: bool = True,
    ) -> None:
        self._repository = repository
        self._store = store
        self._feed = feed
        self._senders = senders
        self._clock = clock
        self._other_messages = other_messages
        self._hears_all = hears_all
        self._queues: dict[str, _EndpointQueue] = {}
        self._place = 0
        self._outage = outages.Outage(_log, "notifications wait: %s", "notifications no longer wait")
        self._was_stopped = False
        self._task: asyncio.Task[None] | None = None
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Start the task, unless it is already started."""
        if self._task is None:
            self._place = self._feed.last if self._was_stopped else 0
            self._fault = None
            self._task = asyncio.create_task(self._work(), name="notifications")

    async def stop(self) -> None:
        """Stop, and wait for the end; undelivered messages are sent after the next start, delivered ones are not."""
        lanes = [lane for queue in self._queues.values() for lane in queue.lanes.values()]
        tasks = [task for task in (self._task, *lanes) if task is not None]
        # Undelivered messages are found again, from the time that each endpoint has recorded.
        queues, self._queues = self._queues, {}
        self._task, self._was_stopped = None, True
        await aio.end(*tasks)
        for queue in queues.values():
            if queue.is_dirty:
                await self._save_last(queue)

    def check(self) -> None:
        """Raise if the task has died.

        Raises:
            errors.Unavailable: `notifications_broken`.
        """
        error = aio.failure(self._task) or self._fault
        if error is not None:
            message = f"notifications do not work: {error!r:.200}; restart the service"
            raise errors.Unavailable(message, code="notifications_broken")

    async def _work(self) -> None:
        while True:
            try:
                await self._run_once()
            except (errors.ControlRoomError, errors.StorageFault) as fault:
                self._outage.failed(fault.message)
                await self._clock.sleep(_RETRY_STORAGE_SECONDS)

    async def _run_once(self) -> None:
        """Take new events, and sleep until more arrive."""
        self._repository.changed.clear()
        await self._open_queues()
        if not self._queues:
            self._place = self._feed.last
            await self._repository.changed.wait()
            return
        self._feed.listeners += 1
        try:
            # From here on, a publication ends the wait below.
            news = asyncio.ensure_future(self._feed.news())
            await asyncio.sleep(0)
            await self._read_feed()
            await self._save()
            self._outage.worked()
            if self._place == self._feed.last and not self._repository.changed.is_set():
                is_unread = any(queue.is_unread for queue in self._queues.values())
                pause = _RETRY_STORAGE_SECONDS if is_unread else _IDLE_SECONDS
                asked, sleep = self._other_messages.changed.wait(), self._clock.sleep(pause)
                await aio.wait_first(news, self._repository.changed.wait(), asked, sleep)
                self._reread_events()
        finally:
            news.cancel()
            self._feed.listeners -= 1

    def _reread_events(self) -> None:
        """Read again the events that other processes may have written meanwhile."""
        if not self._hears_all:
            self._other_messages.again()
            now = clock.stamp(self._clock.now())
            for queue in self._queues.values():
                if queue.behind is None:
                    queue.behind, queue.margin = queue.since(now), derivation.SHORT_MARGIN

    async def _open_queues(self) -> None:
        found = {endpoint.endpoint_id: endpoint for endpoint in await self._repository.all()}
        for gone in self._queues.keys() - found.keys():
            for lane in self._queues.pop(gone).lanes.values():
                lane.cancel()
        for endpoint_id, endpoint in found.items():
            if endpoint_id not in self._queues:
                self._queues[endpoint_id] = _EndpointQueue(endpoint, self._clock.now())
                self._repository.waiting[endpoint_id] = self._queues[endpoint_id].pending
            # A request of the former receiver does not apply to the new one.
            if endpoint.url != self._queues[endpoint_id].endpoint.url:
                self._queues[endpoint_id].held_until = endpoint.held_until
            self._queues[endpoint_id].endpoint = endpoint
            for message_id in self._queues[endpoint_id].woken.keys() & set(endpoint.given_up):
                self._queues[endpoint_id].woken[message_id].set()
            await self._begin_replayed(self._queues[endpoint_id])

    async def _read_feed(self) -> None:
        reached = self._feed.last
        # Events were dropped before they were read, so the journals are read from there.
        if self._place < self._feed.first - 1:
            now = clock.stamp(self._clock.now() - derivation.MARGIN)
            for queue in self._queues.values():
                queue.behind = queue.behind or queue.since(now)
        portions = self._feed.behind(self._place)
        for queue in self._queues.values():
            if queue.behind is not None and len(queue.pending) < MOST_PENDING // 2:
                await self._catch_up(queue, queue.behind)
            if queue.behind is None:
                messages = [one for portion in portions for one in derivation.of_portion(portion)]
                self._enqueue(queue, messages, "" if queue.is_open else queue.floor)
            queue.is_open = True
        self._place = reached
        others = await self._other_messages.drain()
        for queue in self._queues.values() if others else ():
            self._enqueue(queue, others, queue.floor)
            if queue.behind is not None:
                # The queue is full: the messages that it lacks are drained again.
                self._other_messages.again()

    async def _catch_up(self, queue: _EndpointQueue, begin: str) -> None:
        found: list[notifications.Message] = []
        fault: errors.StorageFault | None = None
        try:
            async for one in derivation.since(self._store, begin, queue.margin):
                found.append(one)
        except errors.StorageFault as unreadable:
            _log.warning("notifications are incomplete: %s", unreadable.message, extra={"code": unreadable.code})
            fault = unreadable
        queue.behind, queue.is_unread = None, fault is not None
        self._enqueue(queue, found, queue.floor)
        if fault is not None:
            # Read again from there; messages that were delivered by then are recognised by their ids.
            queue.behind = begin
        else:
            queue.margin = derivation.MARGIN

    def _enqueue(self, queue: _EndpointQueue, messages: Iterable[notifications.Message], floor: str) -> None:
        """Begin to deliver the messages that an endpoint wants.

        Args:
            floor: Instant before which messages are older than the endpoint.
        """
        found = derivation.in_order(messages)
        for number, (counts_from, message) in enumerate(found):
            known = message.message_id in queue.pending or message.message_id in queue.delivered
            if known or counts_from < floor or not queue.endpoint.wants(message):
                continue
            if len(queue.pending) >= MOST_PENDING:
                # The remaining messages are read again from here when the queue has room.
                queue.behind = min(left.at for _, left in found[number:])
                return
            self._begin(queue, message)

    def _begin(self, queue: _EndpointQueue, message: notifications.Message) -> None:
        queue.pending[message.message_id] = message
        if message.run_id not in queue.lanes:
            lane = asyncio.create_task(self._deliver(queue, message.run_id), name=f"notify {message.run_id}")
            queue.lanes[message.run_id] = lane
            lane.add_done_callback(self._note_fault)

    def _note_fault(self, lane: asyncio.Task[None]) -> None:
        if (error := aio.failure(lane)) is not None:
            self._fault = error
            _log.error("notifications of a run stop until the next start", exc_info=error)

    async def _deliver(self, queue: _EndpointQueue, run_id: str) -> None:
        """Deliver the messages of one run in their order."""
        try:
            while message := next((each for each in queue.pending.values() if each.run_id == run_id), None):
                letter = await self._attempt(queue, message)
                await self._record_outcome(queue, message, letter)
        finally:
            queue.lanes.pop(run_id, None)

    async def _attempt(self, queue: _EndpointQueue, message: notifications.Message) -> notifications.DeadLetter | None:
        """Try to deliver until it succeeds; return a dead letter after the last attempt or when a person gives up."""
        failed, is_first = queue.tried.get(message.message_id), True
        woken = queue.woken[message.message_id] = asyncio.Event()
        while True:
            if failed is not None and message.message_id in queue.endpoint.given_up:
                return _dead(message, failed.attempts, failed.error, self._clock.now())
            if held := queue.held_seconds(self._clock.now()):
                # In short steps: while the message is held, a person may give it up or change the endpoint.
                await aio.wait_first(self._clock.sleep(min(held, _HELD_LOOK_SECONDS)), woken.wait())
                continue
            if (failure := await self._failure(queue, message)) is None:
                return None
            if failure is _HELD:
                continue
            error, now = str(failure), self._clock.now()
            queue.hold(failure.wait_seconds, now)
            # A start tries waiting messages at once. This attempt counts only after the next one was due: a service
            # that restarts again and again must neither give up too early nor never.
            is_early = is_first and failed is not None and clock.stamp(now) < failed.next_at
            attempts = (failed.attempts if failed else 0) + (not is_early)
            place = (message.message_id, message.run_id, queue.endpoint.endpoint_id)
            _log.warning(
                "message %s of run %s not delivered to endpoint %s: %s", *place, error, extra={"attempt": attempts}
            )
            if failure.is_final or attempts > len(RETRY_SECONDS):
                return _dead(message, attempts, error, now)
            pause = max(RETRY_SECONDS[attempts - 1], failure.wait_seconds)
            if is_early and failed is not None:
                pause = min(pause, (clock.instant(failed.next_at) - now).total_seconds())
            failed = notifications.FailedAttempts(
                run_id=message.run_id,
                kind=message.kind,
                attempts=attempts,
                error=error,
                at=clock.stamp(now),
                next_at=clock.stamp(now + timedelta(seconds=pause)),
            )
            # Saved before the pause ends, so that a restart continues the count.
            queue.tried[message.message_id], queue.is_dirty, is_first = failed, True, False
            self._repository.changed.set()
            await aio.wait_first(self._clock.sleep(pause), woken.wait())

    async def _failure(self, queue: _EndpointQueue, message: notifications.Message) -> NotDelivered | None:
        """Try to deliver once; return why it failed."""
        try:
            async with queue.capacity:
                if queue.held_seconds(self._clock.now()):
                    return _HELD
                await self._senders[queue.endpoint.channel].send(queue.endpoint, message)
        except NotDelivered as failure:
            return failure
        return None

    async def _record_outcome(
        self, queue: _EndpointQueue, message: notifications.Message, letter: notifications.DeadLetter | None
    ) -> None:
        kept = self._repository.dead_letters(queue.endpoint.endpoint_id)
        while True:
            try:
                # A letter that cannot be written would be a lost message, so the run's other messages wait for it.
                if letter is None:
                    await kept.remove(message.message_id)
                else:
                    await kept.put(message.message_id, letter)
                    place = (message.message_id, message.run_id, queue.endpoint.endpoint_id)
                    _log.warning("message %s of run %s given up: endpoint %s has a new dead letter", *place)
                break
            except errors.StorageFault as fault:
                _log.error("a dead letter waits: %s", fault.message, extra={"code": fault.code})
                await self._clock.sleep(_RETRY_STORAGE_SECONDS)
        queue.tried.pop(message.message_id, None)
        queue.woken.pop(message.message_id, None)
        queue.delivered[message.message_id] = None
        while len(queue.delivered) > notifications.MOST_DELIVERED:
            del queue.delivered[next(iter(queue.delivered))]
        del queue.pending[message.message_id]
        queue.is_dirty = True
        self._repository.changed.set()

    async def _begin_replayed(self, queue: _EndpointQueue) -> None:
        for letter in await self._repository.dead_letters(queue.endpoint.endpoint_id).replayed():
            if letter.message.message_id not in queue.pending:
                self._begin(queue, letter.message)

    async def _save(self) -> None:
        """Save the progress of each endpoint; after a kill, later messages are sent again."""
        now = clock.stamp(self._clock.now())
        for queue in list(self._queues.values()):
            since = queue.since(now)
            # The clock was set back: a start would look for messages only after the instant in the file.
            if queue.is_dirty or since < queue.endpoint.since:
                if queue.behind is None:
                    # The endpoint does not want the others any more.
                    queue.tried = {name: failed for name, failed in queue.tried.items() if name in queue.pending}
                await self._advance(queue, since)

    async def _save_last(self, queue: _EndpointQueue) -> None:
        # Only the ids: the feed may contain events that are not taken yet, so the instant in the file is kept.
        try:
            await self._advance(queue, queue.endpoint.since)
        except errors.StorageFault as fault:
            _log.warning("delivered messages are sent again: %s", fault.message, extra={"code": fault.code})

    async def _advance(self, queue: _EndpointQueue, since: str) -> None:
        queue.is_dirty = False
        endpoint_id, held_until = queue.endpoint.endpoint_id, queue.held_until
        try:
            kept = await self._repository.advance(endpoint_id, since, queue.delivered, queue.tried, held_until)
        except BaseException:
            queue.is_dirty = True
            raise
        if kept is not None and kept.url != queue.endpoint.url:
            # The endpoint was edited between its last read and this write, which kept the wait of its former receiver.
            queue.held_until, queue.is_dirty = None, True
        queue.endpoint = kept or queue.endpoint


def _dead(message: notifications.Message, attempts: int, error: str, now: datetime) -> notifications.DeadLetter:
    return notifications.DeadLetter(message=message, attempts=attempts, error=error, given_up_at=clock.stamp(now))
