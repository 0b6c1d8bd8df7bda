"""The storage context: parts that all logs of a store share, and the throttle of their projections."""

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
"""Share of the time that writing projections may take, for one run and for all together."""

_RUNS_AT_EASE = 4


class WriteThrottle:
    """Decides when a run's projections are written next."""

    def __init__(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self.open = 0
        """Number of open runs."""

    def first_seconds(self) -> float:
        """Return the wait of a newly opened run; a run that ends sooner writes its projections only once."""
        return self._pause_seconds * max(1.0, self.open / _RUNS_AT_EASE)

    def next_seconds(self, took_seconds: float) -> float:
        """Return the wait of a run after a write of this duration."""
        return max(took_seconds * self.open / LARGEST_SHARE - took_seconds, self._pause_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageContext:
    """The parts that all logs of a store share."""

    disk: Disk  # Files and folders.
    bare_disk: Disk  # The same for folders that are being built: a failed read there is a failed write.
    read_faults: ReadFaults  # Files that cannot be read now.
    committer: Committer  # Makes journal lines durable.
    workers: Workers  # Threads for all other blocking work.
    quick_workers: Workers  # For a few small writes; on the loop itself, unless the store is on a server.
    index: Index  # Rows about runs and receipts.
    disk_health: DiskHealth  # Whether writes succeed.
    clock: clock.Clock  # The clock.
    probes: probes.Probes  # Named points for tests.
    throttle: WriteThrottle  # Times projections; with infinite pauses they are written only on request.
    feed: event_feed.EventFeed  # The feed of events of all runs.
    objects: ObjectDisk | None = None  # Object storage of blobs and logs; None: they are with the other files.
    ended: dict[str, stores.RunSummary] = field(default_factory=dict)
    """Ended runs whose rows lag behind: shown as in their journals until the row follows."""
