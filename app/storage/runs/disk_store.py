"""The run store over any disk and index."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import errors
from app.engine import event_feed, probes, shared_turns, stores
from app.storage import layout
from app.storage.committer import Committer, FileCommitter
from app.storage.disk import disk_port, worker_threads
from app.storage.journal.commit_log import CommitLog
from app.storage.runs import deletion, stored_runs
from app.storage.runs.admission import Admission
from app.storage.runs.commit_log_lock import CommitLogLock
from app.storage.runs.counting import RowCounting
from app.storage.runs.creation import refusal
from app.storage.runs.maintenance import Maintenance
from app.storage.runs.opener import Opener
from app.storage.runs.stored_runs import ReadParts, StoredRuns
from app.storage.storage_context import StorageContext

if TYPE_CHECKING:
    from app.domain import runs
    from app.storage.disk.worker_threads import Workers
    from app.storage.project_file import CommonFiles
    from app.storage.rate_document import RateDocument
    from app.storage.runs.folder_log import FolderLog
    from app.storage.runs.run_folders import Adopt

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreParts(ReadParts):
    """The parts of an open store that accepts runs."""

    admission: Admission  # Accepts new runs.
    opener: Opener  # Opens runs for writing.
    maintenance: Maintenance  # Checks and repairs runs.


class DiskStore(StoredRuns, abc.ABC):
    """`stores.RunStore` over the disk and index of a subclass."""

    leads: Callable[[], Awaitable[bool]] | None = None
    """Returns whether this service leads those that share the store; None: the store is not shared."""
    commit_listener: event_feed.CommitListener | None = None
    """Announces writes of other processes; None: the store is not shared."""
    common: CommonFiles | None = None  # Files that processes share besides runs; None: the directory's.
    turns: Callable[[str], shared_turns.SharedTurns] | None = None  # Turns by the folder held; None: one process.
    shared_rates: RateDocument | None = None  # Prompts of all processes that share the store; None: only one process.
    is_owned: Callable[[], Awaitable[bool]] | None = None
    """Returns whether a process on any machine owns the store; None: locks of the data directory show it."""
    clock_offset: Callable[[], Awaitable[float]] | None = None
    """Returns the seconds by which this machine's clock is ahead of the store's; None: the store has no clock."""

    def __init__(self, adopt: Adopt | None) -> None:
        super().__init__(adopt)
        self._open_parts: StoreParts | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._stopping = threading.Event()
        self._serves = False
        self._hold: CommitLogLock | None = None
        self._counting: RowCounting | None = None

    async def start(self, *, serve: bool = True) -> None:
        """Update the index; as the service, also sweep the remains of a crash."""
        if self._open_parts is not None:
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
            self._open_parts = await self._begin(context, identity)
        except BaseException:
            context.read_faults.end()
            context.committer.close()
            self._let_go()
            self._release_log()
            raise
        # A process may have died between the rename of a run and the sync of its name.
        await context.workers.run(lambda: context.disk.sync_folder(layout.RUNS))
        if serve:
            await context.workers.run(lambda: deletion.remove_unfinished(context.disk))
            await self.plans.log_losses()
            self._sweep_soon()
            self._counting = RowCounting(context, identity)
            self._counting.begin()

    async def close(self) -> None:
        """Close all files and release all locks."""
        parts = self._open_parts
        self._stopping.set()
        if parts is None:
            return
        parts.context.read_faults.end()
        if self._counting is not None:
            await self._counting.stop()
        # In this order: new runs and logs write rows as they close, and the sweep uses the committer.
        await parts.opener.new_runs.close()
        for log in list(parts.opener.logs.values()):
            await log.close()
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        try:
            await parts.context.committer.checkpoint()
        except OSError as error:
            _log.error("the commit log is left for the next start: %s", error)
        parts.context.committer.close()
        await parts.context.index.close()
        self._open_parts = self._plans = self._audit = self._lines = None
        self._release_log()
        self._let_go()

    def abandon(self) -> None:
        """Drop everything at once, like a killed process."""
        parts = self._open_parts
        self._open_parts = self._plans = self._audit = self._lines = None
        self._stopping.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._counting is not None:
            self._counting.abandon()
        self._let_go()
        self._release_log()
        if parts is not None:
            parts.context.read_faults.end()
            parts.opener.new_runs.abandon()
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
        return await worker_threads.uncut(self._create(start, exclusive, taken_over))

    async def find_repeated(self, idempotency_key: str, request_sha256: str) -> str | None:
        return await self._parts.admission.find_repeated(idempotency_key, request_sha256)

    async def open(self, run_id: str) -> FolderLog:
        """Open a run for writing."""
        return await self._parts.opener.open(run_id)

    async def delete(self, run_id: str, *, spare_pinned: bool = False) -> None:
        await worker_threads.uncut(self._delete(run_id, spare_pinned))

    async def write_fault(self) -> errors.StorageFault | None:
        return await self._parts.admission.write_fault()

    # -- rows

    async def list_unfinished(self) -> list[stores.RunSummary]:
        found, opener = await super().list_unfinished(), self._parts.opener
        opener.joint_sync.expect([run.run_id for run in found if run.run_id not in opener.logs])
        return found

    # -- maintenance

    @property
    def maintenance(self) -> Maintenance:
        """Return the checks and repairs of runs."""
        return self._parts.maintenance

    async def sweep(self) -> None:
        """Empty the trash; for the only process of a data directory, since a service does this on its own."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        await self._parts.maintenance.sweep(self._stopping.is_set)

    async def rebuild_index(self) -> dict[str, int]:
        """Rebuild every row from the folders, and return their number."""
        return await self._parts.reconciliation.rebuild()

    @property
    def _parts(self) -> StoreParts:
        if self._open_parts is None:
            raise errors.StorageFault("the store is closed")
        return self._open_parts

    @abc.abstractmethod
    def _prepare(self) -> tuple[StorageContext, str]:
        """Return the storage context, and the identity of the data directory."""

    @abc.abstractmethod
    def _let_go(self) -> None:
        """Stop what `_prepare` started, finishing pending work."""

    async def _begin(self, context: StorageContext, identity: str) -> StoreParts:
        hold = self._hold
        assert hold is not None
        # Before any other read: the log may contain lines that the files lack, and rows are compared with the files.
        recovered = await hold.recover(context)
        parts = self._assembled(context, identity, index_is_new=await context.index.start())
        await parts.reconciliation.doubt(recovered.suspects, recovered.parked)
        # Not before the suspects are recorded: after an earlier crash the same log is recovered again.
        await hold.drop(context, recovered)
        hold.let_others_in()
        return parts

    def _assembled(self, context: StorageContext, identity: str, *, index_is_new: bool) -> StoreParts:
        read = stored_runs.read_parts(context, identity, self._adopt, index_is_new=index_is_new, serves=self._serves)
        opener = Opener(context, identity, read.folders, read.logs, read.rechecks)
        return StoreParts(
            **{part.name: getattr(read, part.name) for part in dataclasses.fields(read)},
            admission=Admission(context, read.reconciliation, opener.new_runs),
            opener=opener,
            maintenance=Maintenance(context, opener, read.reconciliation),
        )

    async def _write_projections(self, run_ids: Sequence[str]) -> None:
        await self._parts.opener.new_runs.write_projections(run_ids)

    def _make_committer(
        self, files: disk_port.Disk, commits: Workers, others: Workers, points: probes.Probes
    ) -> Committer:
        self._hold = CommitLogLock(files, serves=self._serves)
        return CommitLog(files, commits, others, points) if self._hold.writes else FileCommitter(commits, points)

    def _release_log(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    async def _create(
        self, start: runs.RunStart, exclusive: bool, taken_over: stores.TakenOver | None
    ) -> stores.Created:
        parts, disk_health = self._parts, self._parts.context.disk_health
        start = dataclasses.replace(start, data_directory_id=parts.identity)
        layout.run_folder(start.run_id)
        fault = None if disk_health.free and disk_health.rows_free else await parts.admission.write_fault()
        if fault is not None:
            raise refusal(fault)
        # A process that counts the runs of a key must see all their rows, wherever the runs were created.
        if start.idempotency_key is None and not exclusive and start.concurrency is None:
            return await parts.opener.new_runs.create(start, taken_over)
        return await parts.admission.create(start, exclusive=exclusive, taken_over=taken_over)

    async def _delete(self, run_id: str, spare_pinned: bool) -> None:
        await self._parts.maintenance.delete(run_id, spare_pinned=spare_pinned)
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        if self._serves and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.create_task(self.maintenance.sweep(self._stopping.is_set), name="sweep the trash")
