"""Means: what every log of a store shares."""

from __future__ import annotations

from dataclasses import dataclass

from app import clock
from app.engine import probes
from app.storage.committer import Committer
from app.storage.disk import Disk
from app.storage.index import Index
from app.storage.pace import Pace
from app.storage.read_faults import ReadFaults
from app.storage.room import Room
from app.storage.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
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
    room: Room
    """Whether writes come through."""
    clock: clock.Clock
    """The time."""
    probes: probes.Probes
    """Named points for tests."""
    pace: Pace
    """When projections are written; with infinite pauses they are written when somebody asks for them."""
