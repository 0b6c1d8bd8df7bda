"""Rechecks: trust a run at rest while its folder is unchanged, and update its row after a change.

Journals are written before the manifest that shows their last line. So if a file of the authority is newer than the
manifest, another writer has changed it, or a process died in between: then the folder is read again.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from app import clock, errors
from app.domain import decisions, events, plain, runs, states, views
from app.engine import aio, stores
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.index import index_port
from app.storage.runs import authority, census, events_file, missing_lines
from app.storage.runs.events_file import BLOCK
from app.storage.storage_context import StorageContext

_BELIEVED = 10_000
_PAUSE_FACTOR = 20  # Shortest pause between two checks of a growing run, as a multiple of the check's duration.
_FILES = (layout.START, layout.STEPS, layout.CONTROL)
_BLOBS = "blobs"
_CORRUPT = errors.JournalCorrupt.default_code

_log = logging.getLogger(__name__)

_Mark: TypeAlias = tuple[int, ...]


class Rechecks:
    """Updates the rows of folders that were changed while their run was at rest.

    Args:
        opened: Runs that are open in this store; they are trusted.
        renew: Rebuilds the row of a run from its folder.
    """

    def __init__(
        self, context: StorageContext, opened: Mapping[str, object], renew: Callable[[str], Awaitable[None]]
    ) -> None:
        self._context = context
        self._opened = opened
        self._renew = renew
        self._believed: OrderedDict[str, _Mark] = OrderedDict()
        self._doubted: dict[str, _Mark] = {}
        self._next_at: OrderedDict[str, float] = OrderedDict()
        self.turns = aio.KeyedLock()
        """Held while the folder of a run is locked for its row, so that its opening waits and is not refused."""

    async def touched(self, run_ids: Sequence[str]) -> list[str]:
        """Return the runs whose folders have changed after their manifest and have not been checked since."""
        resting = [run_id for run_id in run_ids if run_id not in self._opened]
        return await self._context.workers.run(lambda: [name for name in resting if self._is_touched(name)])

    async def check(self, rows: Sequence[stores.RunSummary]) -> bool:
        """Read the changed folders among these, and return whether a row has changed."""
        known, changed = {row.run_id: row for row in rows}, False
        for run_id in await self._context.workers.run(lambda: self._doubtful(rows)):
            # As long as the folder cannot be read, or no row be written, the old row is shown.
            with contextlib.suppress(errors.Unreadable, errors.StorageFault):
                if known[run_id].status != states.RunState.RUNNING and run_id in self._doubted:
                    changed |= await self._check(known[run_id])
                elif self._context.clock.monotonic() >= self._next_at.get(run_id, 0.0):
                    changed |= await self._check_growing(known[run_id])
        return changed

    async def check_run(self, run_id: str) -> None:
        """Update the row of a run at rest whose folder was changed."""
        if (row := await self._context.index.get_run(run_id)) is not None:
            await self.check([row.summary])

    async def note_sound(self, row: stores.RunSummary, found: stores.Loaded) -> None:
        """Update the row of a soundly read run from its folder."""
        if row.run_id not in self._opened and (row.error_code == _CORRUPT or _disagrees(row, found)):
            try:
                await self._renewed(row.run_id)
            except errors.StorageFault:
                return  # Rows cannot be written now, but folders can be read; the next list checks this one again.
        self._believe(row.run_id)

    async def declare_failed(self, run_id: str, error: errors.JournalCorrupt) -> bool:
        """Mark a damaged run as failed in its row, manifest and events; its authority is not changed."""
        row = await self._context.index.get_run(run_id)
        self._believe(run_id)
        if row is None or run_id in self._opened or _is_declared(row.summary):
            return False
        async with self._held(run_id) as lock:
            if lock is None:
                return False
            moved = runs.Transition(
                run_id=run_id,
                to=states.RunState.FAILED,
                since=frozenset(states.RunState),
                at=self._now(),
                error_code=error.code,
            )
            try:
                await self._context.index.move(moved)
            except errors.StorageFault:
                self._believed.pop(run_id, None)  # As in `note_sound`.
                return False
            _log.error("run shown as failed: %s", error.message, extra={"run_id": run_id, "code": error.code})
            with contextlib.suppress(OSError, errors.Unreadable):
                await self._context.workers.run(lambda: self._show_failed(run_id, error))
        return True

    async def _check_growing(self, row: stores.RunSummary) -> bool:
        # Such a run's journal has new lines at every list, and a check reads all of them.
        began = self._context.clock.monotonic()
        changed = await self._check(row)
        now = self._context.clock.monotonic()
        self._next_at[row.run_id] = now + _PAUSE_FACTOR * (now - began)
        self._next_at.move_to_end(row.run_id)
        while len(self._next_at) > _BELIEVED:
            self._next_at.popitem(last=False)
        return changed

    async def _check(self, row: stores.RunSummary) -> bool:
        run_id, files = row.run_id, self._context.disk
        try:
            found = await self._context.workers.run(lambda: missing_lines.read(files, run_id, deep=True).loaded())
        except errors.NotFound:
            # The folder was written by hand, or is gone.
            changed = not files.has_folder(layout.run_folder(run_id))
            if changed:
                await self._context.index.remove_run(run_id)
        except errors.JournalCorrupt as error:
            return await self.declare_failed(run_id, error)
        else:
            changed = row.error_code != _CORRUPT and _disagrees(row, found)
            if changed:
                await self._renewed(run_id)
        self._believe(run_id)
        return changed

    async def _renewed(self, run_id: str) -> None:
        async with self._held(run_id) as lock:
            if lock is not None:
                await self._renew(run_id)

    @contextlib.asynccontextmanager
    async def _held(self, run_id: str) -> AsyncIterator[disk_port.Lock | None]:
        # A process that has locked the folder will write the row.
        lock: disk_port.Lock | None = None
        async with self.turns.of(run_id):
            with contextlib.suppress(errors.Conflict, errors.NotFound, errors.Unreadable):
                lock = await self._context.workers.run(lambda: authority.lock_run(self._context.disk, run_id))
            try:
                yield lock
            finally:
                if lock is not None:
                    lock.release()

    # -- on a worker

    def _doubtful(self, rows: Sequence[stores.RunSummary]) -> list[str]:
        resting = (row for row in rows if row.run_id not in self._opened)
        return [row.run_id for row in resting if self._is_touched(row.run_id) or self._may_be_behind(row)]

    def _may_be_behind(self, row: stores.RunSummary) -> bool:
        is_others = row.owner != "service" and not index_port.is_finished(row)
        return is_others and census.may_have_ended(self._context.disk, row.run_id)

    def _is_touched(self, run_id: str) -> bool:
        try:
            mark = _mark(self._context.disk, run_id)
        except errors.Unreadable:
            # Lists report an unreadable file together with the run; it does not prove a change.
            return False
        if self._believed.get(run_id) == mark:
            return False
        *authorities, shown = mark
        if shown and max(authorities) <= shown and 0 not in authorities[: len(_FILES)]:
            return False
        self._doubted[run_id] = mark
        return True

    def _believe(self, run_id: str) -> None:
        # The mark from before the read.
        if (mark := self._doubted.pop(run_id, None)) is not None:
            self._believed[run_id] = mark
        while len(self._believed) > _BELIEVED:
            self._believed.popitem(last=False)

    def _show_failed(self, run_id: str, error: errors.JournalCorrupt) -> None:
        from app.storage.runs.projections import EventQueue

        files, folder = self._context.disk, layout.run_folder(run_id)
        written = events_file.read_written(files, run_id)
        queue = EventQueue(run_id, written, written.last // BLOCK)
        content = events_file.encoded(queue.add(self._now(), events.EventType.RECOVERY_CORRUPT, None, error.detail))
        disk_port.append_whole(files, f"{folder}/{layout.EVENTS}", content, sync=True)
        at = self._now()
        manifest = self._manifest(run_id, at)
        manifest |= {"status": states.RunState.FAILED.value, "phase": None, "error": error.to_json()}
        manifest |= {"updated_at": at, "completed_at": at}
        disk_port.replace(files, f"{folder}/{layout.MANIFEST}", plain.encode(manifest) + b"\n", sync=False)

    def _manifest(self, run_id: str, at: str) -> dict[str, plain.Json]:
        with contextlib.suppress(OSError):
            return _parsed(self._context.disk.read(f"{layout.run_folder(run_id)}/{layout.MANIFEST}"))
        with contextlib.suppress(errors.JournalCorrupt, errors.NotFound):
            start, _ = authority.read_start(self._context.disk, run_id)
            return views.manifest(views.RunView(start=start, status=states.RunState.FAILED, updated_at=at))
        return {}

    def _now(self) -> str:
        return clock.stamp(self._context.clock.now())


def _mark(files: disk_port.Disk, run_id: str) -> _Mark:
    folder = layout.run_folder(run_id)
    return tuple(_changed_at(files, f"{folder}/{name}") for name in (*_FILES, _BLOBS, layout.MANIFEST))


def _changed_at(files: disk_port.Disk, path: str) -> int:
    try:
        return files.changed_at(path)
    except OSError:
        return 0


def _is_declared(row: stores.RunSummary) -> bool:
    return row.error_code == _CORRUPT and index_port.is_finished(row)


def _disagrees(row: stores.RunSummary, found: stores.Loaded) -> bool:
    has_ended = found.decisions.status.finished
    if found.decisions.paused == decisions.LINES_MISSING and not has_ended:
        return row.error_code != decisions.LINES_MISSING
    # The process that ends a run writes its row last: if it no longer has the folder locked, it died before that.
    return index_port.is_finished(row) != has_ended and (index_port.is_finished(row) or row.owner != "service")


def _parsed(content: bytes) -> dict[str, plain.Json]:
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
