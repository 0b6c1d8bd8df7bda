"""The dispatcher: one task that turns events into messages, and delivers each at least once, a run's in order."""

# No message lives in memory alone. An endpoint's file holds an instant before which everything was delivered
# or given up, and the newest ids; what came later is read again from the events of the runs after any end of the
# process. Ids are made of the event, so that a repetition can be recognised.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from app import clock, errors
from app.domain import notifications
from app.engine import aio, event_feed, stores
from app.services.notifications import derivation, plan_questions
from app.services.notifications.repository import EndpointRepository
from app.services.notifications.senders import MOST_WAIT_SECONDS, NotDelivered, Sender

RETRY_SECONDS = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 8 * 3600.0)
"""Pauses between the attempts to deliver a message; after the last one it is a dead letter."""

MOST_PENDING = 1000  # Messages of an endpoint in memory; the others are read again when these are delivered.

_AT_ONCE = 4
_IDLE_SECONDS = 45.0
_RETRY_STORAGE_SECONDS = 10.0

_HELD_LOOK_SECONDS = 30.0  # Time between two looks whether a held endpoint has another receiver by now.

_HELD = NotDelivered("the receiver wants no message yet")

_log = logging.getLogger(__name__)


class _Outlet:
    """One endpoint at work."""

    def __init__(self, endpoint: notifications.Endpoint, now: datetime) -> None:
        self.endpoint = endpoint
        self.pending: dict[str, notifications.Message] = {}
        self.delivered = dict.fromkeys(endpoint.delivered)
        self.tried = dict(endpoint.tried)
        self.held_until = endpoint.held_until
        # What is earlier is older than the endpoint. Where the clock was set back, that cannot be told: rather a
        # message too many, under its id, than one that is lost.
        self.floor = min(endpoint.created_at, endpoint.since)
        self.behind: str | None = endpoint.since
        if clock.stamp(now) < endpoint.since:
            self.behind, self.floor = clock.stamp(now), clock.stamp(now - derivation.MARGIN)
        self.margin = derivation.MARGIN
        self.lanes: dict[str, asyncio.Task[None]] = {}
        self.room = asyncio.Semaphore(_AT_ONCE)
        self.woken: dict[str, asyncio.Event] = {}
        self.is_dirty = False
        self.is_unread = False
        self.is_open = False

    def held_seconds(self, now: datetime) -> float:
        """Return for how long the receiver wants no message."""
        held = 0.0 if self.held_until is None else (clock.instant(self.held_until) - now).total_seconds()
        # Longer only where the clock was set back.
        return min(max(held, 0.0), MOST_WAIT_SECONDS)

    def hold(self, seconds: float, now: datetime) -> None:
        """Note for how long the receiver wants no message; a longer time stays."""
        if seconds > self.held_seconds(now):
            self.held_until = clock.stamp(now + timedelta(seconds=seconds))

    def since(self, now: str) -> str:
        """Return the instant before which nothing is open."""
        waiting = [message.at for message in self.pending.values()]
        return min([now, *waiting, *([self.behind] if self.behind else [])])


