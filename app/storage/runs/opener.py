"""The opener: locks a run's folder for writing, adopts one written by hand, and declares a damaged run failed."""

from __future__ import annotations

import asyncio
import logging

from app import clock, errors
from app.domain import decisions, events, runs
from app.engine import missing_lines
from app.storage import layout
from app.storage.disk.disk_port import Lock
from app.storage.runs import adoption, authority, census, kept_runs, opening
from app.storage.runs import missing_lines as missing
from app.storage.runs.creation import NewRuns
from app.storage.runs.folder_log import FolderLog
from app.storage.runs.joint_sync import JointSync
from app.storage.runs.kept_runs import KeptRun, KeptRuns
from app.storage.runs.opened_run import JournalPosition
from app.storage.runs.opening import FoundRun
from app.storage.runs.rechecks import Rechecks
from app.storage.runs.run_folders import RunFolders
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)


class Opener:
    """Opens runs for writing, and records which ones are open in this store.

    Args:
        folders: Reads folders that were written by hand.
        logs: The runs that are open in this store.
        rechecks: Updates rows of folders that others have changed.
    """

    def __init__(
        self,
        context: StorageContext,
        identity: str,
        folders: RunFolders,
        logs: dict[str, FolderLog],
        rechecks: Rechecks,
    ) -> None:
        self._context = context
        self._identity = identity
        self._folders = folders
        self.logs = logs
        """Runs that are open in this store."""
        self._rechecks = rechecks
        self.joint_sync = JointSync(context)
        """Makes runs durable that an earlier process left."""
        self._closings: set[asyncio.Future[None]] = set()
        self._journal_positions: dict[str, JournalPosition] = {}
        self.kept = KeptRuns()
        """Content of runs that were set aside."""
        self.new_runs = NewRuns(context)
        """New runs, which need not be read."""

    async def open(self, run_id: str) -> FolderLog:
        """Lock a run's folder for writing.

        Raises:
            errors.NotFound, errors.Conflict, errors.JournalCorrupt: as `stores.RunStore.open`.
            errors.StorageFault: the disk refuses a repair.
        """
        if (new_run := await self.new_runs.pop(run_id)) is not None:
            if opening.is_as_made(self._context.disk, new_run.authority):
                log = self.logs[run_id] = FolderLog(new_run, self._context, self._identity, self._forget)
                return log
            # The folder has changed since, so it is read like any other.
            new_run.lock.release()
        # In a task of its own: a cancelled caller must not leave a folder locked.
        task = asyncio.ensure_future(self._open(run_id))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._let_go)
            raise

    async def _open(self, run_id: str) -> FolderLog:
        try:
            journal_position = self._journal_positions.get(run_id)
            durable = await self.joint_sync.covers(run_id)
            kept_run = self.kept.pop(run_id)
            async with self._rechecks.turns.of(run_id):
                lock, folder = await self._context.workers.run(
                    lambda: self._enter(run_id, journal_position, durable, kept_run)
                )
            return await self._begin(run_id, lock, folder)
        except errors.JournalCorrupt as error:
            await self._rechecks.declare_failed(run_id, error)
            raise
        except errors.Unreadable as fault:
            self._context.read_faults.wait_for(run_id, fault)
            raise
        except OSError as error:
            raise self._context.disk_health.failed(layout.run_folder(run_id), error) from error

    async def _begin(self, run_id: str, lock: Lock, folder: FoundRun | None) -> FolderLog:
        adopted: adoption.Found | None = None
        try:
            if folder is None:
                adopted = await self._adopt_folder(run_id)
                folder = await self._context.workers.run(lambda: opening.prepare(self._context, run_id, lock))
            log = self.logs[run_id] = FolderLog(folder.opened, self._context, self._identity, self._forget)
            self._journal_positions.pop(run_id, None)
            self.kept.begin(folder, self._context.disk)
            if folder.journal_position is not None:
                log.go_on(folder.journal_position)
            await self._complete(log, folder, adopted)
        except BaseException:
            # On cancellation, too: a remaining lock would block the run until this process ends.
            if (log_so_far := self.logs.pop(run_id, None)) is not None:
                log_so_far.abandon()
            lock.release()
            raise
        return log

    async def _complete(self, log: FolderLog, folder: FoundRun, adopted: adoption.Found | None) -> None:
        log.retell(folder.untold)
        if adopted is not None:
            counts = {"lines": len(adopted.kept), "dropped": adopted.dropped}
            log.add_event(events.EventType.RECOVERY_ADOPTED, None, counts)
        # Receipts follow their lines, so a crash may separate them; the journal has all of their content.
        for record in folder.without_receipt:
            await log.add_receipt(record)
        if (lost := log.loaded.missing) is not None and missing.parks(log.loaded.decisions):
            await self._pause(log, lost)
        await self._context.index.add_receipts(folder.places)
        await self._context.index.add_orders(folder.orders)

    async def _pause(self, log: FolderLog, lost: missing_lines.MissingLines) -> None:
        # Lists already show the run as paused; from now on its journal does so, too.
        line = missing.pause(lost, log.run_id, self._now())
        facts = {name: line[name] for name in ("reason", "error")}
        log.add_event(events.EventType.RECOVERY_LINES_MISSING, None, lost.error(log.run_id).detail)
        await log.decide(decisions.DecisionKind.PAUSED, facts)

    def _forget(self, run_id: str, journal_position: JournalPosition | None = None) -> None:
        log = self.logs.pop(run_id, None)
        self._context.read_faults.forget(run_id)
        if log is None or not log.has_pending_move:
            self._context.ended.pop(run_id, None)
        self.kept.set_aside(run_id, journal_position)
        if journal_position is not None:
            self._journal_positions[run_id] = journal_position

    def _let_go(self, task: asyncio.Future[FolderLog]) -> None:
        if not task.cancelled() and task.exception() is None:
            closing = asyncio.ensure_future(task.result().close())
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)

    def _enter(
        self, run_id: str, journal_position: JournalPosition | None, durable: bool, kept_run: KeptRun | None
    ) -> tuple[Lock, FoundRun | None]:
        # In one job, since a hop costs as much as the opening of a short run.
        lock = authority.lock_run(self._context.disk, run_id)
        try:
            if kept_run is not None and (folder := kept_runs.reopen(self._context, kept_run, lock)) is not None:
                return lock, folder
            if journal_position is not None:
                return lock, opening.reopen(self._context, run_id, lock, journal_position)
            return lock, opening.prepare(self._context, run_id, lock, durable=durable)
        except errors.NotFound:
            # The folder may have been written by hand.
            return lock, None
        except BaseException:
            lock.release()
            raise

    # -- adoption

    async def _adopt_folder(self, run_id: str) -> adoption.Found:
        try:
            by_hand, start = await self._folders.by_hand(run_id)
        except errors.RequestInvalid as refusal:
            await self._context.index.move(runs.Transition.pause(run_id, self._now(), refusal.code))
            raise
        converted = adoption.convert(by_hand, start, self._now())
        files, reach = self._context.disk, self._context.probes.reach
        await self._context.workers.run(lambda: adoption.write(files, run_id, converted, reach))
        row = await self._context.workers.run(lambda: census.row_of(files, run_id, self._identity))
        if row is not None:
            await self._context.index.put_run(row)
        return by_hand

    def _now(self) -> str:
        return clock.stamp(self._context.clock.now())
