"""Projections of an open run: events, snapshots and receipts, queued during a step and written after it."""

# Why events wait for the line that opened their block: docs/decisions/0360. Why lines number their events:
# docs/decisions/0365.
#
# Before an operation with effects outside is performed, its body is searched for the run's id, which every path into
# the run's folder contains. Only if it is found are snapshots and events written first: a program must not find the run
# in the state of some steps ago.

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from app import clock, errors
from app.domain import decisions, plain, records, runs
from app.domain.events import Event, EventType
from app.engine import journal_lines
from app.storage import layout
from app.storage.disk.worker_threads import Workers
from app.storage.index.index_port import ReceiptPlace
from app.storage.runs import events_file
from app.storage.runs.events_file import BLOCK, Written
from app.storage.runs.projection_files import Load, ProjectionFiles
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)

_FEW_BYTES = 16 * 1024
_PAUSE_AFTER_FAILURE_SECONDS = 1.0

_PUBLISHED_ELSEWHERE = frozenset({EventType.RUN_CREATED, EventType.RUN_ENDED})

Snapshots = Callable[[], Mapping[str, plain.Json]]
"""Makes the files of a run's folder that are replaced as a whole."""


class EventQueue:
    """Numbers the events of an open run, and holds those that are not written yet.

    Each `taken` opens a new block of numbers. Its line is synced before an event of the block is written or shown, so
    no number is used twice, even if a power cut loses the end of events.jsonl. If a run is opened without being taken,
    numbers come from the upper half of the last block, and are synced before they are shown.

    A journal line contains the number of its event, reserved when the line is appended, so that the event always keeps
    that number. Events follow in the order of their numbers: they wait while an earlier line is under way.
    """

    def __init__(self, run_id: str, written: Written, taken: int, unwritten: Iterable[Event] = ()) -> None:
        self._run_id = run_id
        self.fresh = False
        """Whether this process has opened the block, so that its events need no sync."""
        self.sync = False
        """Whether the next events must be synced before they are shown."""
        self.last = written.last
        """Highest number of an event that is queued or written."""
        self.next = max(written.last, taken * BLOCK + BLOCK // 2) + 1
        """Lowest free number."""
        self.sync_taken: Callable[[], Awaitable[None]] | None = None
        """Makes the line durable that opened the block; None: it is durable."""
        self.unwritten = list(unwritten)
        """Events that are not in the file yet."""
        self.held: dict[int, list[Event] | None] = {}
        """Events that wait, by their first number; None: their line is under way."""
        self.refused: list[int] = []
        """Numbers whose line was refused, until the file records that."""

    def resolve(self, number: int, made: list[Event]) -> None:
        """Queue the events of a durable line; empty: the line was refused."""
        held = self.held
        if number not in held:
            return
        held[number] = made
        if made:
            self.last = max(self.last, made[-1].seq)
        else:
            self.refused.append(number)
        while held and (ready := held[first := next(iter(held))]) is not None:
            self.unwritten += ready
            del held[first]

    def begin_block(self, taken: int) -> None:
        """Number from a new block, and sync each of its events until the line that opens it is accepted."""
        self.next = max(self.next, taken * BLOCK + 1)
        self.fresh = False

    def open_block(self, taken: int, sync_taken: Callable[[], Awaitable[None]] | None = None) -> None:
        """Number from a new block whose `taken` line is durable or becomes so by `sync_taken`."""
        self.next = max(self.next, taken * BLOCK + 1)
        self.fresh = True
        self.sync_taken = sync_taken

    def continue_from(self, taken: int, last: int) -> None:
        """Continue in the block that this process opened, after the last number that it used."""
        self.open_block(taken)
        self.next = max(self.last, last) + 1

    def add(self, at: str, type: EventType, key: str | None, data: Mapping[str, plain.Json] | None) -> Event:
        """Number an event and queue it."""
        number = self.next
        event = Event(
            seq=number, at=at, type=type._value_, run_id=self._run_id, key=key, data=dict(data) if data else {}
        )
        self.last, self.next = number, number + 1
        if self.held:
            self.held[number] = [event]
        else:
            self.unwritten.append(event)
        # The line of an ordered pause is older than its event, and does not contain its number.
        ordered = type is EventType.RUN_PAUSED and event.data.get("reason") == decisions.PAUSED_BY_PERSON
        self.sync = self.sync or ordered or not self.fresh
        return event

    def retell(self, event: Event) -> None:
        """Queue the missing event of a line, with its number if it has one."""
        if not event.seq:
            self.add(event.at, EventType(event.type), event.key, event.data)
            return
        self.last = max(self.last, event.seq)
        self.next = max(self.next, event.seq + 1)
        self.unwritten.append(event)

    def drain(self) -> tuple[list[Event], bool]:
        """Return the events to write, and whether they must be synced."""
        taken, self.unwritten = self.unwritten, []
        return taken, self.sync

    def put_back(self, taken: list[Event]) -> None:
        """Queue events again after a failed write."""
        self.unwritten = taken + self.unwritten

    def note_written(self, refused: int) -> None:
        """Record that the drained events and the first refused numbers are in the file."""
        self.sync = self.sync and bool(self.unwritten or self.held)
        del self.refused[:refused]


class Projections:
    """Writes all queued projections at once, within a limited share of the time.

    Projections are not authority: after a crash, recovery rebuilds all of them from the journals.
    """

    def __init__(
        self,
        run_id: str,
        start: runs.RunStart,
        context: StorageContext,
        queue: EventQueue,
        receipt_ids: Iterable[str],
        complete: Callable[[Mapping[str, plain.Json]], Mapping[str, plain.Json]],
    ) -> None:
        self._run_id = run_id
        self._context = context
        self._queue = queue
        self._complete = complete  # Adds facts to the snapshots that only their writer knows.
        self._folder = layout.run_folder(run_id)
        # A new run that was opened without being read has no events on disk yet.
        has_events = not queue.unwritten
        self._files = ProjectionFiles(run_id, self._folder, start.session_id, context, has_events=has_events)
        self.start = start
        """The start of the run, with its present labels."""
        self._feed = context.feed
        self._endings: list[Event] = []
        self._receipt_ids = dict.fromkeys(receipt_ids)
        self._make: Snapshots | None = None
        self._receipts: list[records.Record] = []
        self._unindexed: list[ReceiptPlace] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[BaseException | None] | None = None
        # A run that ends at once writes its projections only once.
        context.throttle.open += 1
        self._not_before = asyncio.get_running_loop().time() + context.throttle.first_seconds()
        self._closed = False

    def refresh(self, make: Snapshots) -> None:
        """Record that the snapshots are outdated."""
        self._make = make
        if self._timer is None and self._writing is None:
            self._write_soon()

    def add_event(
        self,
        type: EventType,
        key: str | None = None,
        data: Mapping[str, plain.Json] | None = None,
        at: str | None = None,
    ) -> Event:
        """Number an event and queue it."""
        event = self._queue.add(at or clock.stamp(self._context.clock.now()), type, key, data)
        if self._feed.followers:
            self._feed.stir(self)
        if self._timer is None and self._writing is None:
            self._write_soon()
        return event

    def arrived(self, line: Mapping[str, Any], position: int, ending: Mapping[str, plain.Json]) -> records.Record:
        """Queue the events of a step's durable line, and return its record."""
        record = records.read(position, {**line, **ending})
        self.queue_events(line["event"], journal_lines.events(self._run_id, record, line["event"]))
        return record

    def queue_events(self, number: int, made: list[Event]) -> None:
        """Queue the events of a durable line after those of earlier lines; empty: the line was refused."""
        queue = self._queue
        if len(queue.held) == 1 and made and number in queue.held:
            queue.held.clear()
            queue.last = max(queue.last, made[-1].seq)
            queue.unwritten += made
        else:
            queue.resolve(number, made)
        if self._feed.followers:
            self._feed.stir(self)
        if self._timer is None and self._writing is None:
            self._write_soon()

    def refused(self, line: Mapping[str, Any]) -> None:
        """Release the events that wait for a line that could not be made durable."""
        if "event" in line:
            self.queue_events(line["event"], [])

    def retell(self, missing: Iterable[Event]) -> None:
        """Queue events of journal lines that the file lacks."""
        for event in missing:
            self._queue.retell(event)
        if self._queue.unwritten:
            self._write_soon()

    def add_receipt(self, record: records.Record) -> None:
        """Queue a receipt unless it was queued before."""
        if record.receipt_id is not None and record.receipt_id not in self._receipt_ids:
            self._receipt_ids[record.receipt_id] = None
            self._receipts.append(record)
            self._write_soon()

    def holds_receipt(self, receipt_id: str) -> bool:
        """Return whether a receipt of this run exists, perhaps not written yet."""
        return receipt_id in self._receipt_ids

    async def flush(self, *, whole: bool = True) -> None:
        """Write all queued content now, or only the events.

        Raises:
            errors.StorageFault: the write failed; the content stays queued.
        """
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._closed or not (self._queued() if whole else self._queue.unwritten):
            return
        error = await asyncio.shield(self._start(whole=whole))
        if isinstance(error, OSError):
            raise self._context.disk_health.failed(f"{self._folder}/*", error) from error
        if error is not None:
            raise error

    async def make_durable(self) -> None:
        """Sync the written files, since the folder of a finished run is not read again to complete it.

        Raises:
            errors.StorageFault: they could not be synced.
        """
        try:
            await self._context.workers.run(lambda: self._files.sync(with_receipts=bool(self._receipt_ids)))
        except OSError as error:
            raise self._context.disk_health.failed(f"{self._folder}/*", error) from error

    async def read_events(self, after: int, most: int | None) -> list[Event]:
        """Write queued events, and return the next written ones with numbers above `after`."""
        if self._queue.last <= after:
            return []
        with contextlib.suppress(errors.StorageFault):
            await self.flush(whole=False)
        path = f"{self._folder}/{layout.EVENTS}"
        return await self._context.workers.run(lambda: events_file.read(self._context.disk, path, after, most))

    def publish_ending(self) -> None:
        """Announce the ending to followers of all runs, which may read the run's row next."""
        endings, self._endings = self._endings, []
        if endings:
            self._feed.publish(self.start, endings, len(events_file.encoded(*endings)))

    async def write_events(self) -> None:
        """Write queued events for followers of all runs; if that fails, they stay queued."""
        with contextlib.suppress(errors.Fault):
            await self.flush(whole=False)

    def close(self) -> None:
        """Write nothing further."""
        if not self._closed:
            self.publish_ending()
            self._context.throttle.open -= 1
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is None and self._make is None:
            # This callable belongs to the owner of this object, and the two would keep each other alive.
            self._complete = dict

    def _write_soon(self) -> None:
        waits = self._timer is not None or self._writing is not None
        if not waits and not self._closed and math.isfinite(self._not_before):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._not_before, loop.time()), self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._writing is None and self._queued():
            self._start(whole=True)

    def _queued(self) -> bool:
        return bool(self._make or self._receipts or self._unindexed or self._queue.unwritten)

    def _start(self, *, whole: bool) -> asyncio.Task[BaseException | None]:
        self._writing = asyncio.create_task(self._write(whole), name=f"projections {self._run_id}")
        return self._writing

    async def _write(self, whole: bool) -> BaseException | None:
        loop = asyncio.get_running_loop()
        load = Load()
        failure: BaseException | None = None
        began = loop.time()
        try:
            if self._queue.sync_taken is not None:
                await self._queue.sync_taken()
                self._queue.sync_taken = None
                began = loop.time()
            self._fill(load, whole)
            await self._workers(load).run(lambda: self._files.store(load))
        except (Exception, errors.Fault) as error:  # noqa: BLE001 - handed to the caller of flush, logged otherwise
            _log.warning("projections were not written: %s", error, extra={"run_id": self._run_id})
            failure = error
        try:
            failure = await self._note(load, failure)
        except (Exception, errors.Fault) as error:  # noqa: BLE001 - the same, or a flush would wait for this for ever
            _log.exception("projections were not noted", extra={"run_id": self._run_id})
            failure = error
        took = loop.time() - began
        pause = self._context.throttle.next_seconds(took)
        self._not_before = loop.time() + (pause if failure is None else max(pause, _PAUSE_AFTER_FAILURE_SECONDS))
        self._writing = None
        if self._queued():
            self._write_soon()
        return failure

    def _fill(self, load: Load, whole: bool) -> None:
        load.events, load.sync_events = self._queue.drain()
        load.refused = len(self._queue.refused)
        load.event_lines = events_file.refusals(self._queue.refused) + events_file.encoded(*load.events)
        if whole:
            load.receipts = self._receipts
            self._receipts = []
            load.make = self._make
            self._make = None
            load.files = self._complete(load.make()) if load.make else {}

    def _workers(self, load: Load) -> Workers:
        # Reading, syncing and writing long content would block the loop.
        long = len(load.event_lines) > _FEW_BYTES or self._files.bytes > _FEW_BYTES
        heavy = load.receipts or load.sync_events or long
        return self._context.workers if heavy else self._context.quick_workers

    async def _note(self, load: Load, failure: BaseException | None) -> BaseException | None:
        if load.events_written:
            self._queue.note_written(load.refused)
            # The code that creates a run publishes its creation.
            written = [event for event in load.events if event.type not in _PUBLISHED_ELSEWHERE]
            self._feed.publish(self.start, written, len(load.event_lines))
            self._endings += [event for event in load.events if event.type == EventType.RUN_ENDED]
        else:
            self._queue.put_back(load.events)
        if load.places is None:
            self._receipts = load.receipts + self._receipts
        self._unindexed += load.places or []
        if isinstance(failure, errors.Unreadable):
            self._make = self._make or load.make
        elif isinstance(failure, OSError):
            self._context.disk_health.free = False
            self._make = self._make or load.make
        elif failure is None:
            self._context.disk_health.succeeded()
        return await self._index_receipts() or failure

    async def _index_receipts(self) -> BaseException | None:
        places = self._unindexed
        if not places:
            return None
        self._context.probes.reach("storage.receipt.before_row")
        try:
            await self._context.index.add_receipts(places)
        except errors.StorageFault as fault:
            return fault
        self._unindexed = []
        self._context.probes.reach("storage.receipt.after_row")
        return None
