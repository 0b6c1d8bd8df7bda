"""The log of a run: its folder, locked by its only writer."""

# Healing belongs to the log and not to its caller: once begun it completes, the next one waits for it, and a log is
# closed only afterwards. A copy that continued after its caller was cancelled would undo lines that have become durable
# since.

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from app import clock, errors
from app.domain import authors, decisions, events, plain, records, run_orders, runs, states
from app.domain.decisions import DecisionKind
from app.engine import journal_lines
from app.storage import layout
from app.storage.disk import disk_port, worker_threads
from app.storage.journal.chain import Reading
from app.storage.journal.journal import Accepted, Journal
from app.storage.runs import blobs, census, contests, creation, log_files
from app.storage.runs import missing_lines as missing
from app.storage.runs.opened_run import JournalPosition, OpenedRun, Released
from app.storage.runs.projections import EventQueue, Projections
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)

T = TypeVar("T")

_UNFINISHED = frozenset(state for state in states.RunState if not state.finished)


class FolderLog:
    """`stores.RunLog` over a run's folder on any disk."""

    def __init__(self, opened: OpenedRun, context: StorageContext, data_directory_id: str, released: Released) -> None:
        authority = opened.authority
        self.run_id = authority.run_id
        """Name of the folder."""
        self.loaded = authority.loaded(opened.written.notes, opened.missing)
        self._context = context
        self._lock = opened.lock
        self._data_directory_id = data_directory_id
        self._start = authority.start
        self._released = released
        self._folder = layout.run_folder(self.run_id)
        self._events = EventQueue(self.run_id, opened.written, self.loaded.decisions.taken, opened.unwritten)
        projections = Projections(
            self.run_id,
            self._start,
            context,
            self._events,
            opened.receipt_ids,
            lambda files: missing.counted(files, self._steps.count),
        )
        self._projections, folder = projections, self._folder

        def journal(name: str, points: str, reading: Reading, accepted: Accepted) -> Journal:
            path = f"{folder}/{name}"
            return Journal(path, points, context, reading, context.disk.append_to(path), accepted, projections.refused)

        self._steps = journal(layout.STEPS, "storage.append", authority.steps, projections.arrived)
        self._control = journal(layout.CONTROL, "storage.decide", authority.control, self._fold)
        # Every step calls these several times, so they are direct references instead of methods.
        self.add_event, self.refresh, self.retell = projections.add_event, projections.refresh, projections.retell
        if opened.unwritten:
            self.refresh(lambda: {layout.MANIFEST: creation.manifest(self._start)})
        self._contest: asyncio.Lock | None = None
        self._healing: asyncio.Lock | None = None
        self._blob_locks: blobs.BlobLocks | None = None
        self._pending_move: runs.Transition | None = None
        self._ending = self._taken_unsynced = self._closed = self._aside = False

    def append_step(self, line: Mapping[str, plain.Json]) -> Awaitable[records.Record]:
        """Append a journal line, and return its record once the line is synced; then its events follow.

        Raises:
            errors.StorageFault: the line could not be made durable.
            errors.WrongState: the run has ended.
        """
        if self._ending or self.loaded.decisions.ended is not None:
            raise errors.WrongState(f"run {self.run_id} has ended; no step can follow", key=line.get("key"))
        if self._taken_unsynced:
            self._taken_unsynced = False
            self._control.begin_sync()
        # Only an output with fields answers a gate or records an order.
        output = line.get("output")
        fields = output if isinstance(output, dict) else None
        line = {**line, "event": (number := self._events.next)}
        numbers = 1 if fields is None else journal_lines.most_events(fields)
        self._events.next, self._events.held[number] = number + numbers, None
        appended = self._steps.append(plain.encode(line), line=line)
        if fields is None or not run_orders.may_be_order(fields):
            return appended
        return self._with_order(appended, lambda record: run_orders.of_record(self.run_id, self._start, record))

    async def decide(
        self, kind: DecisionKind, facts: Mapping[str, plain.Json], *, sync: bool = True, at: str | None = None
    ) -> bool:
        """Append a control line and apply it; of several cancels or endings, the first one wins.

        Raises:
            errors.StorageFault: the line could not be made durable.
        """
        if kind in contests.CONTESTED:
            # In a task of its own: a cancelled caller must not admit the next line before its own is durable.
            contest = asyncio.ensure_future(self._contested(kind, facts))
            contest.add_done_callback(worker_threads.seen)
            return await asyncio.shield(contest)
        if self._ending or self.loaded.decisions.ended is not None:
            return False
        sync = sync or (kind is DecisionKind.TAKEN and not self._context.committer.has_commit_log)
        await self._append_decision(kind, facts, sync=sync, at=at)
        return True

    async def put_blob(self, content: bytes, *, text: bool) -> records.BlobRef:
        """Store an output in `blobs/`.

        Raises:
            errors.StorageFault: it could not be made durable.
        """
        return await worker_threads.uncut(self._put_blob(content, text=text))

    async def get_blob(self, blob: records.BlobRef) -> plain.Json:
        return await self._context.workers.run(lambda: blobs.value(self._context.disk, self.run_id, self._folder, blob))

    async def add_receipt(self, record: records.Record) -> None:
        """Queue the receipt of a tool execution; after a crash, the journal restores it."""
        self._projections.add_receipt(record)

    async def write_log(self, name: str, text: str) -> None:
        """Replace a text under `logs/`.

        Raises:
            errors.StorageFault: it could not be written.
        """
        await self._written(layout.LOGS, lambda: log_files.replace(self._context.disk, self._folder, name, text))

    async def append_log(self, name: str, text: str) -> None:
        """Append to a text under `logs/`.

        Raises:
            errors.StorageFault: it could not be written.
        """
        await self._written(layout.LOGS, lambda: log_files.append(self._context.disk, self._folder, name, text))

    def wait_for(self, fault: errors.Unreadable) -> None:
        self._context.read_faults.wait_for(self.run_id, fault)

    async def flush(self) -> None:
        """Write queued snapshots, events and receipts now.

        Raises:
            errors.StorageFault: they could not be written.
        """
        await self._projections.flush()

    async def move(self, transition: runs.Transition) -> None:
        """Apply a move to this run's row; if it cannot be written now, it is written later, so the row may lag behind.

        A row becomes finished only when the run's snapshots, events and receipts are durable: from then on the folder
        is not opened again.

        Raises:
            errors.StorageFault: the row must leave a finished state and could not be written.
        """
        ended = self.loaded.decisions.ended
        # An ending on disk counts, no matter which state the row has.
        since = _UNFINISHED if ended is not None and ended.status is transition.to else transition.since
        mine = dataclasses.replace(transition, run_id=self.run_id, since=transition.since | since)
        self._context.probes.reach("storage.move.before_row")
        try:
            if mine.to.finished:
                await self._projections.flush()
                if not self._context.committer.holds(self.run_id):
                    await self._projections.make_durable()
            index = self._context.index
            await (index.move_soon(mine) if mine.since <= _UNFINISHED else index.move(mine))
            if mine.to.finished:
                self._projections.publish_ending()
        except errors.StorageFault as fault:
            if not mine.since <= _UNFINISHED:
                raise
            _log.warning("a row is not written yet: %s", fault.message, extra={"run_id": self.run_id})
            self._pending_move = mine
            if mine.to.finished:
                row = census.row(self.run_id, self._start, self.loaded.decisions, self._data_directory_id, mine.facts)
                self._context.ended[self.run_id] = row.summary
        else:
            self._pending_move = None
            self._context.ended.pop(self.run_id, None)
        self._context.probes.reach("storage.move.after_row")

    @property
    def has_pending_move(self) -> bool:
        return self._pending_move is not None

    async def heal(self) -> None:
        """Continue each failed file from a fresh copy of its confirmed prefix.

        Raises:
            errors.StorageFault: the disk is still full.
        """
        # Even if the caller is cancelled: a late copy would undo writes that follow the next one.
        await worker_threads.uncut(self._heal())

    async def close(self) -> None:
        """Write all queued content and close the files; projections that cannot be written are rebuilt next time."""
        if self._closed:
            return
        self._closed = True
        if self._healing is not None:
            async with self._healing:
                pass
        self._control.begin_sync()
        await self._steps.close()
        await self._control.close()
        await self._write_pending_move()
        try:
            await self._projections.flush()
        except errors.StorageFault as fault:
            _log.warning("projections are left behind: %s", fault.message, extra={"run_id": self.run_id})
        finally:
            self._projections.close()
            if self.loaded.decisions.ended is not None:
                await log_files.put_away(self._context, self._folder)
            self._lock.release()
            self._released(self.run_id, self._journal_position() if self._aside else None)

    async def set_aside(self) -> None:
        """Close the log so that this process can later continue from the same position."""
        self._aside = True
        await self.close()

    def abandon(self) -> None:
        """Drop the files at once, like a killed process."""
        self._closed = True
        self._projections.close()
        self._steps.abandon()
        self._control.abandon()
        self._lock.release()

    async def read_events(self, after: int, most: int | None = None) -> list[events.Event]:
        """Return the next events with numbers above `after`, including queued ones."""
        return await self._projections.read_events(after, most)

    def holds_receipt(self, receipt_id: str) -> bool:
        """Return whether a receipt of this run exists, perhaps not written yet."""
        return self._projections.holds_receipt(receipt_id)

    def go_on(self, journal_position: JournalPosition) -> None:
        """Number events as if the folder had stayed open."""
        self._events.continue_from(self.loaded.decisions.taken, journal_position.event)

    async def _put_blob(self, content: bytes, *, text: bool) -> records.BlobRef:
        self._blob_locks = self._blob_locks or blobs.BlobLocks()
        reach = self._context.probes.reach
        async with self._blob_locks.hold(len(content)):
            return await self._written(
                blobs.FOLDER, lambda: blobs.put(self._context.disk, self._folder, content, text=text, reach=reach)
            )

    async def _heal(self) -> None:
        self._healing = self._healing or asyncio.Lock()
        async with self._healing:
            if self._closed:
                raise errors.StorageFault(f"{self._folder} is closed", detail={"file": self._folder})
            try:
                await self._context.committer.mend()
            except OSError as error:
                raise self._context.disk_health.failed(layout.COMMITS, error) from error
            await self._steps.heal()
            await self._control.heal()
            await self._write_pending_move()
            if not self._context.disk_health.free:
                await self._written(".room", lambda: disk_port.try_writing(self._context.disk, f"{self._folder}/.room"))

    # -- decisions

    async def _contested(self, kind: DecisionKind, facts: Mapping[str, plain.Json]) -> bool:
        self._contest = self._contest or asyncio.Lock()
        async with self._contest:
            if not contests.wins(self.loaded.decisions, kind, facts):
                return False
            if kind is DecisionKind.RESUMED:
                await self._resume(facts)
            elif kind is DecisionKind.ENDED:
                await self._end(facts)
            elif kind in contests.DOUBTED:
                await self._mark(kind, facts)
            else:
                await self._append_decision(kind, facts)
            return True

    async def _end(self, facts: Mapping[str, plain.Json]) -> None:
        self._ending = True
        try:
            await self._steps.drained()
            if self._steps.fault is not None:
                raise errors.StorageFault(self._steps.fault.message, detail=self._steps.fault.detail)
            counted = {**facts, "lines": self._steps.count, "head": self._steps.head}
            await self._append_decision(DecisionKind.ENDED, counted)
        finally:
            self._ending = False

    async def _resume(self, facts: Mapping[str, plain.Json]) -> None:
        overrides = dict(facts.get("overrides") or {})
        if self._start.run_id != self.run_id or self._start.data_directory_id != self._data_directory_id:
            overrides["data_directory_id"] = self._data_directory_id
        sent_on = {"resumed": True} if self.loaded.decisions.ended is not None else {}
        start = self._start.overridden(self.loaded.decisions.overrides | overrides | sent_on)
        # Before the line: a row may err only towards unfinished.
        await self._context.index.move(runs.Transition.queue(self.run_id, self._now()))
        await self._append_decision(DecisionKind.RESUMED, {**facts, "overrides": overrides})
        self.loaded = dataclasses.replace(self.loaded, start=start)
        await self._put_into_row(self._context.index.set_owner(self.run_id, start.owner), "the owner")

    async def _mark(self, kind: DecisionKind, facts: Mapping[str, plain.Json]) -> None:
        # Before the line: the folder of a run at rest is not read again, so its row must record that it may be
        # outdated.
        await self._context.index.doubt(self.run_id)
        await self._append_decision(kind, facts)
        start = self._start.overridden(self.loaded.decisions.overrides)
        self.loaded = dataclasses.replace(self.loaded, start=start)
        self._projections.start = start
        self._context.probes.reach("storage.label.before_row")
        if (owed := self._context.ended.get(self.run_id)) is not None:
            self._context.ended[self.run_id] = dataclasses.replace(owed, labels=start.labels, pinned=start.pinned)
        await self._put_into_row(self._context.index.relabel(self.run_id, start.labels, pinned=start.pinned), "labels")

    async def _put_into_row(self, writing: Awaitable[None], what: str) -> None:
        try:
            await writing
        except errors.StorageFault as fault:  # the line is kept
            _log.warning("missing in the row: %s: %s", what, fault.message, extra={"run_id": self.run_id})

    def _append_decision(
        self, kind: DecisionKind, facts: Mapping[str, plain.Json], *, sync: bool = True, at: str | None = None
    ) -> Awaitable[int]:
        # With the present number of lines of steps.jsonl, so that a loss of whole lines is detected.
        line = {"kind": kind._value_, "at": at or self._now(), "lines": self._steps.count, **facts}
        # A line that cannot be applied must not be written.
        decisions.check(line)
        # A pause that a person ordered gets its event when the run is paused.
        if kind in decisions.EVENTS and facts.get("reason") != decisions.PAUSED_BY_PERSON:
            if kind is DecisionKind.TAKEN:
                self._events.begin_block(self.loaded.decisions.taken + 1)
            line["event"] = number = self._events.next
            self._events.next, self._events.held[number] = number + 1, None
        appended = self._control.append(plain.encode(line), sync=sync, line=line)
        if "author" not in facts:
            return appended
        return self._with_order(appended, lambda at: run_orders.of_decision(self.run_id, self._start, at, line))

    async def _with_order(self, appended: Awaitable[T], order_of: Callable[[T], authors.RunOrder | None]) -> T:
        made = await appended
        order = order_of(made)
        await self._context.index.add_orders([order] if order is not None else [])
        return made

    def _fold(self, line: Mapping[str, plain.Json], position: int, _: dict[str, plain.Json]) -> int:
        self.loaded.decisions.apply(line)
        if line["kind"] == DecisionKind.TAKEN:
            self._control.lines_due = self._control.count
            self._taken_unsynced = True
            self._events.open_block(self.loaded.decisions.taken, self._control.synced)
        if "event" in line:
            # The line may not be durable; a new block then ensures that its number is not reused.
            self._events.sync = self._events.sync or not self._events.fresh
            event = decisions.event(self.run_id, line, self.loaded.decisions.taken, line["event"])
            self._projections.queue_events(event.seq, [event])
        return position

    def _journal_position(self) -> JournalPosition | None:
        if self._events.unwritten or self._events.held:
            return None
        return JournalPosition(steps=self._steps.count, control=self._control.count, event=self._events.next - 1)

    async def _write_pending_move(self) -> None:
        if self._pending_move is not None:
            await self.move(self._pending_move)

    def _now(self) -> str:
        return clock.stamp(self._context.clock.now())

    async def _written(self, name: str, job: Callable[[], T]) -> T:
        try:
            done = await self._context.workers.run(job)
        except OSError as error:
            raise self._context.disk_health.failed(f"{self._folder}/{name}", error) from error
        self._context.disk_health.succeeded()
        return done
