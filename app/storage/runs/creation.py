"""Creation: builds a run's folder aside, moves it into place at once, and locks it until the run is opened."""

# With a commit log a new run's folder is not synced, so a power cut can leave any part of it. Under its final name a
# torn `start.json` could be a damaged accepted run, or one that was never acknowledged.
#
# So the folder is built aside, `start.json` is committed to the log, and only then is the folder renamed: whatever is
# in `runs/` was committed, and everything else is swept. A deleted or refused run stays in the trash until no segment
# mentions it, so that recovery does not recreate it. A new run stays locked until its first use, which usually follows
# at once.
#
# Cost: one file descriptor for each such run, at most 256.

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app import errors
from app.domain import events, plain, runs, states, views
from app.engine import aio, stores
from app.storage import layout
from app.storage.committer import Commit
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk, Lock
from app.storage.disk.worker_threads import Workers, settle
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun
from app.storage.journal import chain
from app.storage.runs import authority, deletion, events_file, inheritance
from app.storage.runs.events_file import Written
from app.storage.runs.opened_run import OpenedRun
from app.storage.storage_context import StorageContext

_FILES = (layout.START, layout.STEPS, layout.CONTROL)
_MOST_COMMITTED_BYTES = 256 * 1024
_PROJECTIONS_DELAY_SECONDS = 0.05
_CREATED_BYTES = 256  # Approximate length of the event; encoding it only to measure it would take longer than the rest.
_MOST_HELD = 256
"""Runs that stay locked between their creation and their opening; each costs a file descriptor."""

_CREATED = Written(last=1, counts={events.EventType.RUN_CREATED.value: 1})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewFolder:
    """The new folder of a run, built aside."""

    lock: Lock | None  # Lock of the folder.
    content: bytes  # start.json.
    durable: bool  # Whether it is synced and has its projections; otherwise it is still to be committed.

    def release(self) -> None:
        """Release the folder."""
        if self.lock is not None:
            self.lock.release()


def created(start: runs.RunStart) -> events.Event:
    """Return the first event of a run."""
    return events.Event(
        seq=1,
        at=start.created_at,
        type=events.EventType.RUN_CREATED.value,
        run_id=start.run_id,
        data={"recipe_id": start.recipe_id},
    )


def manifest(start: runs.RunStart) -> dict[str, plain.Json]:
    """Return the run.json of a run that has not begun yet."""
    return views.manifest(views.RunView(start=start, status=states.RunState.PENDING, updated_at=start.created_at))


@dataclass(slots=True)
class _NewRun:
    start: runs.RunStart
    anchor: str
    lock: Lock
    has_projections: bool

    def opened(self) -> OpenedRun:
        empty = chain.read(b"", self.anchor)
        return OpenedRun(
            authority=authority.judge(self.start.run_id, self.start, empty, empty),
            lock=self.lock,
            written=_CREATED,
            receipt_ids=frozenset(),
            unwritten=() if self.has_projections else (created(self.start),),
        )


