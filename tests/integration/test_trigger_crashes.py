"""Triggers over a disk whose power is lost at every operation, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import bootstrap, clock
from app.crash_lab.fragile_disk import END, FragileDisk, Operation
from app.storage import memory_store
from app.storage.disk import memory_disk
from app.storage.index import memory_index
from tests.integration import scheduled
from tests.integration.project import Project

DUE = ("14:31", "14:32", "14:33")
EVERY_MINUTE = {"schedule": {"every_seconds": 60}, "catch_up": "all", "overlap": "allow"}


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
async def test_each_occurrence_starts_one_run_whenever_the_power_is_lost(tmp_path: Path, step: int) -> None:
    """Lost at any write or sync after the trigger's first, and with it all rows: three occurrences have three runs."""
    project, whole = Project(tmp_path), PowerCut()
    await _first_life(project, whole)
    first = next(number for number, each in enumerate(whole.story) if each.path.startswith("triggers"))
    problems = []
    for number in range(first, len(whole.story), step):
        disk = PowerCut(number)
        was_acknowledged = await _first_life(project, disk)
        disk.lose_power()
        if (problem := await _second_life(project, disk, was_acknowledged)) is not None:
            problems.append(f"{problem} after a loss at {number}: {disk.lost_at}")

    assert problems == []
    assert len(whole.story) - first > 40


class PowerCut(FragileDisk):
    """Lose the power at an operation by its number: files of runs have other names in each life."""

    def __init__(self, number: int | None = None) -> None:
        super().__init__()
        self._number = number
        self.lost_at: Operation = END

    def _meets(self, name: str, path: str) -> bool:
        met = super()._meets(name, path)
        if len(self.story) - 1 == self._number:
            self.lost_at = self.story[-1]
            self.lose_power()
        return met


async def _first_life(project: Project, disk: PowerCut) -> bool:
    """Create a trigger, let two occurrences come, and return whether the power was there when it was answered."""
    async with scheduled.in_process(project, make_store=_stores(disk)) as service:
        added = await service.add(**EVERY_MINUTE)
        was_acknowledged = disk.left is None
        for count in (1, 2):
            await service.advance(60)
            await service.results(added["trigger_id"], count)
    return was_acknowledged


async def _second_life(project: Project, disk: PowerCut, was_acknowledged: bool) -> str | None:
    """Start again from what the disk has kept, and return what is wrong then."""
    assert disk.left is not None
    time = clock.FakeClock(scheduled.BEGIN)
    time.advance(190)
    async with scheduled.in_process(project, time, _stores(disk.left)) as service:
        found = (await service.http.get("/api/triggers")).json()
        if not found:
            return "the trigger is lost" if was_acknowledged else None
        shown = await service.until_so(found[0]["trigger_id"], _is_complete)
        runs = await service.runs()
    started = [one["run_id"] for one in shown["history"] if one["run_id"]]
    if len(runs) != len(DUE):
        return f"{len(runs)} runs"
    return None if sorted(started) == sorted(run["run_id"] for run in runs) else "the history names other runs"


def _is_complete(shown: dict[str, Any]) -> bool:
    return {one["occurrence"][11:16] for one in shown["history"]} >= set(DUE) and not shown["waiting"]


def _stores(disk: memory_disk.MemoryDisk) -> Callable[..., bootstrap.Store]:
    def make(_kept: object, _url: str, platform: bootstrap.Platform, adopt: Any) -> bootstrap.Store:
        return memory_store.MemoryStore(
            clock=platform.clock, probes=platform.probes, adopt=adopt, disk=disk, index=memory_index.MemoryIndex()
        )

    return make