class Dispatcher:
    """Deliver messages; only the service of a data directory starts it.

    Args:
        hears_all: Whether the feed has the events of all runs; if not, they are looked for in the store.
    """

    def __init__(
        self,
        *,
        repository: EndpointRepository,
        store: stores.RunStore,
        feed: event_feed.EventFeed,
        senders: Mapping[str, Sender],
        clock: clock.Clock,
        questions: plan_questions.PlanQuestions,
        hears_all: bool = True,
    ) -> None:
        self._repository = repository
        self._store = store
        self._feed = feed
        self._senders = senders
        self._clock = clock
        self._questions = questions
        self._hears_all = hears_all
        self._outlets: dict[str, _Outlet] = {}
        self._place = 0
        self._was_stopped = False
        self._task: asyncio.Task[None] | None = None
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Begin to work; nothing when started already."""
        if self._task is None:
            self._place = self._feed.last if self._was_stopped else 0
            self._fault = None
            self._task = asyncio.create_task(self._work(), name="notifications")

    async def stop(self) -> None:
        """Stop, and wait for it; undelivered messages are sent after the next start, delivered ones are not."""
        lanes = [lane for outlet in self._outlets.values() for lane in outlet.lanes.values()]
        tasks = [task for task in (self._task, *lanes) if task is not None]
        # What is not delivered is found again, from the time that each endpoint has recorded.
        outlets, self._outlets = self._outlets, {}
        self._task, self._was_stopped = None, True
        await aio.end(*tasks)
        for outlet in outlets.values():
            if outlet.is_dirty:
                await self._save_last(outlet)

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
                await self._turn()
            except (errors.ControlRoomError, errors.StorageFault) as fault:
                _log.error("notifications wait: %s", fault.message, extra={"code": fault.code})
                await self._clock.sleep(_RETRY_STORAGE_SECONDS)

    async def _turn(self) -> None:
        """Take new events, and sleep until there are more."""
        self._repository.changed.clear()
        await self._open_outlets()
        if not self._outlets:
            self._place = self._feed.last
            await self._repository.changed.wait()
            return
        self._feed.listeners += 1
        try:
            # A publication from here on wakes the wait below.
            news = asyncio.ensure_future(self._feed.news())
            await asyncio.sleep(0)
            await self._read_feed()
            await self._save()
            if self._place == self._feed.last and not self._repository.changed.is_set():
                is_unread = any(outlet.is_unread for outlet in self._outlets.values())
                pause = _RETRY_STORAGE_SECONDS if is_unread else _IDLE_SECONDS
                asked, sleep = self._questions.changed.wait(), self._clock.sleep(pause)
                await aio.wait_first(news, self._repository.changed.wait(), asked, sleep)
                self._look_again()
        finally:
            news.cancel()
            self._feed.listeners -= 1

    def _look_again(self) -> None:
        """Read again what other processes may have written meanwhile."""
        if not self._hears_all:
            self._questions.again()
            now = clock.stamp(self._clock.now())
            for outlet in self._outlets.values():
                if outlet.behind is None:
                    outlet.behind, outlet.margin = outlet.since(now), derivation.SHORT_MARGIN

    async def _open_outlets(self) -> None:
        found = {endpoint.endpoint_id: endpoint for endpoint in await self._repository.all()}
        for gone in self._outlets.keys() - found.keys():
            for lane in self._outlets.pop(gone).lanes.values():
                lane.cancel()
        for endpoint_id, endpoint in found.items():
            if endpoint_id not in self._outlets:
                self._outlets[endpoint_id] = _Outlet(endpoint, self._clock.now())
                self._repository.waiting[endpoint_id] = self._outlets[endpoint_id].pending
            if endpoint.url != self._outlets[endpoint_id].endpoint.url:
                self._outlets[endpoint_id].held_until = endpoint.held_until
            self._outlets[endpoint_id].endpoint = endpoint
            for message_id in self._outlets[endpoint_id].woken.keys() & set(endpoint.given_up):
                self._outlets[endpoint_id].woken[message_id].set()
            await self._begin_replayed(self._outlets[endpoint_id])

    async def _read_feed(self) -> None:
        reached = self._feed.last
        if self._place < self._feed.first - 1:
            now = clock.stamp(self._clock.now() - derivation.MARGIN)
            for outlet in self._outlets.values():
                outlet.behind = outlet.behind or outlet.since(now)
        portions = self._feed.behind(self._place)
        for outlet in self._outlets.values():
            if outlet.behind is not None and len(outlet.pending) < MOST_PENDING // 2:
                await self._catch_up(outlet, outlet.behind)
            if outlet.behind is None:
                told = [one for portion in portions for one in derivation.of_portion(portion)]
                self._enqueue(outlet, told, "" if outlet.is_open else outlet.floor)
            outlet.is_open = True
        self._place = reached
        questions = await self._questions.drain()
        for outlet in self._outlets.values() if questions else ():
            self._enqueue(outlet, questions, outlet.floor)
            if outlet.behind is not None:
                # There was no room for all of them.
                self._questions.again()

    async def _catch_up(self, outlet: _Outlet, begin: str) -> None:
        found: list[notifications.Message] = []
        fault: errors.StorageFault | None = None
        try:
            async for one in derivation.since(self._store, begin, outlet.margin):
                found.append(one)
        except errors.StorageFault as unreadable:
            _log.warning("notifications are incomplete: %s", unreadable.message, extra={"code": unreadable.code})
            fault = unreadable
        outlet.behind, outlet.is_unread = None, fault is not None
        self._enqueue(outlet, found, outlet.floor)
        if fault is not None:
            # Read again from there; what was delivered by then is known by its id.
            outlet.behind = begin
        else:
            outlet.margin = derivation.MARGIN

    def _enqueue(self, outlet: _Outlet, messages: Iterable[notifications.Message], floor: str) -> None:
        """Begin to deliver messages that the endpoint wants.

        Args:
            floor: Instant before which messages are older than the endpoint.
        """
        found = derivation.in_order(messages)
        for number, (counts_from, message) in enumerate(found):
            known = message.message_id in outlet.pending or message.message_id in outlet.delivered
            if known or counts_from < floor or not outlet.endpoint.wants(message):
                continue
            if len(outlet.pending) >= MOST_PENDING:
                # The rest is read again from here when there is room.
                outlet.behind = min(left.at for _, left in found[number:])
                return
            self._begin(outlet, message)

    def _begin(self, outlet: _Outlet, message: notifications.Message) -> None:
        outlet.pending[message.message_id] = message
        if message.run_id not in outlet.lanes:
            lane = asyncio.create_task(self._deliver(outlet, message.run_id), name=f"notify {message.run_id}")
            outlet.lanes[message.run_id] = lane
            lane.add_done_callback(self._note_fault)

    def _note_fault(self, lane: asyncio.Task[None]) -> None:
        if (error := aio.failure(lane)) is not None:
            self._fault = error
            _log.error("notifications of a run stop until the next start", exc_info=error)

    async def _deliver(self, outlet: _Outlet, run_id: str) -> None:
        """Deliver the messages of one run in their order."""
        try:
            while message := next((each for each in outlet.pending.values() if each.run_id == run_id), None):
                letter = await self._tried(outlet, message)
                await self._record_outcome(outlet, message, letter)
        finally:
            outlet.lanes.pop(run_id, None)

    async def _tried(self, outlet: _Outlet, message: notifications.Message) -> notifications.DeadLetter | None:
        """Try to deliver until it works; return a dead letter once no attempt is left, or a person wants none."""
        failed, is_first = outlet.tried.get(message.message_id), True
        woken = outlet.woken[message.message_id] = asyncio.Event()
        while True:
            if failed is not None and message.message_id in outlet.endpoint.given_up:
                return _dead(message, failed.attempts, failed.error, self._clock.now())
            if held := outlet.held_seconds(self._clock.now()):
                await aio.wait_first(self._clock.sleep(min(held, _HELD_LOOK_SECONDS)), woken.wait())
                continue
            if (failure := await self._failure(outlet, message)) is None:
                return None
            if failure is _HELD:
                continue
            error, now = str(failure), self._clock.now()
            outlet.hold(failure.wait_seconds, now)
            # A start tries what waits at once. That counts only once the next attempt was due: a service that is
            # started again and again must neither give up early nor never.
            is_early = is_first and failed is not None and clock.stamp(now) < failed.next_at
            attempts = (failed.attempts if failed else 0) + (not is_early)
            _log.warning("message %s not delivered: %s", message.message_id, error, extra={"attempt": attempts})
            if attempts > len(RETRY_SECONDS):
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
            outlet.tried[message.message_id], outlet.is_dirty, is_first = failed, True, False
            self._repository.changed.set()
            await aio.wait_first(self._clock.sleep(pause), woken.wait())

    async def _failure(self, outlet: _Outlet, message: notifications.Message) -> NotDelivered | None:
        """Try to deliver once; return why it failed."""
        try:
            async with outlet.room:
                if outlet.held_seconds(self._clock.now()):
                    return _HELD
                await self._senders[outlet.endpoint.channel].send(outlet.endpoint, message)
        except NotDelivered as failure:
            return failure
        return None

    async def _record_outcome(
        self, outlet: _Outlet, message: notifications.Message, letter: notifications.DeadLetter | None
    ) -> None:
        kept = self._repository.dead_letters(outlet.endpoint.endpoint_id)
        while True:
            try:
                if letter is None:
                    await kept.remove(message.message_id)
                else:
                    await kept.put(message.message_id, letter)
                break
            except errors.StorageFault as fault:
                _log.error("a dead letter waits: %s", fault.message, extra={"code": fault.code})
                await self._clock.sleep(_RETRY_STORAGE_SECONDS)
        outlet.tried.pop(message.message_id, None)
        outlet.woken.pop(message.message_id, None)
        outlet.delivered[message.message_id] = None
        while len(outlet.delivered) > notifications.MOST_DELIVERED:
            del outlet.delivered[next(iter(outlet.delivered))]
        del outlet.pending[message.message_id]
        outlet.is_dirty = True
        self._repository.changed.set()

    async def _begin_replayed(self, outlet: _Outlet) -> None:
        for letter in await self._repository.dead_letters(outlet.endpoint.endpoint_id).replayed():
            if letter.message.message_id not in outlet.pending:
                self._begin(outlet, letter.message)

    async def _save(self) -> None:
        """Write down the progress of each endpoint; later messages are sent again after a kill."""
        now = clock.stamp(self._clock.now())
        for outlet in list(self._outlets.values()):
            since = outlet.since(now)
            # The clock was set back: a start would look for messages only behind the instant that the file holds.
            if outlet.is_dirty or since < outlet.endpoint.since:
                if outlet.behind is None:
                    # The endpoint does not want the others any more.
                    outlet.tried = {name: failed for name, failed in outlet.tried.items() if name in outlet.pending}
                await self._advance(outlet, since)

    async def _save_last(self, outlet: _Outlet) -> None:
        # Only the ids: the feed may hold events that are not taken yet, so the instant of the file stays.
        try:
            await self._advance(outlet, outlet.endpoint.since)
        except errors.StorageFault as fault:
            _log.warning("delivered messages are sent again: %s", fault.message, extra={"code": fault.code})

    async def _advance(self, outlet: _Outlet, since: str) -> None:
        outlet.is_dirty = False
        endpoint_id, held_until = outlet.endpoint.endpoint_id, outlet.held_until
        try:
            kept = await self._repository.advance(endpoint_id, since, outlet.delivered, outlet.tried, held_until)
        except BaseException:
            outlet.is_dirty = True
            raise
        if kept is not None and kept.url != outlet.endpoint.url:
            # It was edited between the look at it and this write, which kept what its former receiver asked for.
            outlet.held_until, outlet.is_dirty = None, True
        outlet.endpoint = kept or outlet.endpoint


def _dead(message: notifications.Message, attempts: int, error: str, now: datetime) -> notifications.DeadLetter:
    return notifications.DeadLetter(message=message, attempts=attempts, error=error, given_up_at=clock.stamp(now))
