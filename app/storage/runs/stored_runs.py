"""Stored runs: the reading half of the run store, over any disk and index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import errors
from app.domain import plain
from app.engine import stores
from app.storage.index import sums
from app.storage.issues import Issues
from app.storage.runs import missing_lines
from app.storage.runs.archive import Archive
from app.storage.runs.rechecks import Rechecks
from app.storage.runs.reconciliation import Reconciliation
from app.storage.runs.run_folders import RunFolders
from app.storage.storage_context import StorageContext

if TYPE_CHECKING:
    from app.domain import events, receipts, records
    from app.domain import unreadable as unreadables
    from app.engine import event_feed, run_sums, spending
    from app.storage.audit import AuditLog
    from app.storage.disk import disk_port
    from app.storage.disk.read_faults import ReadFaults
    from app.storage.document_files import Documents
    from app.storage.plans import Plans
    from app.storage.runs.folder_log import FolderLog
    from app.storage.runs.run_folders import Adopt
    from app.storage.runs.step_lines import StepLines


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadParts:
    """The parts of an open store."""

    context: StorageContext  # Shared parts of all logs.
    identity: str  # Identity of the data directory.
    reconciliation: Reconciliation  # Updates rows from folders.
    logs: dict[str, FolderLog]  # Runs that are open for writing in this store.
    folders: RunFolders  # Reads runs without locking them.
    rechecks: Rechecks  # Updates rows of folders that others have changed.
    archive: Archive  # Reads the folders of runs.
    issues: Issues  # Reads and changes issues.


def read_parts(
    context: StorageContext, identity: str, adopt: Adopt | None, *, index_is_new: bool, serves: bool
) -> ReadParts:
    """Return the parts that read."""
    logs: dict[str, FolderLog] = {}
    issues = Issues(context)
    reconciliation = Reconciliation(context, identity, issues, index_is_new=index_is_new, serves=serves)
    return ReadParts(
        context=context,
        identity=identity,
        reconciliation=reconciliation,
        logs=logs,
        folders=RunFolders(context, identity, adopt),
        rechecks=Rechecks(context, logs, reconciliation.renew),
        archive=Archive(context, logs),
        issues=issues,
    )


class StoredRuns:
    """Reads runs, their rows, and the files beside them."""

    def __init__(self, adopt: Adopt | None) -> None:
        self._adopt = adopt
        self._open_parts: ReadParts | None = None
        self._plans: Plans | None = None
        self._lines: StepLines | None = None
        self._audit: AuditLog | None = None

    # -- runs

    async def read(self, run_id: str) -> stores.Loaded:
        """Read a run without locking or changing it, and update its row from its folder."""
        parts, row = self._parts, await self._parts.context.index.get_run(run_id)
        doubted = row is not None and row.summary.error_code == errors.JournalCorrupt.default_code
        loaded = await parts.folders.read(run_id, deep=doubted)
        if row is not None:
            await parts.rechecks.note_sound(row.summary, loaded)
        return loaded

    async def read_lines(self, run_id: str, first: int, count: int) -> list[records.Record]:
        if self._lines is None:
            from app.storage.runs.step_lines import StepLines

            self._lines = StepLines(self._parts.context)
        return await self._lines.read(run_id, first, count)

    async def read_sound(self, run_ids: Sequence[str]) -> list[stores.Loaded]:
        """Read runs together, in one job; runs that need a repair or a person are left out."""
        disk = self._parts.context.disk
        sound = await self._parts.context.workers.run(lambda: [missing_lines.sound(disk, run_id) for run_id in run_ids])
        return [loaded for loaded in sound if loaded is not None]

    # -- the content of a run's folder

    async def read_blob(self, run_id: str, blob: records.BlobRef) -> plain.Json:
        return await self._parts.archive.blob(run_id, blob)

    async def read_events(self, run_id: str, after: int = 0, most: int | None = None) -> list[events.Event]:
        """Return the events with numbers above `after`, at most `most` of them."""
        await self._write_projections([run_id])
        return await self._parts.archive.events(run_id, after, most)

    async def read_log(self, run_id: str, name: str) -> bytes:
        return await self._parts.archive.log(run_id, name)

    async def read_log_part(self, run_id: str, name: str, offset: int, most: int) -> stores.LogPart:
        return await self._parts.archive.log_part(run_id, name, offset, most)

    async def list_logs(self, run_id: str) -> list[str]:
        return await self._parts.archive.log_names(run_id)

    async def read_snapshots(self, run_id: str) -> dict[str, plain.Json]:
        await self._write_projections([run_id])
        return await self._parts.archive.snapshots(run_id)

    # -- rows

    async def read_progress(self, run_ids: Sequence[str]) -> dict[str, stores.RunProgress]:
        await self._write_projections(run_ids)
        return await self._parts.archive.progress(run_ids)

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row; a folder that appeared since the start gets one."""
        return await self._parts.reconciliation.summary(run_id)

    def unreadable(self, run_id: str) -> unreadables.Unreadable | None:
        return self._parts.context.read_faults.by_run().get(run_id)

    async def until_readable(self, run_id: str) -> None:
        await self._parts.context.read_faults.until_readable(run_id)

    def lags(self, run_id: str) -> bool:
        return run_id in self._parts.context.ended

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        summaries = await self._parts.reconciliation.list_runs(query)
        if await self._parts.rechecks.check(summaries):
            summaries = await self._parts.reconciliation.list_runs(query)
        return summaries

    async def list_unfinished(self) -> list[stores.RunSummary]:
        await self._parts.reconciliation.compare()
        return [run for run in await self._parts.reconciliation.unread.list_unfinished() if run.owner == "service"]

    async def unfinished_under(self, key_prefix: str) -> list[str]:
        parts = self._parts
        await parts.reconciliation.once()
        await parts.reconciliation.unread.make_sure()
        unfinished = await parts.context.index.list_unfinished(key_prefix)
        return [run.run_id for run in unfinished if not self.lags(run.run_id)]

    async def count_by_status(self) -> dict[str, int]:
        """Return how many runs are in each state that occurs."""
        return await self._parts.reconciliation.unread.count_by_status()

    @property
    def feed(self) -> event_feed.EventFeed:
        return self._parts.context.feed

    @property
    def changes(self) -> int:
        return self._parts.context.index.changes

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        await self._parts.reconciliation.once()
        return await self._parts.context.index.totals(since, aside)

    async def sum_usage(
        self, query: run_sums.UsageQuery, live: run_sums.Live
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        await self._parts.reconciliation.once()
        return await sums.with_live(self._parts.context.index, query, live)

    async def spent(self, query: spending.SpentQuery) -> spending.Spent:
        await self._parts.reconciliation.once()
        return await self._parts.context.index.spent(query)

    async def find_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return a receipt."""
        await self._know_receipts()
        return await self._parts.archive.receipt(receipt_id)

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[receipts.ListedReceipt]:
        """Return a page of receipts."""
        await self._know_receipts()
        return await self._parts.archive.list_receipts(query)

    async def prove_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        return await self._parts.archive.prove_receipt(receipt_id)

    @property
    def read_faults(self) -> ReadFaults:
        """Return the record of files that cannot be read now."""
        return self._parts.context.read_faults

    @property
    def checked_disk(self) -> disk_port.Disk:
        return self._parts.context.disk

    @property
    def identity(self) -> str:
        """Return the identity that distinguishes the runs of this store from those of others."""
        return self._parts.identity

    @property
    def issues(self) -> Issues:
        """Return the issues."""
        return self._parts.issues

    @property
    def audit(self) -> AuditLog:
        """Return the changes outside of runs, and the orders to runs."""
        context = self._parts.context
        if self._audit is None:
            from app.storage.audit import AuditLog

            self._audit = AuditLog(context, self._parts.reconciliation.once)
        return self._audit

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
        from app.storage.document_files import Documents

        return Documents(self._parts.context, folder)

    @property
    def rechecks(self) -> Rechecks:
        """Return the checks for changed folders."""
        return self._parts.rechecks

    @property
    def _parts(self) -> ReadParts:
        if self._open_parts is None:
            raise errors.StorageFault("the store is closed")
        return self._open_parts

    async def _know_receipts(self) -> None:
        # A new index gets its receipts with the first comparison.
        await self._parts.reconciliation.once()
        await self._parts.reconciliation.index_unread_receipts()

    async def _write_projections(self, run_ids: Sequence[str]) -> None:
        """Write postponed projections of runs before they are read."""
