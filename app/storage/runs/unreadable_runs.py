"""Unreadable runs: folders that cannot be read now and have no row, shown by their last known facts.

The facts are kept only in memory: a row without the run's key would let a repeated request start the run twice.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from app import errors
from app.engine import stores
from app.storage.index import index_port
from app.storage.index.index_port import IndexedRun
from app.storage.runs import census
from app.storage.storage_context import StorageContext

_log = logging.getLogger(__name__)


class UnreadableRuns:
    """Reads folders for their rows, and remembers those that cannot be read now."""

    def __init__(self, context: StorageContext, identity: str) -> None:
        self._context = context
        self._identity = identity
        self._runs: dict[str, tuple[stores.RunSummary, errors.Unreadable]] = {}

    def rows(self, run_ids: Iterable[str]) -> list[IndexedRun]:
        """Return the rows of folders on a worker; a folder that is not a run, or cannot be read now, has none."""
        return list(self._read(run_ids))

    async def read_again(self) -> None:
        """Write a row for each run that can be read again."""
        faults = self._context.read_faults.by_run() if self._runs else {}
        readable = [run_id for run_id in self._runs if run_id not in faults]
        if readable:
            rows = await self._context.workers.run(partial(self.rows, readable))
            try:
                await self._context.index.apply(rows, (), ())
            except errors.StorageFault:
                await self._context.index.add_missing(rows)

    async def make_sure(self) -> None:
        """Refuse a query about all runs while some have not been read.

        Raises:
            errors.Unreadable: a run cannot be read now.
        """
        await self.read_again()
        for _, fault in list(self._runs.values()):
            raise errors.Unreadable(fault.message, detail=fault.detail)

    def get(self, run_id: str) -> stores.RunSummary | None:
        """Return the last known facts of a run that cannot be read now."""
        return self._runs[run_id][0] if run_id in self._runs else None

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return a page of runs, newest first, including those without a row."""
        await self.read_again()
        found = await self._context.index.list_runs(query)
        added = [run for run in self._without(found) if index_port.fits(run, query)]
        return self.marked(sorted([*found, *added], key=index_port.age, reverse=True)[: query.limit])

    async def list_unfinished(self) -> list[stores.RunSummary]:
        """Return every run that is, or may be, unfinished, oldest first."""
        found = await self._context.index.list_unfinished()
        return self.marked(sorted([*found, *self._without(found)], key=index_port.age))

    async def count_by_status(self) -> dict[str, int]:
        """Return how many runs are in each state that occurs."""
        counted = Counter(await self._context.index.count_by_status())
        return dict(counted + Counter(run.status for run, _ in list(self._runs.values())))

    def marked(self, found: list[stores.RunSummary]) -> list[stores.RunSummary]:
        """Return runs, each with its file that cannot be read now."""
        unreadable = self._context.read_faults.by_run()
        if not unreadable:
            return found
        return [dataclasses.replace(run, unreadable=unreadable.get(run.run_id)) for run in found]

    def _without(self, found: list[stores.RunSummary]) -> list[stores.RunSummary]:
        known = {run.run_id for run in found} if self._runs else set()
        return [run for run, _ in list(self._runs.values()) if run.run_id not in known]

    def _read(self, run_ids: Iterable[str]) -> Iterator[IndexedRun]:
        for run_id in run_ids:
            try:
                row = census.row_of(self._context.disk, run_id, self._identity)
            except errors.Unreadable as fault:
                _log.warning("no row yet: %s", fault.message, extra={"run_id": run_id})
                self._runs[run_id] = census.last_known(self._context.disk, run_id).summary, fault
                continue
            self._runs.pop(run_id, None)
            if row is not None:
                yield row
