"""Admission: checks whether another run prevents a new one.

The search for the key or for other runs, and the creation, are one critical section.
"""

from __future__ import annotations

import logging

from app import errors, printable
from app.domain import plain, runs, states
from app.domain.concurrency import Concurrency
from app.engine import stores
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_health import fault_of
from app.storage.disk.worker_threads import AsyncFolderLock
from app.storage.index.index_port import IndexedRun
from app.storage.runs.creation import NewRuns
from app.storage.runs.reconciliation import Reconciliation
from app.storage.storage_context import StorageContext

_TRIAL = f"{layout.RUNS}/.room"
_NAMED = 20
_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)

_log = logging.getLogger(__name__)


class Admission:
    """Accepts new runs unless other runs prevent them."""

    def __init__(self, context: StorageContext, reconciliation: Reconciliation, new_runs: NewRuns) -> None:
        self._context = context
        self._reconciliation = reconciliation
        self._new_runs = new_runs
        self._locks = AsyncFolderLock(context.disk, layout.RUNS, context.workers)

    async def create(
        self, start: runs.RunStart, *, exclusive: bool, taken_over: stores.TakenOver | None
    ) -> stores.Created:
        """Make a run durable, unless its key belongs to a run or another run prevents it.

        Raises:
            errors.Conflict: `idempotency_conflict`, `recipe_busy` or `concurrency_limit`.
            errors.RunExists: another run has its id.
            errors.WriteFailed: the disk is full or failing.
        """
        # The lock is that of a folder, so it excludes other processes, too: of two requests with the same key to
        # different processes, only one may find no run.
        async with self._locks.hold():
            await self._reconciliation.once()
            existing = await self._repeated(start)
            if existing is not None:
                return stores.Created(run_id=existing, existed=True)
            if exclusive:
                await self._refuse_second(start.recipe_id)
            if start.concurrency is not None and start.concurrency.policy == "reject":
                await self._refuse_full(start, start.concurrency)
            return await self._new_runs.create(start, taken_over, flush_row=True)

    async def find_repeated(self, idempotency_key: str, request_sha256: str | None) -> str | None:
        """Return the run that a request with this key started, or None.

        Raises:
            errors.Conflict: `idempotency_conflict`.
        """
        # A crash between a run's folder and its row must not hide its key.
        await self._reconciliation.once()
        row = await self._context.index.find_key(idempotency_key)
        if row is None:
            await self._reconciliation.unread.make_sure()
            row = await self._context.index.find_key(idempotency_key)
        if row is None:
            return None
        if row.request_sha256 != request_sha256:
            raise _conflict(row)
        return row.summary.run_id

    async def write_fault(self) -> errors.StorageFault | None:
        """Return why writes fail; after a failure, try to write the pending rows and a small file."""
        disk_health = self._context.disk_health
        if not disk_health.rows_free:
            try:
                await self._context.index.flush()
            except errors.StorageFault as fault:
                return fault
        if not disk_health.free:
            try:
                await self._context.workers.run(lambda: disk_port.try_writing(self._context.disk, _TRIAL))
            except OSError as error:
                return fault_of(_TRIAL, error)
            disk_health.succeeded()
        return None

    async def _repeated(self, start: runs.RunStart) -> str | None:
        if start.idempotency_key is None:
            return None
        return await self.find_repeated(start.idempotency_key, start.request_sha256)

    async def _refuse_second(self, recipe_id: str) -> None:
        await self._reconciliation.unread.make_sure()
        busy = await self._context.index.find_busy(recipe_id)
        if busy is not None:
            message = f"run {busy} of {recipe_id} is not finished"
            raise errors.Conflict(message, code="recipe_busy", detail={"run_id": busy, "recipe_id": recipe_id})

    async def _refuse_full(self, start: runs.RunStart, wanted: Concurrency) -> None:
        await self._reconciliation.unread.make_sure()
        query = stores.RunQuery(concurrency_key=wanted.key, status=_UNFINISHED, limit=stores.PAGE)
        under_way = [run for run in await self._context.index.list_runs(query) if run.owner != "foreign"]
        busy = [run.run_id for run in reversed(under_way) if run.run_id != start.parent_run_id]
        if len(busy) >= wanted.limit:
            more = f" and {printable.counted(len(busy) - 1, 'more run')}" if len(busy) > 1 else ""
            message = f"run {busy[0]}{more} with the concurrency key {wanted.key!r} must end first"
            detail: dict[str, plain.Json] = {"key": wanted.key, "limit": wanted.limit, "run_id": busy[0]}
            raise errors.Conflict(message, code="concurrency_limit", detail=detail | {"run_ids": busy[:_NAMED]})


def _conflict(row: IndexedRun) -> errors.Conflict:
    run_id = row.summary.run_id
    message = f"the idempotency key belongs to another request, which made run {run_id}"
    return errors.Conflict(message, code="idempotency_conflict", detail={"run_id": run_id})
