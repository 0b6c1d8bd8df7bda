"""Reconciliation: updates the index from the folders, reading no more of them than necessary."""

# A row becomes finished only when all that its run shows is durable. Snapshots, events and receipts are unsynced, so a
# power cut soon after an ending would lose them, and a start reads only unfinished rows. A row is updated while its
# folder is locked; otherwise the update would undo a concurrent resume in the row.

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from functools import partial
from itertools import islice

from app import errors
from app.domain import states
from app.engine import stores
from app.storage import layout
from app.storage.disk import worker_threads
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun
from app.storage.issues import Issues
from app.storage.runs import authority, census, receipts
from app.storage.runs.unreadable_runs import UnreadableRuns
from app.storage.storage_context import StorageContext

_CHUNK = 200

_log = logging.getLogger(__name__)


class Reconciliation:
    """Compares rows with folders."""

    def __init__(
        self,
        context: StorageContext,
        identity: str,
        issues: Issues,
        *,
        index_is_new: bool,
        serves: bool = False,
    ) -> None:
        self._context = context
        self._identity = identity
        self._issues = issues
        self._serves = serves
        self.unread = UnreadableRuns(context, identity)
        """Runs that cannot be read now and have no row."""
        self._unread_sessions: set[str] = set()
        self._everything = index_is_new
        self._turn = asyncio.Lock()
        self._compared = False

    async def once(self) -> None:
        """Compare rows with folders, unless this was done since the start."""
        if not self._compared:
            async with self._turn:
                # Another reader may have compared them while this one waited.
                if not self._compared:
                    await self._compare()

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return runs from rows and journals, newest first."""
        await self.once()
        if not (endings := dict(self._context.ended)):
            return await self.unread.list_runs(query)
        more = dataclasses.replace(query, limit=query.limit + len(endings))
        summaries = [run for run in await self.unread.list_runs(more) if run.run_id not in endings]
        summaries += [run for run in self.unread.marked(list(endings.values())) if index_port.fits(run, query)]
        return sorted(summaries, key=index_port.age, reverse=True)[: query.limit]

    async def compare(self) -> None:
        """Compare rows with folders.

        Only folders without a row, and those of unfinished rows, are read; every row without a folder is removed.
        """
        async with self._turn:
            await self._compare()

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row, or the known facts of an unreadable run; a folder that is new since the start gets a row.

        Raises:
            errors.NotFound: the run does not exist.
        """
        layout.run_folder(run_id)
        row = await self._context.index.get_run(run_id)
        if row is None:
            await self.add_missing_row(run_id)
            row = await self._context.index.get_run(run_id)
        summary = row.summary if row is not None else self.unread.get(run_id)
        if summary is None:
            raise errors.no_run(run_id)
        newest = self._context.ended.get(run_id, summary)
        return self.unread.marked([newest])[0] if self._context.read_faults.found else newest

    async def rebuild(self) -> dict[str, int]:
        """Rebuild every row, and return their number."""
        async with self._turn:
            # If this is interrupted, the next start finds no rows and rebuilds all of them.
            await self._context.index.clear()
            self._everything = True
            return await self._compare()

    async def doubt(self, suspects: frozenset[str], parked: frozenset[str]) -> None:
        """Record durably that finished runs are to be opened again, since their projections may be lost.

        Args:
            parked: Runs whose journals were written to, so that their rows are rebuilt.
        """
        for run_id in sorted(parked):
            await self.renew(run_id)
        index, rows = self._context.index, []
        for run_id in sorted(suspects):
            row = await index.get_run(run_id)
            if row is None:
                row = next(iter(await self._context.workers.run(partial(self._rows, [run_id]))), None)
            if row is not None and _ended(row.summary):
                rows.append(_as_unfinished(row))
        await index.apply(rows, (), ())
        if rows:
            # This write is durable, and makes all earlier ones durable.
            await index.set_owner(rows[-1].summary.run_id, rows[-1].summary.owner)

    async def renew(self, run_id: str) -> None:
        """Rebuild the row of a locked run in one step, so that its key is always known."""
        await self._context.index.apply(await self._context.workers.run(lambda: self._rows([run_id])), (), ())

    async def add_missing_row(self, run_id: str) -> None:
        """Write the row of a folder that appeared since the start."""
        await self._context.index.add_missing(await self._context.workers.run(lambda: self._rows([run_id])))

    async def _compare(self) -> dict[str, int]:
        # Rows first: a run that is created meanwhile has its folder before its row.
        rows = await self._context.index.run_ids()
        names = await self._names()
        counts = {"runs": len(names)}
        if self._everything or not rows:
            # Before any row of a run, since an existing row records that this was done; a start may be interrupted.
            counts |= {"receipts": await self._index_receipts()}
        for name in sorted(rows - set(names)):
            await self._forget(name)
        await self._add_missing(iter(name for name in names if name not in rows))
        await self._finish_ended()
        # A list of issues reads them again, and reports why it cannot be shown.
        with contextlib.suppress(errors.Unreadable, errors.StorageFault):
            issues = await self._issues.compare(everything=self._everything)
            counts |= {"issues": issues} if self._everything else {}
        self._everything = False
        self._compared = True
        return counts

    async def _forget(self, name: str) -> None:
        row = await self._context.index.get_run(name)
        if row is not None:
            _log.error("the run %s was %s, and its folder is gone", name, row.summary.status)
        # A row that cannot be removed now is removed by the next list that contains it.
        with contextlib.suppress(errors.StorageFault):
            await self._context.index.remove_run(name)

    async def _add_missing(self, names: Iterator[str]) -> None:
        while chunk := list(islice(names, _CHUNK)):
            read_rows = self._rows_to_reopen if self._serves and not self._everything else self._rows
            await self._context.index.add_missing(await self._context.workers.run(partial(read_rows, chunk)))

    async def _finish_ended(self) -> None:
        # The engine opens the service's own runs, which completes their projections, including the ending; their rows
        # are not changed until then.
        rows_unfinished = await self._context.index.list_unfinished()
        own = [summary.run_id for summary in rows_unfinished if summary.owner == "service"]
        rows = await self._context.workers.run(lambda: self._ended(own))
        self._context.ended.clear()
        self._context.ended.update((row.summary.run_id, row.summary) for row in rows)
        unfinished = [summary.run_id for summary in rows_unfinished if summary.owner != "service"]
        for row in await self._context.workers.run(lambda: self._ended(unfinished)):
            await worker_threads.uncut(self._finish(row.summary.run_id))

    async def _finish(self, run_id: str) -> None:
        # A process that resumes a run, or will write its row, locks its folder, so the folder's content stays valid
        # until then. A row that cannot be written now is written by the next list that contains it.
        context = self._context
        with contextlib.suppress(errors.NotFound, errors.Conflict, errors.StorageFault):
            lock = await context.workers.run(lambda: authority.lock_run(context.disk, run_id))
            try:
                await context.index.apply(await context.workers.run(lambda: self._ended([run_id])), (), ())
            finally:
                lock.release()

    async def _names(self) -> list[str]:
        return await self._context.workers.run(lambda: layout.run_ids(self._context.disk.names(layout.RUNS)))

    async def index_unread_receipts(self) -> None:
        """Index the receipts of sessions whose file could not be read before.

        Raises:
            errors.Unreadable: a file still cannot be read.
        """
        for session_id in sorted(self._unread_sessions):
            await self._index_session(session_id)
            self._unread_sessions.discard(session_id)

    async def _index_receipts(self) -> int:
        count = 0
        for session_id in await self._context.workers.run(lambda: receipts.sessions(self._context.disk)):
            try:
                count += await self._index_session(session_id)
            except errors.Unreadable as fault:
                _log.warning("receipts not indexed yet: %s", fault.message)
                self._unread_sessions.add(session_id)
        return count

    async def _index_session(self, session_id: str) -> int:
        places = await self._context.workers.run(partial(receipts.scan, self._context.disk, session_id))
        await self._context.index.add_receipts(places)
        return len(places)

    # -- on a worker

    def _rows(self, names: list[str]) -> list[IndexedRun]:
        return self.unread.rows(names)

    def _rows_to_reopen(self, names: list[str]) -> list[IndexedRun]:
        # A power cut that reverted a row may have lost the end of the run's projections, so the engine opens the run
        # again.
        rows = self._rows(names)
        ended_ids = {row.summary.run_id for row in self._ended([row.summary.run_id for row in rows])}
        return [_as_unfinished(row) if row.summary.run_id in ended_ids else row for row in rows]

    def _ended(self, names: list[str]) -> list[IndexedRun]:
        rows = self._rows([name for name in names if census.may_have_ended(self._context.disk, name)])
        return [row for row in rows if _ended(row.summary)]


def _ended(run: stores.RunSummary) -> bool:
    damaged = run.error_code == errors.JournalCorrupt.default_code
    return states.RunState(run.status).finished and not damaged


def _as_unfinished(row: IndexedRun) -> IndexedRun:
    if row.summary.owner != "service":
        return row
    running = states.RunState.RUNNING.value
    return dataclasses.replace(row, summary=dataclasses.replace(row.summary, status=running, completed_at=None))
