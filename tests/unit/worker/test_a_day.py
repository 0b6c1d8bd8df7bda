"""A day of virtual time over real folders: runs come and go, the engine dies repeatedly, and people cancel some.

One thread and one clock execute everything, so that a seed repeats its day exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from app import clock, errors
from app.domain import states
from app.engine import probes
from app.storage import committer, data_directory, folder_store, layout, storage_context
from app.storage.disk import disk_port, os_disk, worker_threads
from app.storage.index import memory_index
from tests.unit.worker import pools, recording, toys

RunState = states.RunState

LIMIT = 3
MINUTE = 60.0


class MortalDisk(os_disk.OsDisk):
    """A disk whose locks end with their process, including a simulated death."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._held: list[disk_port.Lock] = []

    def lock(self, folder: str, *, wait: bool = False) -> disk_port.Lock | None:
        """Hold a folder."""
        lock = super().lock(folder, wait=wait)
        self._held += [] if lock is None else [lock]
        return lock

    def die(self) -> None:
        """Release every folder."""
        for lock in self._held:
            lock.release()


class Folders(folder_store.FolderStore):
    """Run folders that the loop itself writes, with rows in memory."""

    def __init__(self, place: Path, time: clock.Clock, points: probes.Probes, rows: memory_index.MemoryIndex) -> None:
        self._place = data_directory.DataDirectory(place, clock=time, ids=clock.RandomIds(random.Random(0)))
        super().__init__(self._place, rows, clock=time, probes=points)
        self.rows = rows
        self.mortal = MortalDisk(place)

    def _prepare(self) -> tuple[storage_context.StorageContext, str]:
        found, identity = super()._prepare()
        inline = worker_threads.NextTurnWorker()
        found = dataclasses.replace(found, disk=self.mortal, bare_disk=self.mortal)
        return dataclasses.replace(found, workers=inline, quick_workers=inline, index=self.rows), identity

    def _make_committer(self, *_: object) -> committer.Committer:
        inline = worker_threads.NextTurnWorker()
        return super()._make_committer(self.mortal, inline, inline, self._probes)


class Day(pools.Bench):
    """A bench over folders, and the events of its day."""

    def __init__(self, place: Path, seed: int) -> None:
        super().__init__(limit=LIMIT, grace_seconds=0)
        self.place = place
        self.chance = random.Random(seed)
        self.store = self._opened(memory_index.MemoryIndex())  # type: ignore[assignment]
        self.pool = self._new_pool()
        self.accepted: list[str] = []
        self.cancelled: set[str] = set()
        self.crashes = 0

    def _opened(self, rows: memory_index.MemoryIndex) -> Folders:
        return Folders(self.place, self.clock, self.probes, rows)

    async def crash(self, *, lose_unsynced: bool = False) -> None:
        """Abandon the engine at once, and start again over the same folders."""
        rows = self.store.rows.copy()  # type: ignore[attr-defined]
        self.store.abandon()
        await pools.abandon()
        self.store.mortal.die()  # type: ignore[attr-defined]
        self.crashes += 1
        self.probes = recording.RecordingProbes()
        self.store = self._opened(rows)  # type: ignore[assignment]
        self.pool = self._new_pool()
        await self.open()

    async def pass_time(self, hours: float) -> None:
        """Advance the time by hours, minute by minute."""
        for _ in range(int(hours * 60)):
            await self.happen()
            self.advance(MINUTE)
            for _ in range(self.chance.randint(0, 60)):
                await asyncio.sleep(0)

    async def happen(self) -> None:
        """By chance accept a run, cancel one, or die."""
        if self.chance.random() < 0.08:
            self.accepted.append(await self.submit(*self.program(len(self.accepted))))
        if self.accepted and self.chance.random() < 0.03:
            run_id = self.chance.choice(self.accepted)
            with contextlib.suppress(errors.WrongState):
                await pools.soon(self.pool.cancel(run_id))
                self.cancelled.add(run_id)
        if self.chance.random() < 0.04:
            await self.crash()

    def program(self, number: int) -> list[toys.Step]:
        """Invent a program with unique keys."""
        steps: list[toys.Step] = []
        for position in range(self.chance.randint(1, 5)):
            key = f"r{number}s{position}"
            match self.chance.choice(["tool", "agent", "timer", "gather"]):
                case "timer":
                    steps.append({"timer": key, "seconds": self.chance.randint(0, 3600)})
                case "gather":
                    steps.append({"gather": {"a": toys.tools(key), "b": [{"agent": f"{key}b"}]}})
                case kind:
                    steps.append({kind: key})
        return steps

    async def come_to_rest(self) -> None:
        """Advance the time until every accepted run has ended."""
        for _ in range(3000):
            self.advance(MINUTE)
            await pools.idle()
            if not self.pool.status().idle and not self.pool.status().queued and not self.pool.status().running:
                found = [RunState(await self.status(run_id)) for run_id in self.accepted]
                if all(state.finished for state in found):
                    return
        raise AssertionError(self.pool.status())


