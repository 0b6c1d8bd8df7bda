"""Projections of an open run: snapshots, events and receipts, written behind its back and never in its way."""

# Before an operation that reaches outside is performed, its body is searched for the run's id, which every path
# into the run's folder contains. Only then are snapshots and events written first: a program must not find the run
# as it was some steps ago.

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from app import errors
from app.domain import events, plain, records
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.worker_threads import Workers
from app.storage.index.index_port import ReceiptPlace
from app.storage.runs import events_file, receipts
from app.storage.runs.event_log import EventLog, NumberedLine
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)

_FEW_BYTES = 16 * 1024
_PAUSE_AFTER_FAILURE_SECONDS = 1.0

Snapshots = Callable[[], Mapping[str, plain.Json]]
"""Makes the files of a run's folder that are replaced as a whole."""


@dataclass(slots=True, kw_only=True)
class _Load:
    make: Snapshots | None = None
    files: Mapping[str, plain.Json] = field(default_factory=dict)
    events: list[NumberedLine] = field(default_factory=list)
    sync_events: bool = False
    events_written: bool = False
    receipts: list[records.Record] = field(default_factory=list)
    places: list[ReceiptPlace] | None = None


class Projections:
    """Write what is queued in one go, soon; where that comes often, seldom enough to stay within
    its share of the time.
    """

    def __init__(
        self, name: str, session_id: str, context: StorageContext, book: EventLog, proven: Iterable[str]
    ) -> None:
        self._name = name
        self._session_id = session_id
        self._context = context
        self._book = book
        self._folder = layout.run_folder(name)
        self._proven = dict.fromkeys(proven)
        self._make: Snapshots | None = None
        self._receipts: list[records.Record] = []
        self._unindexed: list[ReceiptPlace] = []
        self._on_disk: dict[str, str] = {}
        self._files_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[BaseException | None] | None = None
        # A run that is over at once writes its projections once.
        context.throttle.open += 1
        self._not_before = asyncio.get_running_loop().time() + context.throttle.first_seconds()
        self._closed = False

    def refresh(self, make: Snapshots) -> None:
        """Note that the snapshots are out of date."""
        self._make = make
        self._write_soon()

    def add_receipt(self, record: records.Record) -> None:
        """Queue a receipt, unless it was queued before."""
        if record.receipt_id is not None and record.receipt_id not in self._proven:
            self._proven[record.receipt_id] = None
            self._receipts.append(record)
            self._write_soon()

    def note_event(self) -> None:
        """Note that the book has something to write."""
        self._write_soon()

    def holds_receipt(self, receipt_id: str) -> bool:
        """Tell whether a receipt is known here, perhaps not written yet."""
        return receipt_id in self._proven

    async def flush(self) -> None:
        """Write all that is queued now.

        Raises:
            errors.StorageFault: it could not be written, and stays queued.
        """
        await self._flush(whole=True)

    async def make_durable(self) -> None:
        """Sync what is written, since nobody reads the folder of a finished run again to complete it.

        Raises:
            errors.StorageFault: it could not be synced.
        """
        try:
            await self._context.workers.run(self._sync)
        except OSError as error:
            raise self._context.disk_health.failed(f"{self._folder}/*", error) from error

    async def read_events(self, after: int, most: int | None) -> list[events.Event]:
        """Write queued events, and return the next ones numbered above `after` that are written."""
        if self._book.last <= after:
            return []
        with contextlib.suppress(errors.StorageFault):
            await self._flush(whole=False)
        path = f"{self._folder}/{layout.EVENTS}"
        return await self._context.workers.run(lambda: events_file.read(self._context.disk, path, after, most))

    def close(self) -> None:
        """Write nothing more."""
        if not self._closed:
            self._context.throttle.open -= 1
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

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
        return bool(self._make or self._receipts or self._unindexed or self._book.unwritten)

    async def _flush(self, *, whole: bool) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._closed or not (self._queued() if whole else self._book.unwritten):
            return
        error = await asyncio.shield(self._start(whole=whole))
        if isinstance(error, OSError):
            raise self._context.disk_health.failed(f"{self._folder}/*", error) from error
        if error is not None:
            raise error

    def _start(self, *, whole: bool) -> asyncio.Task[BaseException | None]:
        self._writing = asyncio.create_task(self._write(whole), name=f"projections {self._name}")
        return self._writing

    async def _write(self, whole: bool) -> BaseException | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        load = _Load()
        failure: BaseException | None = None
        try:
            self._fill(load, whole)
            await self._workers(load).run(lambda: self._store(load))
        except (Exception, errors.Fault) as error:  # noqa: BLE001 - handed to whoever flushes, logged otherwise
            _log.warning("projections were not written: %s", error, extra={"run_id": self._name})
            failure = error
        failure = await self._note(load, failure)
        took = loop.time() - began
        pause = self._context.throttle.next_seconds(took)
        self._not_before = loop.time() + (pause if failure is None else max(pause, _PAUSE_AFTER_FAILURE_SECONDS))
        self._writing = None
        if self._queued():
            self._write_soon()
        return failure

    def _fill(self, load: _Load, whole: bool) -> None:
        load.events, load.sync_events = self._book.take()
        if whole:
            load.receipts = self._receipts
            self._receipts = []
            load.make = self._make
            self._make = None
            load.files = load.make() if load.make else {}

    def _workers(self, load: _Load) -> Workers:
        # What is read back, synced or long is not for the loop.
        events_bytes = sum(len(line) for _, line in load.events)
        heavy = load.receipts or load.sync_events or events_bytes > _FEW_BYTES or self._files_bytes > _FEW_BYTES
        return self._context.workers if heavy else self._context.near

    async def _note(self, load: _Load, failure: BaseException | None) -> BaseException | None:
        if load.events_written:
            self._book.note_written()
        else:
            self._book.put_back(load.events)
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

    # -- on a worker

    def _store(self, load: _Load) -> None:
        if load.events:
            self._store_events(load)
        if load.receipts:
            self._store_receipts(load)
        # Whoever reads an ending in run.json looks at the other files next.
        names = sorted(load.files, key=lambda name: name == layout.MANIFEST)
        contents = {layout.projection(name): plain.encode(load.files[name]) + b"\n" for name in names}
        self._files_bytes = sum(map(len, contents.values())) if contents else self._files_bytes
        for name, content in contents.items():
            self._store_file(name, content)

    def _sync(self) -> None:
        # The journals were synced line by line; once more costs nothing, and mends what a disk did not keep.
        for name in (layout.STEPS, layout.CONTROL, layout.EVENTS, *self._on_disk):
            disk_port.sync_file(self._context.disk, f"{self._folder}/{name}")
        self._context.disk.sync_folder(self._folder)
        self._context.disk.sync_folder(layout.RUNS)
        if self._proven:
            receipts.make_durable(self._context.disk, self._session_id)

    def _store_events(self, load: _Load) -> None:
        content = b"".join(line for _, line in load.events)
        self._context.probes.reach("storage.events.before_append")
        path = f"{self._folder}/{layout.EVENTS}"
        disk_port.append_whole(self._context.disk, path, content, sync=load.sync_events)
        load.events_written = True
        self._context.committer.mention(path)
        self._context.probes.reach("storage.events.after_append")

    def _store_receipts(self, load: _Load) -> None:
        files = self._context.disk
        made = []
        for record in load.receipts:
            try:
                made.append(receipts.receipt_of(files, self._name, self._folder, self._session_id, record))
            except errors.JournalCorrupt as error:
                _log.error("no receipt can be made: %s", error.message, extra={"run_id": self._name})
        self._context.probes.reach("storage.receipt.before_append")
        load.places = receipts.append(files, self._session_id, made) if made else []
        self._context.committer.mention(layout.receipts_file(self._session_id))

    def _store_file(self, name: str, content: bytes) -> None:
        digest = plain.sha256(content)
        if self._on_disk.get(name) == digest:
            return
        reach = self._context.probes.reach
        path = f"{self._folder}/{name}"
        disk_port.replace(self._context.disk, path, content, sync=False, reach=reach, at="storage.snapshot")
        self._on_disk[name] = digest
        self._context.committer.mention(path)
