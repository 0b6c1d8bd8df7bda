"""The storage context: what every log of a store shares, and the throttle of its projections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app import clock
from app.engine import event_feed, probes, stores
from app.storage.committer import Committer
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.disk_port import Disk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import Workers
from app.storage.index.index_port import Index

if TYPE_CHECKING:
    from app.storage.objects.disk import ObjectDisk

LARGEST_SHARE = 1 / 20
"""Part of the time that writing projections may take, of one run's and of all together."""

_RUNS_AT_EASE = 4


class WriteThrottle:
    """Decide when a run's projections are written next."""

    def __init__(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self.open = 0
        """Runs that are open."""

    def first_seconds(self) -> float:
        """Return how long a run that has just been opened waits; one that is over sooner writes its
        projections once.
        """
        return self._pause_seconds * max(1.0, self.open / _RUNS_AT_EASE)

    def next_seconds(self, took_seconds: float) -> float:
        """Return how long a run waits after a write that took so long."""
        return max(took_seconds * self.open / LARGEST_SHARE - took_seconds, self._pause_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageContext:
    """What every log of a store shares."""

    disk: Disk  # Files and folders.
    bare_disk: Disk  # The same for folders that are being built: a look that fails there is a failed write.
    read_faults: ReadFaults  # Files that cannot be read now.
    committer: Committer  # Makes journal lines durable.
    workers: Workers  # Threads for everything else that blocks.
    near: Workers  # For a few small writes that wait for no disk.
    index: Index  # Rows about runs and receipts.
    disk_health: DiskHealth  # Whether writes succeed.
    clock: clock.Clock  # The time.
    probes: probes.Probes  # Named points for tests.
    throttle: WriteThrottle  # When projections are written; with infinite pauses they are written on request.
    feed: event_feed.EventFeed  # The newest events of all runs.
    objects: ObjectDisk | None = None  # Object storage of blobs and logs; None: they are with the rest.
    ended: dict[str, stores.RunSummary] = field(default_factory=dict)
    """Runs that have ended though their rows lag behind: shown as their journals have them until the row follows."""
