"""Means: what every log of a store shares."""

from __future__ import annotations

from dataclasses import dataclass

from app import clock
from app.engine import probes
from app.storage.committer import Committer
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.disk_port import Disk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import Workers
from app.storage.index.index_port import Index
from app.storage.write_throttle import WriteThrottle


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageContext:
    """What every log of a store shares."""

    disk: Disk
    """Files and folders."""
    read_faults: ReadFaults
    """Files that cannot be read now."""
    committer: Committer
    """Makes journal lines durable."""
    workers: Workers
    """Threads for everything else that blocks."""
    near: Workers
    """For a few small writes that wait for no disk."""
    index: Index
    """Rows about runs and receipts."""
    disk_health: DiskHealth
    """Whether writes come through."""
    clock: clock.Clock
    """The time."""
    probes: probes.Probes
    """Named points for tests."""
    throttle: WriteThrottle
    """When projections are written; with infinite pauses they are written when somebody asks for them."""
