"""Counting: completes rows that an earlier release wrote, after the start of a service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial

from app import errors
from app.engine import aio
from app.storage.index.index_port import IndexedRun
from app.storage.runs import census
from app.storage.storage_context import StorageContext

_CHUNK = 50

_log = logging.getLogger(__name__)


class RowCounting:
    """Reads the folders of runs whose rows lack the sums of their journals, newest first."""

    def __init__(self, context: StorageContext, identity: str) -> None:
        self._context = context
        self._identity = identity
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start counting in the background."""
        self._task = asyncio.create_task(self._count(), name="count rows")

    async def stop(self) -> None:
        """Stop; the next start counts the remaining rows."""
        if self._task is not None:
            await aio.end(self._task)

    def abandon(self) -> None:
        """Stop at once, like a killed process."""
        if self._task is not None:
            self._task.cancel()

    async def _count(self) -> None:
        index, behind = self._context.index, None
        try:
            while page := await index.uncounted(behind, _CHUNK):
                names = [run_id for _, run_id in page]
                await index.count_again(await self._context.workers.run(partial(self._rows, names)))
                behind = page[-1]
        except errors.StorageFault as fault:
            _log.warning("rows are left uncounted until the next start: %s", fault.message)

    def _rows(self, names: Sequence[str]) -> list[IndexedRun]:
        return list(self._read(names))

    def _read(self, names: Sequence[str]) -> Iterator[IndexedRun]:
        for name in names:
            try:
                row = census.row_of(self._context.disk, name, self._identity)
            except errors.Unreadable as fault:
                _log.warning("a row is left uncounted: %s", fault.message, extra={"run_id": name})
                continue
            if row is not None:
                yield row
