"""Admission: how a run comes in. Looking its key up, `exclusive` and its creation are one critical section."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections.abc import Iterable

from app import errors
from app.domain import plain, runs, states
from app.domain.concurrency import Concurrency
from app.engine import aio, stores
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.worker_threads import FolderLock, Workers
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun
from app.storage.runs import creation
from app.storage.runs.creation import NewRuns
from app.storage.runs.reconciliation import Reconciliation
from app.storage.storage_context import StorageContext

_TRIAL = f"{layout.RUNS}/.room"
_SHOW_SECONDS = 0.05
_NAMED = 20
_CREATED_BYTES = 256  # About as long as the event is; to encode it only to measure it takes longer than the rest.
_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)

_log = logging.getLogger(__name__)


class Admission:
    """Take new runs in."""

    def __init__(
        self,
        context: StorageContext,
        identity: str,
        reconciliation: Reconciliation,
        new_runs: NewRuns,
    ) -> None:
        self._context = context
        self._identity = identity
        self._reconciliation = reconciliation
        self._new_runs = new_runs
        self._locks = FolderLock(context.disk, layout.RUNS, context.workers)
        self._shows = aio.BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None

    async def create(
        self, start: runs.RunStart, exclusive: bool, taken_over: stores.TakenOver | None = None
    ) -> stores.Created:
        """Make a run durable, unless its key finds one or another is in its way.

        Raises:
            errors.Conflict: `idempotency_conflict`, `recipe_busy` or `run_exists`.
            errors.DiskFull: the disk is full or failing.
        """
        start = dataclasses.replace(start, data_directory_id=self._identity)
        layout.run_folder(start.run_id)
        if not await self.has_space():
            raise errors.DiskFull
        rejects = start.concurrency is not None and start.concurrency.policy == "reject"
        if start.idempotency_key is None and not (exclusive or rejects):
            return await self._make(start, taken_over)
        async with self._locks.taken():
            await self._reconciliation.once()
            existing = await self._repeated(start)
            if existing is not None:
                return stores.Created(run_id=existing, existed=True)
            if exclusive:
                await self._refuse_second(start.recipe_id)
            if start.concurrency is not None and rejects:
                await self._refuse_full(start, start.concurrency)
            return await self._make(start, taken_over, shown=True)

    async def find_repeated(self, idempotency_key: str, request_sha256: str | None) -> str | None:
        """Return the run that a request with this key made, or None.

        Raises:
            errors.Conflict: `idempotency_conflict`.
        """
        # A crash between a run's folder and its row must not hide its key.
        await self._reconciliation.once()
        found = await self._context.index.find_key(idempotency_key)
        if found is None:
            await self._reconciliation.unread.make_sure()
            found = await self._context.index.find_key(idempotency_key)
        if found is None:
            return None
        if found.request_sha256 != request_sha256:
            raise _conflict(found)
        return found.summary.run_id

    async def has_space(self) -> bool:
        """Return whether writes come through; after a failure by writing a little, and the rows that wait."""
        disk_health = self._context.disk_health
        if not disk_health.rows_free:
            try:
                await self._context.index.settle()
            except errors.StorageFault:
                return False
        if not disk_health.free:
            try:
                await self._context.workers.run(lambda: disk_port.try_writing(self._context.disk, _TRIAL))
            except OSError:
                return False
            disk_health.succeeded()
        return True

    async def show(self, run_ids: Iterable[str] | None = None) -> None:
        """Write the projections of new runs that are not opened yet; None: of all."""
        await self._new_runs.show(self._show, run_ids)

    def abandon(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._shows.give_up()

    async def close(self) -> None:
        """Write the projections of new runs, and let go of them."""
        await self.show()
        self.abandon()
        self._new_runs.let_go()

    async def _show(self, start: runs.RunStart) -> bool:
        context, folder = self._context, layout.run_folder(start.run_id)
        try:
            await context.near.run(lambda: creation.show(context, start, folder))
        except OSError as error:
            # They are made when the run is opened.
            _log.warning("projections were not written: %s", error, extra={"run_id": start.run_id})
            return False
        return True

    def _show_soon(self) -> None:
        # A run that begins at once writes its projections once, with those of its first steps.
        if self._timer is None and math.isfinite(self._context.throttle.first_seconds()):
            self._timer = asyncio.get_running_loop().call_later(_SHOW_SECONDS, self._begin_to_show)

    def _begin_to_show(self) -> None:
        self._timer = None
        self._shows.begin(self.show(), "new runs")

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
        found = [run for run in await self._context.index.list_runs(query) if run.owner != "foreign"]
        busy = [run.run_id for run in reversed(found) if run.run_id != start.parent_run_id]
        if len(busy) >= wanted.limit:
            message = f"{len(busy)} runs with the concurrency key {wanted.key!r} are unfinished, {busy[0]} first"
            detail: dict[str, plain.Json] = {"key": wanted.key, "limit": wanted.limit, "run_id": busy[0]}
            raise errors.Conflict(message, code="concurrency_limit", detail=detail | {"run_ids": busy[:_NAMED]})

    async def _make(
        self, start: runs.RunStart, taken_over: stores.TakenOver | None, *, shown: bool = False
    ) -> stores.Created:
        with self._new_runs.birth(start.run_id):
            born = await self._built(start, taken_over)
            try:
                await self._put_in_place(start.run_id, born)
                row = await self._index(start, shown=shown)
            except BaseException:
                born.release()
                raise
            # What took steps over is read from its folder, where they are.
            if taken_over is not None:
                born.release()
            elif not self._new_runs.keep(start, born):
                await self._show(start)
        self._show_soon()
        return stores.Created(run_id=start.run_id, existed=False, summary=row.summary)

    async def _built(self, start: runs.RunStart, taken_over: stores.TakenOver | None) -> creation.Born:
        context = self._context
        workers = self._workers if taken_over is None else context.workers
        try:
            return await workers.run(lambda: creation.build(context, start, taken_over))
        except FileExistsError as error:
            message = f"there is a run {start.run_id} already"
            raise errors.Conflict(message, code="run_exists", detail={"run_id": start.run_id}) from error
        except OSError as error:
            raise self._no_space(layout.new_folder(start.run_id), error) from error

    async def _put_in_place(self, run_id: str, born: creation.Born) -> None:
        context = self._context
        try:
            if not born.durable:
                await self._commit(run_id, born)
            await self._workers.run(lambda: creation.put_in_place(context, run_id))
            # As long as the log holds the run, its folder is synced before the log is dropped.
            if not context.committer.holds(run_id):
                await context.workers.run(lambda: creation.make_durable(context, run_id, born))
        except OSError as error:
            await context.workers.run(lambda: creation.take_back(context, run_id))
            raise self._no_space(layout.run_folder(run_id), error) from error

    async def _commit(self, run_id: str, born: creation.Born) -> None:
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(error: BaseException | None) -> None:
            if committed.done():
                return
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)

        made = creation.commit(self._context, run_id, born)
        self._context.committer.gather(lambda: self._context.committer.begin(made, over))
        await committed

    @property
    def _workers(self) -> Workers:
        # Where commits are shared, the remaining work for a new run does not wait for a disk.
        return self._context.near if self._context.committer.shares else self._context.workers

    def _no_space(self, path: str, error: OSError) -> errors.DiskFull:
        return errors.DiskFull(detail=self._context.disk_health.failed(path, error).detail)

    async def _index(self, start: runs.RunStart, *, shown: bool) -> IndexedRun:
        row = index_port.row_of(start, states.RunState.PENDING, start.created_at, name=start.run_id, owner=start.owner)
        self._context.probes.reach("storage.create.before_row")
        try:
            await self._context.index.put_run(row)
            if shown:
                # Before another process looks for the key.
                await self._context.index.settle()
        except errors.StorageFault as fault:
            # A caller that got the refusal must not find the run there.
            await self._context.workers.run(lambda: creation.take_back(self._context, start.run_id))
            with contextlib.suppress(errors.StorageFault):
                await self._context.index.remove_run(start.run_id)
            raise errors.DiskFull(detail=fault.detail) from fault
        self._context.probes.reach("storage.create.after_row")
        created = creation.created(start)
        self._context.feed.publish(start, [created], _CREATED_BYTES)
        return row


def _conflict(found: IndexedRun) -> errors.Conflict:
    run_id = found.summary.run_id
    message = f"the idempotency key belongs to another request, which made run {run_id}"
    return errors.Conflict(message, code="idempotency_conflict", detail={"run_id": run_id})
