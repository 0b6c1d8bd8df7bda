"""The run store over a disk and an index, whatever these are."""

from __future__ import annotations

import abc
import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import errors
from app.domain import events, plain, receipts, records, runs
from app.domain import unreadable as unreadables
from app.engine import event_feed, probes, run_sums, spending, stores
from app.storage import layout
from app.storage.audit import AuditLog
from app.storage.committer import Committer, FileCommitter
from app.storage.disk import disk_port, worker_threads
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import Workers
from app.storage.documents import Documents
from app.storage.index import sums
from app.storage.issues import Issues
from app.storage.journal.commit_log import CommitLog
from app.storage.runs import creation
from app.storage.runs.admission import Admission
from app.storage.runs.archive import Archive
from app.storage.runs.commit_log_lock import CommitLogLock
from app.storage.runs.counting import RowCounting
from app.storage.runs.folder_log import FolderLog
from app.storage.runs.maintenance import Maintenance
from app.storage.runs.opener import Adopt, Opener
from app.storage.runs.rechecks import Rechecks
from app.storage.runs.reconciliation import Reconciliation
from app.storage.runs.store_parts import StoreParts
from app.storage.storage_context import StorageContext

if TYPE_CHECKING:
    from app.storage.plans import Plans

_log = logging.getLogger(__name__)


