"""The run store over the folders of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from app import clock
from app.engine import probes
from app.storage.checked_disk import CheckedDisk
from app.storage.directory import DataDirectory
from app.storage.disk_store import DiskStore
from app.storage.index import Index
from app.storage.index_queue import IndexQueue
from app.storage.means import Means
from app.storage.opener import Adopt
from app.storage.os_disk import OsDisk
from app.storage.pace import Pace
from app.storage.read_faults import ReadFaults
from app.storage.room import Room
from app.storage.workers import Near, Threads

_PAUSE_SECONDS = 0.05
_NO_PROBES = probes.NoProbes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCounts:
    """How many threads a store may have."""

    commit: int = 1
    """Threads that make journal lines durable."""
    other: int = 4
    """Threads for everything else that blocks."""


class FolderStore(DiskStore):
    """Runs in folders, their rows in a database."""

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
        self._commits = Threads(threads.commit, "commit")
        self._others = Threads(threads.other, "storage")

    def _prepare(self) -> tuple[Means, str]:
        identity = self._directory.prepare()
        faults, room = ReadFaults(self._clock), Room()
        disk = CheckedDisk(OsDisk(self._directory.path), faults)
        # Whoever lives beside the service has few rows, and shows them at once.
        self._queue = IndexQueue(self._index, room) if self._serves else None
        means = Means(
            disk=disk,
            read_faults=faults,
            committer=self._make_committer(disk, self._commits, self._others, self._probes),
            workers=self._others,
            near=Near(self._others),
            index=self._queue or self._index,
            room=room,
            clock=self._clock,
            probes=self._probes,
            pace=Pace(_PAUSE_SECONDS),
        )
        return means, identity

    def _let_go(self) -> None:
        if self._queue is not None:
            self._queue.abandon()
        self._commits.close()
        self._others.close()
