"""Session plans on disks: thousands of them, losses of power, and disks that refuse."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain.plans import Plan, PlanQuery, PlanState
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness
from tests.unit.storage import power_cuts, writer_processes

AT = "2026-02-10T14:30:00.000Z"
MANY = 5_000


def written(place: Path, count: int) -> None:
    """Write plans like a person, each a second newer than the one before."""
    for number in range(count):
        folder = place / layout.PLANS / f"sp_{number:04}"
        folder.mkdir(parents=True)
        at = f"2026-02-10T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        plan = {"session_id": folder.name, "created_at": at, "tasks": [{"id": 1, "description": "Do it"}]}
        (folder / layout.PLAN).write_text(json.dumps(plan), encoding="utf-8")


class Counting:
    """A disk that counts its calls."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._disk, name)


async def test_thousands_are_listed_without_being_read_again(tmp_path: Path) -> None:
    """A list of five thousand plans reads each file once, and later only the changed files."""
    written(tmp_path, MANY)
    store = writer_processes.store_in(tmp_path)
    await store.start()
    try:
        context = store.plans._context
        counting = Counting(context.disk)
        object.__setattr__(context, "disk", counting)
        newest = await store.plans.list(PlanQuery(limit=1))
        first, counting.asked = counting.asked, Counter()
        everything = await store.plans.list(PlanQuery(limit=MANY))
        second = counting.asked
    finally:
        await store.close()

    assert [each.session_id for each in newest] == [f"sp_{MANY - 1:04}"]
    assert [each.session_id for each in everything] == [f"sp_{number:04}" for number in reversed(range(MANY))]
    assert (first["read"], second["read"]) == (MANY, 0)
    assert second["signature"] <= MANY + 1


async def test_a_plan_is_read_again_only_when_its_file_has_changed(tmp_path: Path) -> None:
    """A written or read plan is not read again; a change or removal by hand is seen at once."""
    store = writer_processes.store_in(tmp_path)
    await store.start()
    try:
        context = store.plans._context
        counting = Counting(context.disk)
        object.__setattr__(context, "disk", counting)
        await store.plans.put(version(1))
        put = [await store.plans.get("sp_1") for _ in range(3)]
        reads = counting.asked["read"]
        file = tmp_path / layout.PLANS / "sp_1" / layout.PLAN
        file.write_text(file.read_text(encoding="utf-8").replace('"draft"', '"paused"'), encoding="utf-8")
        edited = await store.plans.get("sp_1")
        file.unlink()
        removed = await store.plans.get("sp_1")
    finally:
        await store.close()

    assert (put, reads) == ([version(1)] * 3, 0)
    assert edited is not None
    assert (edited.status, removed) == (PlanState.PAUSED, None)


class Dying:
    """Probes that die at a chosen passing of any point."""

    def __init__(self, passings: int) -> None:
        self._left = passings

    def reach(self, point: str) -> None:
        """Die, or count down to it."""
        self._left -= 1
        if self._left == 0:
            raise store_harness.Died


def version(revision: int) -> Plan:
    """Return a plan whose versions differ in length."""
    return Plan(session_id="sp_1", created_at=AT, updated_at=AT, revision=revision, intent="x" * (revision * 37 % 900))


async def life(disk: MemoryDisk, begin: int, passings: int) -> tuple[MemoryStore, int]:
    """Write versions of a plan until death, and return the last acknowledged one."""
    store = MemoryStore(clock=clock.FakeClock(), probes=Dying(passings), disk=disk)
    acknowledged = begin
    with contextlib.suppress(store_harness.Died, errors.StorageFault):
        await store.start(serve=False)
        for revision in range(begin + 1, begin + 9):
            await store.plans.put(version(revision))
            acknowledged = revision
    return store, acknowledged


@pytest.mark.parametrize("seed", range(40))
async def test_a_power_cut_leaves_the_old_or_the_new(seed: int) -> None:
    """After a power cut the plan is the one acknowledged last or the next one, for any loss of unsynced data."""
    chance = random.Random(seed)
    disk: MemoryDisk = power_cuts.ForgetfulDisk(chance, 0.0)
    acknowledged = 0
    for _ in range(6):
        store, last = await life(disk, acknowledged, chance.randint(1, 26))
        store.abandon()
        disk = power_cuts.cut(disk, chance)
        store = MemoryStore(clock=clock.FakeClock(), disk=disk)
        await store.start(serve=False)
        found = await store.plans.get("sp_1")
        listed = await store.plans.list(PlanQuery())
        await store.close()

        assert found in ((None, version(1)) if last == 0 else (version(last), version(last + 1)))
        assert [each.revision for each in listed] == ([] if found is None else [found.revision])
        acknowledged = 0 if found is None else found.revision


@pytest.mark.parametrize("seed", range(40))
async def test_a_failing_disk_leaves_whole_plans(seed: int) -> None:
    """On a disk that sometimes refuses, a plan is always one of the versions that were to be kept."""
    chance = random.Random(seed)
    disk = power_cuts.ForgetfulDisk(chance, 0.0)
    store = MemoryStore(clock=clock.FakeClock(), disk=disk)
    await store.start(serve=False)
    disk.often = 0.3
    kept = 0
    for revision in range(1, 40):
        tried = False
        with contextlib.suppress(errors.StorageFault):
            await store.plans.put(version(revision))
            tried = True
        found = await store.plans.get("sp_1")

        assert found in ((None,) if kept == 0 and not tried else ()) + (version(kept), version(revision))
        assert not tried or found == version(revision)
        kept = 0 if found is None else found.revision
    disk.often = 0.0
    await store.close()