async def live(place: Path, seed: int, hours: float) -> tuple[Day, dict[str, str]]:
    """Run a day to its end, and return how each run ended."""
    day = Day(place, seed)
    await day.open()
    await day.pass_time(hours)
    await day.come_to_rest()
    return day, {run_id: await day.status(run_id) for run_id in day.accepted}


def decided(day: Day, run_id: str) -> Counter[str]:
    """Return how often each decision is in a run's control journal."""
    control = (day.place / layout.run_folder(run_id) / layout.CONTROL).read_bytes().splitlines()
    return Counter(json.loads(line)["kind"] for line in control)


async def check(place: Path, seed: int, hours: float) -> None:
    """Run a day and check the promises of the pool."""
    handles, threads = open_handles(), threading.active_count()
    day, ended = await live(place, seed, hours)
    status = day.pool.status()

    assert day.crashes > hours / 2
    assert len(ended) > hours
    assert set(ended.values()) <= {"done", "cancelled"}
    assert {run_id for run_id in day.cancelled if ended[run_id] != "cancelled"} == set()
    for run_id in day.accepted:
        events = [event.type for event in await day.store.read_events(run_id)]

        assert decided(day, run_id)["ended"] == 1, run_id
        assert (events.count("run.created"), events.count("run.ended")) == (1, 1), run_id
        assert (await day.store.maintenance.verify(run_id))["ok"], run_id
    assert (status.running, status.queued, status.idle) == (0, 0, 0)
    for run_id in day.accepted:
        lock = os_disk.lock(str(day.place / layout.run_folder(run_id)))
        assert lock is not None, run_id
        lock.release()
    assert sorted(path.name for path in (day.place / "runs").iterdir()) == sorted([".trash", *day.accepted])

    await day.close()

    # An earlier test may have left some to the garbage collection.
    assert open_handles() <= handles
    assert threading.active_count() == threads
    assert asyncio.all_tasks() == {asyncio.current_task()}


def open_handles() -> int:
    """Return how many file handles this process has."""
    return len(os.listdir("/proc/self/fd"))


async def test_six_hours_of_kills_and_cancels_leave_nothing_behind(tmp_path: Path) -> None:
    """Every accepted run has exactly one ending, and no handle, lock, capacity, task or thread is left."""
    await check(tmp_path / "data", seed=1, hours=6)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(5))
async def test_a_day_of_kills_and_cancels_leaves_nothing_behind(tmp_path: Path, seed: int) -> None:
    """Every accepted run of a 24-hour day has exactly one ending, and no handle, lock or thread is left."""
    await check(tmp_path / "data", seed=seed, hours=24)


async def test_a_seed_repeats_its_day(tmp_path: Path) -> None:
    """The same seed brings the same runs, crashes, cancels and endings."""
    days = []
    for name in ("one", "two"):
        day, ended = await live(tmp_path / name, 7, 2)
        days.append((ended, day.cancelled, day.crashes, day.toolbox.executed))
        await day.close()

    assert days[0] == days[1]
    assert days[0][0]
