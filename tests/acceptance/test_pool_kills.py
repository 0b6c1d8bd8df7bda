"""A pool over real folders, killed by SIGKILL at named points and started again."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance import small_service
from tests.unit.worker import toys

FIRST: tuple[toys.Step, ...] = (
    {"tool": "one"},
    {"gather": {"left": [{"agent": "two"}], "right": toys.tools("three", "big")}},
    {"timer": "wait", "seconds": 0.01},
    {"agent": "four"},
)
SECOND: tuple[toys.Step, ...] = ({"agent": "five"}, {"tool": "six"})
PROGRAMS = (FIRST, SECOND)

Kill = tuple[str, int]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counter[str], small_service.Outcome]:
    """Run the programs once, and return the passed points and the results."""
    folder = tmp_path_factory.mktemp("undisturbed")

    assert small_service.serve(folder, PROGRAMS) == 0

    return small_service.passings(folder), asyncio.run(small_service.outcome(folder))


def check(folder: Path, kill: Kill, expected: small_service.Outcome) -> str | None:
    """Kill a service at a point, start it again, and return the fault found afterwards."""
    shutil.copytree(folder.parent / "prepared", folder)
    died = small_service.serve(folder, PROGRAMS, f"{kill[0]}:{kill[1]}")
    recorded, executed = small_service.recorded(folder), small_service.executed(folder)
    if died not in (0, -signal.SIGKILL) or small_service.serve(folder, PROGRAMS) != 0:
        return f"{kill}: the service ended with {died}"
    if (found := asyncio.run(small_service.outcome(folder))) != expected:
        return f"{kill}: {found} in place of {expected}"
    again = recorded.intersection(small_service.executed(folder)[len(executed) :])
    return f"{kill}: {again} was recorded and executed again" if again else None


def kills(passed: Counter[str], *, every: bool) -> list[Kill]:
    """Return the passings to kill at: all, or the middle one of every sixth point."""
    return [
        (point, nth)
        for point, count in sorted(passed.items())[:: 1 if every else 6]
        for nth in (range(1, count + 1) if every else [(count + 1) // 2])
    ]


def sweep(folder: Path, undisturbed: tuple[Counter[str], small_service.Outcome], *, every: bool) -> list[str]:
    """Kill at every chosen point and return the faults."""
    passed, expected = undisturbed
    small_service.prepare(folder / "prepared")
    jobs = [(folder / str(number), kill) for number, kill in enumerate(kills(passed, every=every))]
    found = small_service.side_by_side(jobs, lambda job: check(job[0], job[1], expected))
    return [wrong for wrong in found if wrong]


def test_a_sample_of_kills(tmp_path: Path, undisturbed: tuple[Counter[str], small_service.Outcome]) -> None:
    """Killed at the middle passing of every sixth point, the service ends its runs as if undisturbed."""
    assert sweep(tmp_path, undisturbed, every=False) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_kill(tmp_path: Path, undisturbed: tuple[Counter[str], small_service.Outcome]) -> None:
    """Killed at any passing of any point, the service ends its runs as if undisturbed."""
    assert sweep(tmp_path, undisturbed, every=True) == []
