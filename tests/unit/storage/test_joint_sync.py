"""Runs that an earlier process left are made durable with one sync."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from app import clock
from app.domain.decisions import DecisionKind
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness

MANY = [f"20260210T143000Z-{number:06d}" for number in range(40)]
FEW = MANY[:3]


class WatchedDisk(MemoryDisk):
    """Record which files are synced alone, and refuse the sync of all together."""

    def __init__(self, left: MemoryDisk) -> None:
        super().__init__(left._root, left._power_cuts)
        self.refuses = False
        self.settled: list[str] = []

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        self.settled.append(path)
        return super().read_synced(path, offset)

    def sync_paths(self, paths: Iterable[str]) -> None:
        if self.refuses:
            raise OSError(errno.EIO, "refused")
        super().sync_paths(paths)


async def _left(run_ids: list[str]) -> tuple[MemoryStore, WatchedDisk]:
    """Return a store that finds runs which a killed process had begun."""
    store = MemoryStore(clock=clock.SystemClock())
    await store.start()
    for run_id in run_ids:
        await store.create(store_harness.start(run_id))
        log = await store.open(run_id)
        await log.decide(DecisionKind.TAKEN, {})
    killed = store.crashed()
    disk = WatchedDisk(killed.disk)
    found = MemoryStore(clock=clock.SystemClock(), disk=disk, index=killed.index)
    await found.start()
    assert len(await found.list_unfinished()) == len(run_ids)
    disk.settled.clear()
    return found, disk


async def test_many_runs_share_a_sync() -> None:
    """No file of many runs is synced alone, and a power cut after their opening takes no line."""
    store, disk = await _left(MANY)
    for run_id in MANY:
        await store.open(run_id)
    alone, cut = list(disk.settled), store.crashed(lose_unsynced=True)
    await cut.start()

    assert alone == []
    assert [(await cut.read(run_id)).decisions.taken for run_id in MANY] == [1] * len(MANY)
    await cut.close()


async def test_a_few_runs_are_settled_one_by_one() -> None:
    """The journals of a few runs are synced one by one and read from the disk."""
    store, disk = await _left(FEW)
    for run_id in FEW:
        await store.open(run_id)

    assert len(disk.settled) == 2 * len(FEW)
    await store.close()


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_refused_sync_is_not_believed(refuses: bool) -> None:
    """If files cannot be synced together, each journal is synced alone."""
    store, disk = await _left(MANY)
    disk.refuses = refuses
    await store.open(MANY[0])
    disk.refuses = False

    assert bool(disk.settled) is refuses
    await store.close()


async def test_the_shared_sync_covers_the_first_opening_alone() -> None:
    """A run that this process had open is synced alone when it is opened again."""
    store, disk = await _left(MANY)
    log = await store.open(MANY[0])
    await log.close()
    await store.open(MANY[0])

    assert len(disk.settled) == 2
    await store.close()