class NewRuns:
    """Creates new runs, and keeps them locked and cached, since most are opened at once."""

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._unblocked: dict[str, asyncio.Future[None]] = {}
        self._held: dict[str, _NewRun] = {}
        self._background = aio.BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None

    async def create(
        self, start: runs.RunStart, taken_over: stores.TakenOver | None = None, *, flush_row: bool = False
    ) -> stores.Created:
        """Make a run durable.

        Args:
            taken_over: Finished steps of another run that the new run begins with.
            flush_row: Whether other processes must see its row when this returns.

        Raises:
            errors.RunExists: another run has its id.
            errors.WriteFailed: the disk is full or failing.
        """
        # From the rename on, the run can be found although its folder is still locked here. Its openers wait for the
        # end of this block; otherwise the run would seem to be locked by another process.
        with self._block_openers(start.run_id):
            new_folder = await self._build_aside(start, taken_over)
            try:
                await self._put_in_place(start.run_id, new_folder)
                row = await self._index(start, flush_row=flush_row)
            except BaseException:
                new_folder.release()
                raise
            # A fork is read from its folder, which contains the inherited steps.
            if taken_over is not None:
                new_folder.release()
            elif not self._keep(start, new_folder):
                await self._try_projections(start)
        self._write_projections_soon()
        return stores.Created(run_id=start.run_id, existed=False, summary=row.summary)

    async def write_projections(self, run_ids: Iterable[str] | None = None) -> None:
        """Write the projections of new runs that are not opened yet, once for each; None: of all."""
        for run_id in list(self._held) if run_ids is None else run_ids:
            held = await self._of(run_id)
            if held is not None and not held.has_projections:
                with self._block_openers(run_id):
                    held.has_projections = await self._try_projections(held.start)

    async def pop(self, run_id: str) -> OpenedRun | None:
        """Return a new run to its opener; None if it must be read from its folder."""
        held = await self._of(run_id)
        self._held.pop(run_id, None)
        return None if held is None else held.opened()

    def let_go(self, run_id: str | None = None) -> None:
        """Release a run that was not opened, or all such runs."""
        for name in [run_id] if run_id is not None else list(self._held):
            if (held := self._held.pop(name, None)) is not None:
                held.lock.release()

    def abandon(self) -> None:
        """Write nothing further, and release all new runs."""
        if self._timer is not None:
            self._timer.cancel()
        self._background.give_up()
        self.let_go()

    async def close(self) -> None:
        """Write the projections of all new runs, and release the runs."""
        await self.write_projections()
        self.abandon()

    @contextlib.contextmanager
    def _block_openers(self, run_id: str) -> Iterator[None]:
        """Make openers of the run wait until the block ends."""
        unblocked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unblocked[run_id] = unblocked
        try:
            yield
        finally:
            del self._unblocked[run_id]
            unblocked.set_result(None)

    async def _build_aside(self, start: runs.RunStart, taken_over: stores.TakenOver | None) -> _NewFolder:
        context = self._context
        workers = self._workers if taken_over is None else context.workers
        try:
            return await workers.run(lambda: _build(context, start, taken_over))
        except FileExistsError as error:
            message = f"there is a run {start.run_id} already"
            raise errors.RunExists(message, detail={"run_id": start.run_id}) from error
        except OSError as error:
            raise self._no_space(layout.new_folder(start.run_id), error) from error

    async def _put_in_place(self, run_id: str, new_folder: _NewFolder) -> None:
        context, folder = self._context, layout.run_folder(run_id)
        try:
            if not new_folder.durable:
                await self._commit(run_id, new_folder)
            # The run exists from here on, so its lines in the log were made durable before.
            await self._workers.run(lambda: _rename(context, run_id, folder))
            # While the log mentions the run, its folder is synced before the log is dropped.
            if not context.committer.holds(run_id):
                await context.workers.run(lambda: _make_durable(context, folder, new_folder))
        except OSError as error:
            await context.workers.run(lambda: deletion.discard_refused(context, run_id))
            raise self._no_space(folder, error) from error

    async def _commit(self, run_id: str, new_folder: _NewFolder) -> None:
        """Make an unsynced folder durable through the log."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        committer, folder = self._context.committer, layout.run_folder(run_id)
        # Mentioned under their names after the rename, where recovery looks for them.
        committer.mention(*[f"{folder}/{name}" for name in _FILES])
        commit = Commit(
            run_id=run_id,
            path=f"{folder}/{layout.START}",
            file=_UnsyncedFolder(self._context.disk, layout.new_folder(run_id)),
            offset=0,
            content=new_folder.content,
            points="storage.create",
        )
        committer.gather(lambda: committer.begin(commit, functools.partial(settle, committed, None)))
        await committed

    async def _index(self, start: runs.RunStart, *, flush_row: bool) -> IndexedRun:
        row = index_port.row_of(start, states.RunState.PENDING, start.created_at, name=start.run_id, owner=start.owner)
        self._context.probes.reach("storage.create.before_row")
        try:
            await self._context.index.put_run(row)
            if flush_row:
                # Before another process looks for the key.
                await self._context.index.flush()
        except errors.StorageFault as fault:
            # A caller that was refused must not find the run.
            await self._context.workers.run(lambda: deletion.discard_refused(self._context, start.run_id))
            with contextlib.suppress(errors.StorageFault):
                await self._context.index.remove_run(start.run_id)
            raise refusal(fault) from fault
        self._context.probes.reach("storage.create.after_row")
        self._context.feed.publish(start, [created(start)], _CREATED_BYTES)
        return row

    def _keep(self, start: runs.RunStart, new_folder: _NewFolder) -> bool:
        """Keep a new run locked and cached, within a limit.

        Returns:
            Whether its projections need not be written now.
        """
        if new_folder.lock is None:
            return new_folder.durable
        if len(self._held) >= _MOST_HELD:
            new_folder.lock.release()
            return new_folder.durable
        self._held[start.run_id] = _NewRun(
            start, plain.labelled_sha256(new_folder.content), new_folder.lock, has_projections=new_folder.durable
        )
        return True

    def _write_projections_soon(self) -> None:
        # A run that begins at once writes its projections only once, with those of its first steps.
        if self._timer is None and math.isfinite(self._context.throttle.first_seconds()):
            self._timer = asyncio.get_running_loop().call_later(_PROJECTIONS_DELAY_SECONDS, self._begin_projections)

    def _begin_projections(self) -> None:
        self._timer = None
        self._background.begin(self.write_projections(), "new runs")

    async def _try_projections(self, start: runs.RunStart) -> bool:
        context, folder = self._context, layout.run_folder(start.run_id)
        try:
            await context.quick_workers.run(lambda: _write_projections(context, start, folder))
        except OSError as error:
            # They are written when the run is opened.
            _log.warning("projections were not written: %s", error, extra={"run_id": start.run_id})
            return False
        return True

    async def _of(self, run_id: str) -> _NewRun | None:
        while (unblocked := self._unblocked.get(run_id)) is not None:
            await asyncio.shield(unblocked)
        return self._held.get(run_id)

    @property
    def _workers(self) -> Workers:
        # With a commit log, the remaining work for a new run does not wait for a disk.
        return self._context.quick_workers if self._context.committer.has_commit_log else self._context.workers

    def _no_space(self, path: str, error: OSError) -> errors.WriteFailed | errors.DatabaseAway:
        return refusal(self._context.disk_health.failed(path, error))


def refusal(fault: errors.StorageFault) -> errors.WriteFailed | errors.DatabaseAway:
    """Return the error for a run that cannot be created because of a fault."""
    return fault if isinstance(fault, errors.DatabaseAway) else errors.WriteFailed(detail=fault.detail)


class _UnsyncedFolder:
    def __init__(self, files: Disk, folder: str) -> None:
        self._files = files
        self._folder = folder

    def sync(self) -> None:
        for name in _FILES:
            disk_port.sync_file(self._files, f"{self._folder}/{name}")
        self._files.sync_folder(self._folder)


def _build(context: StorageContext, start: runs.RunStart, taken_over: stores.TakenOver | None) -> _NewFolder:
    """Build a run's folder aside.

    Both journals are created here, empty, so that their names are synced with the folder and never again.
    """
    files, reach = context.bare_disk, context.probes.reach
    folder, final = layout.new_folder(start.run_id), layout.run_folder(start.run_id)
    reach("storage.create.before_folder")
    lock = _lock_new_folder(files, folder)
    try:
        # Another process that created this run has given up or put its folder in place by now.
        if files.has_folder(final):
            raise FileExistsError(final)
        content = plain.encode(start.to_json()) + b"\n"
        large = taken_over is not None or len(content) > _MOST_COMMITTED_BYTES
        durable = large or not context.committer.has_commit_log
        if taken_over is not None:
            inheritance.write(context.disk, folder, content, taken_over, reach)
        _fill(context, folder, start, content, sync=durable, empty=taken_over is None)
    except BaseException as error:
        # Only a refusal is cleaned up. Any other exception counts as the end of the process, and the folder is left to
        # the next start, as after a kill.
        if isinstance(error, OSError | errors.StorageFault | errors.JournalCorrupt):
            with contextlib.suppress(OSError, errors.StorageFault):
                files.remove_tree(folder)
        if lock is not None:
            lock.release()
        raise
    return _NewFolder(lock=lock, content=content, durable=durable)


def _lock_new_folder(files: Disk, folder: str) -> Lock | None:
    # Locked, so that the start of a service does not sweep a folder that another process builds; before the lock, it
    # may. A folder that exists and is not locked remains from a failed attempt, and is reused.
    while True:
        is_new = files.add_folder(folder)
        with contextlib.suppress(FileNotFoundError):
            lock = files.lock(folder, wait=is_new)
            if lock is None and not is_new:
                raise FileExistsError(folder)
            if _is_there(files, folder, lock):
                return lock


def _is_there(files: Disk, folder: str, lock: Lock | None) -> bool:
    there = False
    try:
        there = files.has_folder(folder)
    finally:
        if lock is not None and not there:
            lock.release()
    return there


def _fill(
    context: StorageContext, folder: str, start: runs.RunStart, content: bytes, *, sync: bool, empty: bool
) -> None:
    files, reach = context.disk, context.probes.reach
    reach("storage.create.before_start")
    files.write(f"{folder}/{layout.START}", content, sync=sync)
    for name in (layout.STEPS, layout.CONTROL) if empty else (layout.CONTROL,):
        files.write(f"{folder}/{name}", b"", sync=False)
    if sync:
        _write_projections(context, start, folder)
        reach("storage.create.before_folder_sync")
        files.sync_folder(folder)


def _write_projections(context: StorageContext, start: runs.RunStart, folder: str) -> None:
    manifest_bytes, lines = plain.encode(manifest(start)) + b"\n", events_file.encoded(created(start))
    for name, content in ((layout.MANIFEST, manifest_bytes), (layout.EVENTS, lines)):
        context.disk.write(f"{folder}/{name}", content, sync=False)
        context.committer.mention(f"{layout.run_folder(start.run_id)}/{name}")


def _rename(context: StorageContext, run_id: str, folder: str) -> None:
    context.probes.reach("storage.create.before_rename")
    context.disk.rename(layout.new_folder(run_id), folder)


def _make_durable(context: StorageContext, folder: str, new_folder: _NewFolder) -> None:
    context.probes.reach("storage.create.before_runs_sync")
    if not new_folder.durable:
        _UnsyncedFolder(context.disk, folder).sync()
    context.disk.sync_folder(layout.RUNS)
