"""Crashes: wherever a process dies, the next one brings its runs to the same end and repeats no recorded step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain import slots, views
from app.engine import dry_replay
from tests import examples
from tests.unit.worker import pools, toys

Bench = pools.Bench

PROGRAM: tuple[toys.Step, ...] = (
    {"tool": "one"},
    {"gather": {"left": [{"agent": "two"}], "right": toys.tools("three", "big")}},
    {"timer": "wait", "seconds": 0},
    {"agent": "flaky", "retry": {"max_attempts": 2, "initial_seconds": 0}, "forgiven": True},
    {"gather": {"fails": [{"tool": "failing"}], "endless": [{"endless": "more"}]}, "fail_fast": True},
)
"""A program that fails, since the first failure of the last gather cancels the other branch."""

GENTLE = PROGRAM[:-1]

POINTS = (
    "pool.queued",
    "pool.granted",
    "run.before_taken",
    "run.after_taken",
    "run.before_ended",
    "run.after_ended",
    "step.before_started",
    "step.after_started",
    "step.performing",
    "step.performed",
    "step.before_append",
    "step.after_append",
    "step.before_receipt",
    "step.after_receipt",
    "step.delivered",
    "storage.append.before_write",
    "storage.blob.before_write",
    "storage.blob.before_rename",
    "storage.blob.after_rename",
    "storage.commit.before_write",
    "storage.commit.before_sync",
    "storage.commit.after_sync",
    "storage.decide.before_write",
    "storage.events.before_append",
    "storage.events.after_append",
    "storage.move.before_row",
    "storage.move.after_row",
    "storage.receipt.before_append",
    "storage.receipt.before_row",
    "storage.receipt.after_row",
    "storage.snapshot.before_write",
    "storage.snapshot.before_rename",
    "storage.snapshot.after_rename",
)
"""The points that a run passes from its submission to its end."""


async def begin(program: tuple[toys.Step, ...]) -> tuple[Bench, str]:
    """Return an open bench whose failing steps fail, and a run that is not submitted yet."""
    bench = await Bench().open()
    bench.toolbox.fail("flaky")
    bench.toolbox.fail("failing")
    run_id = await bench.create(*program)
    bench.probes.passed_points.clear()
    return bench, run_id


async def left_by(bench: Bench, run_id: str, *, files: bool = True) -> dict[str, Any]:
    """Return the lasting results of a run, without what a power cut may take from its snapshots."""
    loaded = await bench.store.read(run_id)
    view = await dry_replay.view_of(loaded, toys.TOY, lambda blob: bench.store.read_blob(run_id, blob))
    shown = {"run.json": views.manifest(view), "cache.json": slots.snapshot(view.board.slots)}
    if files:
        shown = await bench.store.read_snapshots(run_id)
    return {
        "status": await bench.status(run_id),
        "manifest": {name: shown["run.json"][name] for name in ("status", "current_step_index", "error", "ending")},
        "records": pools.ending(loaded),
        "slots": shown["cache.json"],
    }


async def undisturbed(program: tuple[toys.Step, ...]) -> tuple[list[str], dict[str, Any]]:
    """Run a program once, and return the points that it passed and its results."""
    bench, run_id = await begin(program)
    await bench.pool.submit(run_id)
    await bench.ended(run_id)
    passed_points, left = list(bench.probes.passed_points), await left_by(bench, run_id)
    await bench.close()
    return passed_points, left


@pytest.mark.parametrize("program", [GENTLE, PROGRAM], ids=["gentle", "failing"])
async def test_the_points_are_all(program: tuple[toys.Step, ...]) -> None:
    """A run passes the points at which the other tests kill its process, and no others."""
    passed_points, _ = await undisturbed(program)

    assert set(passed_points) == set(POINTS)


@pytest.mark.parametrize("lose_unsynced", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("point", POINTS)
async def test_the_end_is_the_same_wherever_a_process_dies(point: str, lose_unsynced: bool) -> None:
    """A process may be killed at any point of engine, pool and storage: the restart reaches the same end."""
    passed_points, expected = await undisturbed(GENTLE)
    for nth in nths(passed_points, point):
        found = await disturbed(GENTLE, point, nth, lose_unsynced=lose_unsynced)

        assert found == expected, (point, nth)


@pytest.mark.parametrize("lose_unsynced", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_failing_gather_ends_the_same_too(point: str, lose_unsynced: bool) -> None:
    """A fail-fast gather with a sibling in flight fails with the same error and slots, wherever it is killed."""
    passed_points, expected = await undisturbed(PROGRAM)
    for nth in nths(passed_points, point):
        found = await disturbed(PROGRAM, point, nth, lose_unsynced=lose_unsynced)

        assert without_endless(found) == without_endless(expected), (point, nth)


def nths(passed_points: Sequence[str], point: str) -> list[int]:
    """Return at which passings of a point a test kills the process."""
    return [nth for each, nth in examples.passings(passed_points) if each == point]


def without_endless(left: dict[str, Any]) -> dict[str, Any]:
    """Return results without the steps of the endless branch: how many it makes before it is cancelled may differ."""
    return {
        "status": left["status"],
        "manifest": {name: value for name, value in left["manifest"].items() if name != "current_step_index"},
        "records": {key: value for key, value in left["records"].items() if not key.startswith("more#")},
        "slots": {key: value for key, value in left["slots"].items() if not key.startswith("more#")},
    }


async def disturbed(program: tuple[toys.Step, ...], point: str, nth: int, *, lose_unsynced: bool) -> dict[str, Any]:
    """Run a program, kill its process at a point, continue in another one, and return the results."""
    bench, run_id = await begin(program)
    left = bench.crash_when(point, nth, lose_unsynced=lose_unsynced)
    await bench.pool.submit(run_id)
    await bench.take_over(left)
    before = {(record.key, record.attempt) for record in (await _records(bench, run_id))}
    executed = list(bench.toolbox.executed)
    await bench.restart()
    await bench.ended(run_id)
    after = bench.toolbox.executed[len(executed) :]
    found = await left_by(bench, run_id, files=not lose_unsynced)
    await bench.close()

    assert not {f"{key}/{attempt}" for key, attempt in before} & set(after), (point, nth)
    assert len(set(bench.toolbox.executed)) == len(bench.toolbox.executed) or lose_unsynced, (point, nth)
    return found


async def _records(bench: Bench, run_id: str) -> Any:
    await bench.store.start()
    return (await bench.store.read(run_id)).records
