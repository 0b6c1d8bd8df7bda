"""Triggers on a disk that loses power at every operation, one after the other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app import clock
from tests.integration import powercuts, scheduled
from tests.integration.project import Project

DUE = ("14:31", "14:32", "14:33")
EVERY_MINUTE = {"schedule": {"every_seconds": 60}, "catch_up": "all", "overlap": "allow"}


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
async def test_each_occurrence_starts_one_run_whenever_the_power_is_lost(tmp_path: Path, step: int) -> None:
    """Three occurrences have three runs after a power loss at any write or sync after the trigger's first."""
    project = Project(tmp_path)
    problems, count = await powercuts.sweep(
        "triggers", step, partial(_first_life, project), partial(_second_life, project)
    )

    assert problems == []
    assert count > 40


async def _first_life(project: Project, disk: powercuts.PowerCut) -> bool:
    """Create a trigger, let two occurrences pass, and return whether the trigger was acknowledged before the loss."""
    async with scheduled.in_process(project, make_store=powercuts.stores(disk)) as service:
        added = await service.add(**EVERY_MINUTE)
        was_acknowledged = disk.left is None
        for count in (1, 2):
            await service.advance(60)
            await service.results(added["trigger_id"], count)
    return was_acknowledged


async def _second_life(project: Project, disk: powercuts.PowerCut, was_acknowledged: bool) -> str | None:
    """Start again from the content of the disk, and return the problems."""
    assert disk.left is not None
    time = clock.FakeClock(scheduled.BEGIN)
    time.advance(190)
    async with scheduled.in_process(project, time, powercuts.stores(disk.left)) as service:
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
