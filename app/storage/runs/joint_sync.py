"""The joint sync: makes files of many runs that an earlier process left durable at once instead of run by run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.storage_context import StorageContext

_MANY = 32

_log = logging.getLogger(__name__)


class JointSync:
    """Syncs the files of runs that this process opens for the first time.

    This sync may report a failed write that no process has seen. Then each file is synced on its own and read from the
    disk, like the files of a single run.
    """

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._runs: frozenset[str] | None = None
        self._left: set[str] = set()
        self._sync: asyncio.Task[bool] | None = None

    def expect(self, run_ids: Collection[str]) -> None:
        """Record, once, the runs that an earlier process left; if they are few, they are synced one by one."""
        if self._runs is None:
            self._runs = frozenset(run_ids if len(run_ids) >= _MANY else ())
            self._left = set(self._runs)

    async def covers(self, run_id: str) -> bool:
        """Sync all these runs once, and return whether the readable content of a run's files is durable.

        Only for the first opening of a run: later ones read what this process has written since.
        """
        if run_id not in self._left:
            return False
        self._left.discard(run_id)
        if self._sync is None:
            self._sync = asyncio.ensure_future(self._sync_all(self._runs or ()))
        return await asyncio.shield(self._sync)

    async def _sync_all(self, run_ids: Iterable[str]) -> bool:
        try:
            await self._context.workers.run(lambda: _synced(self._context.disk, run_ids))
        except OSError as error:
            _log.error("files cannot be synced together, and are synced one by one: %s", error)
            return False
        return True


def _synced(disk: Disk, run_ids: Iterable[str]) -> None:
    names = (layout.START, layout.STEPS, layout.CONTROL, "")
    syncer = disk.syncer(layout.FOLDERS)
    try:
        syncer.sync(lambda: [f"{layout.run_folder(run_id)}/{name}".rstrip("/") for run_id in run_ids for name in names])
    finally:
        syncer.close()