class DiskStore(abc.ABC):
    """`stores.RunStore` over whatever disk and index a subclass brings."""

    def __init__(self, adopt: Adopt | None) -> None:
        self._adopt = adopt
        self._found: StoreParts | None = None
        self._plans: Plans | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._stopping = threading.Event()
        self._serves = False
        self._hold: CommitLogLock | None = None
        self._counting: RowCounting | None = None

    async def start(self, *, serve: bool = True) -> None:
        """Bring the index up to date; as the service, also sweep what a crash left behind."""
        if self._found is not None:
            return
        self._serves = serve
        try:
            context, identity = self._prepare()
        except BaseException:
            self._release_log()
            raise
        self._stopping.clear()
        context.read_faults.begin(context.workers)
        try:
            self._found = await self._begin(context, identity)
        except BaseException:
            context.read_faults.end()
            context.committer.close()
            self._let_go()
            self._release_log()
            raise
        # A process may have died between a run's rename and the sync of its name.
        await context.workers.run(lambda: context.disk.sync_folder(layout.RUNS))
        if serve:
            await context.workers.run(lambda: creation.sweep(context.disk))
            await self.plans.tell_losses()
            self._sweep_soon()
            self._counting = RowCounting(context, identity)
            self._counting.begin()

    async def close(self) -> None:
        """Close all files and release all locks."""
        parts = self._found
        self._stopping.set()
        if parts is None:
            return
        parts.context.read_faults.end()
        if self._counting is not None:
            await self._counting.stop()
        await parts.admission.close()
        for log in list(parts.opener.logs.values()):
            await log.close()
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        try:
            await parts.context.committer.settle()
        except OSError as error:
            _log.error("the commit log is left for the next start: %s", error)
        parts.context.committer.close()
        await parts.context.index.close()
        self._found = self._plans = None
        self._release_log()
        self._let_go()

    def abandon(self) -> None:
        """Let go of everything as a killed process does."""
        parts, self._found, self._plans = self._found, None, None
        self._stopping.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._counting is not None:
            self._counting.abandon()
        self._let_go()
        self._release_log()
        if parts is not None:
            parts.context.read_faults.end()
            parts.admission.abandon()
            parts.opener.new_runs.let_go()
            parts.context.committer.close()
            for log in parts.opener.logs.values():
                log.abandon()

    async def __aenter__(self) -> DiskStore:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- runs

    async def create(
        self, start: runs.RunStart, *, exclusive: bool = False, taken_over: stores.TakenOver | None = None
    ) -> stores.Created:
        """Make an accepted run durable."""
        return await worker_threads.uncut(self._parts.admission.create(start, exclusive, taken_over))

    async def find_repeated(self, idempotency_key: str, request_sha256: str) -> str | None:
        """Return the run that an earlier request with this key made, or None."""
        return await self._parts.admission.find_repeated(idempotency_key, request_sha256)

    async def open(self, run_id: str) -> FolderLog:
        """Open a run for writing."""
        return await self._parts.opener.open(run_id)

    async def read(self, run_id: str) -> stores.Loaded:
        """Read a run without taking or changing it; its row follows its folder."""
        opener, found = self._parts.opener, await self._parts.context.index.get_run(run_id)
        doubted = found is not None and found.summary.error_code == errors.JournalCorrupt.default_code
        loaded = await opener.look(run_id, deep=doubted)
        if found is not None:
            await opener.rechecks.note_sound(found.summary, loaded)
        return loaded

    async def delete(self, run_id: str, *, spare_pinned: bool = False) -> None:
        """Put a finished run into the trash."""
        await worker_threads.uncut(self._delete(run_id, spare_pinned))

    async def has_space(self) -> bool:
        return await self._parts.admission.has_space()

    # -- the content of a run's folder

    async def read_blob(self, run_id: str, blob: records.BlobRef) -> plain.Json:
        return await self._parts.archive.blob(run_id, blob)

    async def read_events(self, run_id: str, after: int = 0, most: int | None = None) -> list[events.Event]:
        """Return the events numbered above `after`, or the next of them."""
        await self._parts.admission.show([run_id])
        return await self._parts.archive.events(run_id, after, most)

    async def read_log(self, run_id: str, name: str) -> bytes:
        return await self._parts.archive.log(run_id, name)

    async def read_log_part(self, run_id: str, name: str, offset: int, most: int) -> stores.LogPart:
        return await self._parts.archive.log_part(run_id, name, offset, most)

    async def list_logs(self, run_id: str) -> list[str]:
        return await self._parts.archive.log_names(run_id)

    async def read_snapshots(self, run_id: str) -> dict[str, plain.Json]:
        """Return run.json and cache.json as they stand."""
        await self._parts.admission.show([run_id])
        return await self._parts.archive.snapshots(run_id)

    # -- rows

    async def read_progress(self, run_ids: Sequence[str]) -> dict[str, stores.Progress]:
        """Return how far runs have come."""
        await self._parts.admission.show(run_ids)
        return await self._parts.archive.progress(run_ids)

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row; a folder that turned up since the start gets one."""
        return await self._parts.reconciliation.summary(run_id)

    def unreadable(self, run_id: str) -> unreadables.Unreadable | None:
        """Return the file of a run that cannot be read now."""
        return self._parts.context.read_faults.by_run().get(run_id)

    async def until_readable(self, run_id: str) -> None:
        """Wait until every file of a run that could not be read can be."""
        await self._parts.context.read_faults.until_readable(run_id)

    def lags(self, run_id: str) -> bool:
        """Return whether a run has ended though its row does not say so yet."""
        return run_id in self._parts.context.ended

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return runs, newest first."""
        found = await self._parts.reconciliation.list_runs(query)
        if await self._parts.opener.rechecks.check(found):
            found = await self._parts.reconciliation.list_runs(query)
        return found

    async def list_unfinished(self) -> list[stores.RunSummary]:
        """Return the runs that this service must continue, oldest first."""
        await self._parts.reconciliation.compare()
        found = [run for run in await self._parts.reconciliation.unread.list_unfinished() if run.owner == "service"]
        opener = self._parts.opener
        opener.settling.expect([run.run_id for run in found if run.run_id not in opener.logs])
        return found

    async def count_by_status(self) -> dict[str, int]:
        """Return how many runs are in each state that occurs."""
        return await self._parts.reconciliation.unread.count_by_status()

    @property
    def feed(self) -> event_feed.EventFeed:
        """Return the newest events of all runs."""
        return self._parts.context.feed

    @property
    def changes(self) -> int:
        """Return a number that rises whenever this process writes rows of runs."""
        return self._parts.context.index.changes

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        """Count runs, and add usage up but that of the runs that are aside."""
        await self._parts.reconciliation.once()
        return await self._parts.context.index.totals(since, aside)

    async def sum_usage(
        self, query: run_sums.UsageQuery, live: run_sums.Live
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        """Return sums of usage by name, and the total, with those of runs that execute now in place of their rows'."""
        await self._parts.reconciliation.once()
        return await sums.with_live(self._parts.context.index, query, live)

    async def spent(self, query: spending.SpentQuery) -> spending.Spent:
        """Return what runs have spent, as one moment shows it."""
        await self._parts.reconciliation.once()
        return await self._parts.context.index.spent(query)

    async def find_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return a receipt."""
        await self._parts.reconciliation.index_unread_receipts()
        return await self._parts.archive.receipt(receipt_id)

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[receipts.ListedReceipt]:
        """Return a page of receipts."""
        await self._parts.reconciliation.index_unread_receipts()
        return await self._parts.archive.list_receipts(query)

    async def prove_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        return await self._parts.archive.proven(receipt_id)

    @property
    def read_faults(self) -> ReadFaults:
        """Return the files that cannot be read now."""
        return self._parts.context.read_faults

    @property
    def checked_disk(self) -> disk_port.Disk:
        """Return what the runs lie on."""
        return self._parts.context.disk

    @property
    def issues(self) -> Issues:
        """Return the issues."""
        return self._parts.issues

    @property
    def audit(self) -> AuditLog:
        """Return the changes of what has no run's journal."""
        return self._parts.audit

    @property
    def plans(self) -> Plans:
        """Return the session plans."""
        context = self._parts.context
        if self._plans is None:
            from app.storage.plans import Plans

            self._plans = Plans(context)
        return self._plans

    def documents(self, folder: str) -> Documents:
        """Return the documents of a folder."""
        return Documents(self._parts.context, folder)

    # -- care

    @property
    def maintenance(self) -> Maintenance:
        """Return what checks and repairs runs."""
        return self._parts.maintenance

    @property
    def rechecks(self) -> Rechecks:
        """Return what notices that folders were changed."""
        return self._parts.opener.rechecks

    async def sweep(self) -> None:
        """Empty the trash; for the only process of a data directory, since the service does it by itself."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        await self._parts.maintenance.sweep(self._stopping.is_set)

    async def rebuild_index(self) -> dict[str, int]:
        """Make every row anew from the folders, and return how many there are."""
        return await self._parts.reconciliation.rebuild()

    @property
    def _parts(self) -> StoreParts:
        if self._found is None:
            raise errors.StorageFault("the store is closed")
        return self._found

    @abc.abstractmethod
    def _prepare(self) -> tuple[StorageContext, str]:
        """Return what logs share, and the identity of the data directory."""

    @abc.abstractmethod
    def _let_go(self) -> None:
        """Stop what `_prepare` started, finishing pending work."""

    async def _begin(self, context: StorageContext, identity: str) -> StoreParts:
        hold = self._hold
        assert hold is not None
        recovered = await hold.recover(context)
        index_is_new = await context.index.start()
        parts = self._assembled(context, identity, index_is_new=index_is_new)
        await parts.reconciliation.doubt(recovered.suspects, recovered.parked)
        await hold.drop(context, recovered)
        hold.let_others_in()
        return parts

    def _assembled(self, context: StorageContext, identity: str, *, index_is_new: bool) -> StoreParts:
        issues = Issues(context)
        reconciliation = Reconciliation(context, identity, issues, index_is_new=index_is_new, serves=self._serves)
        opener = Opener(context, identity, self._adopt, reconciliation.renew)
        return StoreParts(
            context=context,
            identity=identity,
            reconciliation=reconciliation,
            admission=Admission(context, identity, reconciliation, opener.new_runs),
            opener=opener,
            archive=Archive(context, opener.logs),
            maintenance=Maintenance(context, opener, reconciliation),
            issues=issues,
            audit=AuditLog(context),
        )

    def _make_committer(
        self, files: disk_port.Disk, commits: Workers, others: Workers, points: probes.Probes
    ) -> Committer:
        self._hold = CommitLogLock(files, serves=self._serves)
        return CommitLog(files, commits, others, points) if self._hold.writes else FileCommitter(commits, points)

    def _release_log(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    async def _delete(self, run_id: str, spare_pinned: bool) -> None:
        await self._parts.maintenance.delete(run_id, spare_pinned=spare_pinned)
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        if self._serves and (self._sweeping is None or self._sweeping.done()):
            sweeping = self._parts.maintenance.sweep(self._stopping.is_set)
            self._sweeping = asyncio.create_task(sweeping, name="sweep the trash")
