"""The run store of a data directory: its runs in folders of the machine, or on the disk of a subclass."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from app import clock, errors
from app.engine import event_feed, probes
from app.storage.data_directory import DataDirectory
from app.storage.disk.checked_disk import CheckedDisk
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.disk_port import Disk
from app.storage.disk.os_disk import OsDisk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import AdaptiveInlineWorker, Workers, WorkerThreads
from app.storage.index.index_port import Index
from app.storage.index.index_queue import IndexQueue
from app.storage.objects import mark
from app.storage.objects.disk import ObjectDisk
from app.storage.rate_document import RateDocument
from app.storage.runs.disk_store import DiskStore
from app.storage.runs.run_folders import Adopt
from app.storage.shared_turns import DiskTurns
from app.storage.storage_context import StorageContext, WriteThrottle

_PAUSE_SECONDS = 0.05
_NO_PROBES = probes.NoProbes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCounts:
    """Numbers of threads of a store."""

    commit: int = 1  # Threads that make journal lines durable.
    other: int = 4  # Threads for all other blocking work.


class FolderStore(DiskStore):
    """Runs on a disk, which is the machine's unless a subclass opens another, and their rows in a database."""

    def __init__(
        self,
        directory: DataDirectory,
        index: Index,
        *,
        clock: clock.Clock,
        probes: probes.Probes | None = None,
        adopt: Adopt | None = None,
        threads: ThreadCounts = ThreadCounts(),
    ) -> None:
        super().__init__(adopt)
        self._directory = directory
        self._index = index
        self._clock = clock
        self._probes = probes or _NO_PROBES
        self._queue: IndexQueue | None = None
        self._blobs = mark.Target()
        self._opened: tuple[Disk, str] | None = None
        self._held: OsDisk | None = None
        self._is_shared = False
        self._commits = WorkerThreads(threads.commit, "commit")
        self._others = WorkerThreads(threads.other, "storage")

    def _prepare(self) -> tuple[StorageContext, str]:
        opened, self._opened = self._opened, None
        bare, identity = opened or self._open()
        faults, disk_health = ReadFaults(self._clock), DiskHealth()
        disk = CheckedDisk(bare, faults)
        # A process beside the service writes few rows, and makes them visible at once.
        self._queue = IndexQueue(self._index, disk_health) if self._serves else None
        context = StorageContext(
            disk=disk,
            bare_disk=bare,
            read_faults=faults,
            committer=self._make_committer(disk, self._commits, self._others, self._probes),
            workers=self._others,
            quick_workers=self._quick_workers(),
            index=self._queue or self._index,
            disk_health=disk_health,
            clock=self._clock,
            probes=self._probes,
            throttle=WriteThrottle(_PAUSE_SECONDS),
            feed=event_feed.EventFeed(self._clock.monotonic),
            objects=bare if isinstance(bare, ObjectDisk) else None,
        )
        return context, identity

    async def start(self, *, serve: bool = True) -> None:
        """Open the store, after its bucket if blobs are in object storage."""
        if self._open_parts is None and self._blobs.url is not None:
            self._opened = await self._others.run(self._open)
        await super().start(serve=serve)
        if self._is_shared and self.turns is None:
            self.turns = functools.partial(DiskTurns, self.checked_disk, self._others)
            self.shared_rates = RateDocument(self._parts.context.bare_disk, self._others, self._clock)

    async def write_fault(self) -> errors.StorageFault | None:
        """Return why new runs are refused, after another attempt to write; None if they are accepted."""
        if self._held is not None:
            try:
                await self._others.run(self._held.confirm)
            except OSError:
                # No write may have been tried since the directory was displaced.
                self._parts.context.disk_health.free = False
        return await super().write_fault()

    def share(self) -> None:
        """Expect other processes to execute runs in these folders as well."""
        self._is_shared = True

    def keep_blobs_in(self, target: mark.Target) -> None:
        """Keep blobs, and logs of ended runs, in object storage if the target has an address."""
        self._blobs = target

    def keep_lines(self, most: int) -> None:
        """Cache lines of evicted runs, up to a total, so that reopening a run reads only its newer lines."""
        self._parts.opener.kept.most_lines = most

    def _open(self) -> tuple[Disk, str]:
        disk, identity = self._open_disk()
        return mark.opened(disk, self._blobs, identity), identity

    def _open_disk(self) -> tuple[Disk, str]:
        identity = self._directory.prepare()
        self._held = OsDisk(self._directory.path)
        self._held.hold()
        return self._held, identity

    def _quick_workers(self) -> Workers:
        return AdaptiveInlineWorker(self._others)

    def _let_go(self) -> None:
        if self._queue is not None:
            self._queue.abandon()
        self._commits.close()
        self._others.close()
        if self._held is not None:
            self._held.close()
