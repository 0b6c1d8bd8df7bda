"""
The opener: takes a run's folder for writing, adopts one that was written by hand, and declares a damaged one failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from app import clock, errors
from app.engine import events, plain, runs, states, stores, views
from app.storage import adoption, authority, census, chain, damage, disk, layout, opening
from app.storage.bookmarks import Bookmark
from app.storage.disk import Lock
from app.storage.events_book import BLOCK, EventsBook
from app.storage.folder_log import FolderLog
from app.storage.means import Means
from app.storage.nursery import Nursery
from app.storage.opening import Opening

_log = logging.getLogger(__name__)

Adopt: TypeAlias = Callable[[Mapping[str, plain.Json]], Awaitable[runs.RunStart]]
"""Makes the start of a run from the run.json of a folder written by hand: looks its recipe up and freezes it."""


class Opener:
    """
    Open runs for writing, and know which are open here.
    """

    def __init__(self, means: Means, identity: str, adopt: Adopt | None, ended: dict[str, stores.RunSummary]) -> None:
        self._means, self._identity, self._adopt, self._ended = means, identity, adopt, ended
        self.logs: dict[str, FolderLog] = {}
        """Runs open in this store."""
        self._closings: set[asyncio.Future[None]] = set()
        self._bookmarks: dict[str, Bookmark] = {}
        self.nursery = Nursery()
        """New runs, which need not be read."""

    async def open(self, run_id: str) -> FolderLog:
        """
        Take a run's folder for writing.

        Raises:
            errors.NotFound, errors.Conflict, errors.JournalCorrupt: as the port says.
            errors.StorageFault: the disk refused a repair.
        """
        if (newborn := await self.nursery.take(run_id)) is not None:
            if opening.is_as_made(self._means.disk, newborn.authority):
                log = self.logs[run_id] = FolderLog(newborn, self._means, self._identity, self._forget)
                return log
            newborn.lock.release()
        # In a task of its own: a caller that is cut off must not leave a folder held.
        task = asyncio.ensure_future(self._open(run_id))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._let_go)
            raise

    async def look(self, run_id: str) -> stores.Loaded:
        """
        Read a run without taking or changing it.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as the port says.
        """
        try:
            return await self._means.workers.run(lambda: authority.read(self._means.disk, run_id).loaded())
        except errors.NotFound:
            found, start = await self._by_hand(run_id)
        converted = adoption.convert(found, start, self._now(), inline=True)
        anchor = plain.labelled_sha256(converted.start)
        steps, control = chain.read(converted.steps, anchor), chain.read(converted.control, anchor)
        return authority.judge(run_id, start, steps, control).loaded()

    async def _open(self, run_id: str) -> FolderLog:
        try:
            bookmark = self._bookmarks.get(run_id)
            lock, found = await self._means.workers.run(lambda: self._enter(run_id, bookmark))
            return await self._begin(run_id, lock, found)
        except errors.JournalCorrupt as error:
            await self._declare_failed(run_id, error)
            raise
        except errors.Unreadable as fault:
            self._means.read_faults.wait_for(run_id, fault)
            raise
        except OSError as error:
            raise self._means.room.failed(layout.run_folder(run_id), error) from error

    async def _begin(self, run_id: str, lock: Lock, found: Opening | None) -> FolderLog:
        adopted: adoption.Found | None = None
        try:
            if found is None:
                adopted = await self._adopt_folder(run_id)
                found = await self._means.workers.run(lambda: opening.prepare(self._means, run_id, lock))
            log = self.logs[run_id] = FolderLog(found.opened, self._means, self._identity, self._forget)
            self._bookmarks.pop(run_id, None)
            if found.bookmark is not None:
                log.go_on(found.bookmark)
            await self._complete(log, found, adopted)
        except BaseException:
            if (opened := self.logs.pop(run_id, None)) is not None:
                opened.abandon()
            lock.release()
            raise
        return log

    async def _complete(self, log: FolderLog, found: Opening, adopted: adoption.Found | None) -> None:
        for untold in found.untold:
            log.add_event(untold.type, untold.key, untold.data)
        if adopted is not None:
            told = {"lines": len(adopted.kept), "dropped": adopted.dropped}
            log.add_event(events.EventType.RECOVERY_ADOPTED, None, told)
        for record in found.unproven:
            await log.add_receipt(record)
        await self._means.index.add_receipts(found.places)

    def _forget(self, run_id: str, bookmark: Bookmark | None = None) -> None:
        self.logs.pop(run_id, None)
        self._means.read_faults.forget(run_id)
        # Its row is up to date by now.
        self._ended.pop(run_id, None)
        if bookmark is not None:
            self._bookmarks[run_id] = bookmark

    def _let_go(self, task: asyncio.Future[FolderLog]) -> None:
        if not task.cancelled() and task.exception() is None:
            closing = asyncio.ensure_future(task.result().close())
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)

    def _enter(self, run_id: str, bookmark: Bookmark | None) -> tuple[Lock, Opening | None]:
        # In one job, since a hop costs as much as the opening of a short run.
        lock = opening.take(self._means.disk, run_id)
        try:
            if self._means.disk.has_file(f"{layout.run_folder(run_id)}/{layout.START}"):
                if bookmark is not None:
                    return lock, opening.reopen(self._means, run_id, lock, bookmark)
                return lock, opening.prepare(self._means, run_id, lock)
            authority.refuse_lost_start(self._means.disk, run_id)
        except BaseException:
            lock.release()
            raise
        return lock, None

    # -- adoption

    async def _adopt_folder(self, run_id: str) -> adoption.Found:
        try:
            found, start = await self._by_hand(run_id)
        except errors.RequestInvalid as refusal:
            await self._means.index.move(runs.Transition.pause(run_id, self._now(), refusal.code))
            raise
        converted = adoption.convert(found, start, self._now())
        files, reach = self._means.disk, self._means.probes.reach
        await self._means.workers.run(lambda: adoption.write(files, run_id, converted, reach))
        row = await self._means.workers.run(lambda: census.row_of(files, run_id, self._identity))
        if row is not None:
            await self._means.index.put_run(row)
        return found

    async def _by_hand(self, run_id: str) -> tuple[adoption.Found, runs.RunStart]:
        found = await self._means.workers.run(lambda: adoption.find(self._means.disk, run_id))
        if self._adopt is None:
            raise damage.corrupt(run_id, layout.START, "is missing, and nobody here can adopt the folder")
        made, told = await self._adopt(found.manifest), census.start_of(found.manifest, run_id)
        start = dataclasses.replace(
            made,
            run_id=run_id,
            created_at=told.created_at,
            session_id=told.session_id or made.session_id,
            idempotency_key=None,
            request_sha256=None,
            owner="service",
            data_directory_id=self._identity,
            adopted=True,
        )
        return found, start

    # -- damage

    async def _declare_failed(self, run_id: str, error: errors.JournalCorrupt) -> None:
        ending = runs.Transition.end(run_id, states.RunState.FAILED, self._now(), error.code)
        if not await self._means.index.move(ending):
            return
        _log.error("run parked: %s", error.message, extra={"run_id": run_id, "code": error.code})
        with contextlib.suppress(OSError):
            await self._means.workers.run(lambda: self._show_failed(run_id, error))

    def _show_failed(self, run_id: str, error: errors.JournalCorrupt) -> None:
        files, folder = self._means.disk, layout.run_folder(run_id)
        written = opening.read_written(files, run_id)
        book = EventsBook(run_id, written, written.last // BLOCK)
        book.add(self._now(), events.EventType.RECOVERY_CORRUPT, None, error.detail)
        content = b"".join(line for _, line in book.take()[0])
        disk.append_whole(files, f"{folder}/{layout.EVENTS}", content, sync=True)
        at = self._now()
        manifest = self._manifest(run_id, at)
        manifest |= {"status": states.RunState.FAILED.value, "phase": None, "error": error.to_json()}
        manifest |= {"updated_at": at, "completed_at": at}
        disk.replace(files, f"{folder}/{layout.MANIFEST}", plain.encode(manifest) + b"\n", sync=False)

    def _manifest(self, run_id: str, at: str) -> dict[str, plain.Json]:
        with contextlib.suppress(FileNotFoundError):
            return _parsed(self._means.disk.read(f"{layout.run_folder(run_id)}/{layout.MANIFEST}"))
        with contextlib.suppress(errors.JournalCorrupt):
            start, _ = authority.read_start(self._means.disk, run_id)
            return views.manifest(views.RunView(start=start, status=states.RunState.FAILED, updated_at=at))
        return {}

    def _now(self) -> str:
        return clock.stamp(self._means.clock.now())


def _parsed(content: bytes) -> dict[str, plain.Json]:
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
