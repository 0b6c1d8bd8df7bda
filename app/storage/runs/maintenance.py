"""Maintenance of runs that do not execute, and of those in the trash."""

from __future__ import annotations

from collections.abc import Callable

from app import clock, errors
from app.engine import maintenance_port
from app.storage import layout
from app.storage.disk import worker_threads
from app.storage.disk.disk_port import Disk
from app.storage.index.index_port import ReceiptPlace
from app.storage.runs import authority, deletion, transfer
from app.storage.runs.inspection import Inspection
from app.storage.runs.opener import Opener
from app.storage.runs.reconciliation import Reconciliation
from app.storage.storage_context import StorageContext


class Maintenance(Inspection):
    """Deletes, repairs, copies and sweeps the folders of runs."""

    def __init__(self, context: StorageContext, opener: Opener, reconciliation: Reconciliation) -> None:
        super().__init__(context)
        self._opener = opener
        self._reconciliation = reconciliation

    async def delete(self, run_id: str, *, spare_pinned: bool = False) -> None:
        """Move a finished run into the trash."""
        context = self._context
        self._opener.new_runs.let_go(run_id)
        lock = await context.workers.run(lambda: authority.lock_run(context.disk, run_id))
        try:
            await context.workers.run(lambda: _refuse_unfinished(context, run_id))
            if spare_pinned:
                await context.workers.run(lambda: _refuse_pinned(context, run_id))
            # The positions of its receipts must be indexed first, since its folder no longer shows them afterwards.
            await context.index.flush()
            await context.workers.run(lambda: deletion.put_away(context, run_id))
        except OSError as error:
            raise context.disk_health.failed(layout.run_folder(run_id), error) from error
        finally:
            lock.release()
        context.probes.reach("storage.delete.before_row")
        await context.index.remove_run(run_id)
        context.ended.pop(run_id, None)
        context.probes.reach("storage.delete.after_row")

    async def repair(self, run_id: str, *, dry_run: bool = False) -> maintenance_port.Repaired:
        """Keep the sound part of a run and leave it paused, or only report that; a repair that has begun finishes."""
        if dry_run:
            return await super().repair(run_id, dry_run=True)
        return await worker_threads.uncut(self._repair(run_id))

    async def collect(self, older_than_seconds: int, *, dry_run: bool) -> maintenance_port.Collected:
        """Remove, or only count, objects that no line of a run names."""
        from app.storage.runs import collection

        before = clock.before(self._context.clock.now(), older_than_seconds)
        opened = frozenset(self._opener.logs)
        counts = await self._context.workers.run(
            lambda: collection.collect(self._context, opened, before, dry_run=dry_run)
        )
        return {**counts, "older_than_seconds": older_than_seconds}

    async def show(self, run_id: str) -> None:
        """Write the snapshots of a run now, if it is open in this store."""
        log = self._opener.logs.get(run_id)
        if log is not None:
            await log.flush()

    async def export(self, run_id: str, target: Disk) -> bool:
        """Copy a run to another disk, and return whether it is new there."""
        source, reach = self._context.disk, self._context.probes.reach

        def copy() -> bool:
            is_new = transfer.copy(source, target, run_id, reach)
            transfer.copy_receipts(source, target, run_id)
            return is_new

        return await self._context.workers.run(copy)

    async def bring_in(self, run_id: str, source: Disk) -> bool:
        """Copy a run from another disk, index it, and return whether it is new here."""
        context, reach = self._context, self._context.probes.reach

        def copy() -> tuple[bool, list[ReceiptPlace]]:
            is_new = transfer.copy(source, context.disk, run_id, reach)
            return is_new, transfer.copy_receipts(source, context.disk, run_id)

        try:
            is_new, places = await context.workers.run(copy)
        except OSError as error:
            raise context.disk_health.failed(layout.run_folder(run_id), error) from error
        # The index may have a row from before, of a run that was in the folders of this data directory.
        await (self._reconciliation.renew if is_new else self._reconciliation.add_missing_row)(run_id)
        await context.index.add_receipts(places)
        return is_new

    async def sweep(self, stopping: Callable[[], bool]) -> None:
        """Empty the trash."""
        await deletion.sweep(self._context, stopping)

    async def _repair(self, run_id: str) -> maintenance_port.Repaired:
        from app.storage.runs import repair

        context = self._context
        self._opener.new_runs.let_go(run_id)
        lock = await context.workers.run(lambda: authority.lock_run(context.disk, run_id))
        try:
            await context.committer.checkpoint(run_id)
            outcome = await context.workers.run(lambda: repair.repair(context, run_id))
            await self._reconciliation.renew(run_id)
        except OSError as error:
            raise context.disk_health.failed(layout.run_folder(run_id), error) from error
        finally:
            lock.release()
        return outcome


def _refuse_pinned(context: StorageContext, run_id: str) -> None:
    # While the run is locked, so that it cannot be pinned between the check and the removal.
    if authority.read(context.disk, run_id).loaded().start.pinned:
        raise errors.Conflict(f"run {run_id} is pinned; it is kept", code="run_pinned", detail={"run_id": run_id})


def _refuse_unfinished(context: StorageContext, run_id: str) -> None:
    try:
        status = deletion.status(context.disk, run_id)
    except errors.JournalCorrupt:
        return
    if not status.finished:
        message = f"run {run_id} is {status.value}; only a finished run can be deleted"
        raise errors.WrongState(message, detail={"run_id": run_id, "status": status.value})
