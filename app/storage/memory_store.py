"""The run store in memory: the same code, bytes, chains and rules over a disk that can lose unsynced writes."""

from __future__ import annotations

import math

from app import clock
from app.engine import event_feed, probes
from app.storage import layout
from app.storage.disk.checked_disk import CheckedDisk
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import NextTurnWorker
from app.storage.index.memory_index import MemoryIndex
from app.storage.runs.disk_store import DiskStore
from app.storage.runs.run_folders import Adopt
from app.storage.storage_context import StorageContext, WriteThrottle

_IDENTITY = "memory"
_NO_PROBES = probes.NoProbes()


class MemoryStore(DiskStore):
    """Runs in memory, without files, threads or a database."""

    def __init__(
        self,
        *,
        clock: clock.Clock,
        probes: probes.Probes | None = None,
        adopt: Adopt | None = None,
        disk: MemoryDisk | None = None,
        index: MemoryIndex | None = None,
    ) -> None:
        super().__init__(adopt)
        self._clock = clock
        self._probes = probes
        self.disk = disk or MemoryDisk()
        """The disk that stores its runs."""
        self.index = index or MemoryIndex()
        """Its rows."""

    def crashed(self, *, lose_unsynced: bool = False, probes: probes.Probes | None = None) -> MemoryStore:
        """Return the store that a restart finds; the old one is unusable.

        Args:
            lose_unsynced: Whether the machine lost power; otherwise only the process died.
            probes: Named points of the new store.
        """
        self.abandon()
        left = self.disk.crashed(lose_unsynced=lose_unsynced)
        index = self.index.copy()
        return MemoryStore(clock=self._clock, probes=probes, adopt=self._adopt, disk=left, index=index)

    def _prepare(self) -> tuple[StorageContext, str]:
        for folder in layout.FOLDERS:
            self.disk.add_folder(folder)
        for folder in ("", *layout.FOLDERS):
            self.disk.sync_folder(folder)
        workers, points = NextTurnWorker(), self._probes or _NO_PROBES
        faults = ReadFaults(self._clock)
        disk = CheckedDisk(self.disk, faults)
        context = StorageContext(
            disk=disk,
            bare_disk=self.disk,
            read_faults=faults,
            committer=self._make_committer(disk, workers, workers, points),
            workers=workers,
            quick_workers=workers,
            index=self.index,
            disk_health=DiskHealth(),
            clock=self._clock,
            probes=points,
            # No real timer, so that everything happens in the same order each time.
            throttle=WriteThrottle(math.inf),
            feed=event_feed.EventFeed(self._clock.monotonic),
        )
        return context, _IDENTITY

    def _let_go(self) -> None:
        """Do nothing; this store has no open files or threads."""
