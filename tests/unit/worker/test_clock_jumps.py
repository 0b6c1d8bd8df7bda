"""Clock jumps: only the times that a run shows depend on the wall clock, which jumps back and forth."""

from __future__ import annotations

import random

import pytest

from app.domain import states
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState

DAY = 86_400.0
PROGRAM: tuple[toys.Step, ...] = (
    {"tool": "one"},
    {"agent": "flaky", "retry": {"max_attempts": 3, "initial_seconds": 30}},
    {"timer": "wait", "seconds": 600},
    {"gather": {"left": [{"agent": "two"}], "right": toys.tools("three")}},
)


@pytest.mark.parametrize("seed", range(6))
async def test_a_jumping_clock_neither_stops_nor_repeats_anything(seed: int) -> None:
    """With jumps of hours before each minute, runs end as usual: no step is repeated, no duration is negative."""
    chance = random.Random(seed)
    bench = await Bench().open()
    run_ids = [await bench.submit(*PROGRAM) for _ in range(3)]
    for _ in range(40):
        bench.clock.jump(chance.uniform(-DAY, DAY))  # type: ignore[attr-defined]
        bench.advance(60)
        await pools.idle()

    assert await bench.ended(*run_ids) == [RunState.DONE] * 3
    assert sorted(bench.toolbox.executed) == sorted(["one/1", "flaky/1", "two/1", "three/1"] * 3)
    for run_id in run_ids:
        loaded = await bench.store.read(run_id)
        numbers = [event.seq for event in await bench.store.read_events(run_id)]

        assert numbers == sorted(set(numbers))
        assert all(record.line["duration_ms"] >= 0 for record in loaded.records)

    await bench.close()


@pytest.mark.parametrize("jump", [-DAY, DAY])
async def test_a_jump_while_a_timer_runs_does_not_move_its_end(jump: float) -> None:
    """A running timer of ten minutes ends after ten minutes, even if the wall clock jumps meanwhile."""
    bench = await Bench().open()
    run_id = await bench.submit({"timer": "wait", "seconds": 600}, {"tool": "after"})
    await bench.until(lambda: bench.clock.next_wake_seconds() is not None)  # type: ignore[attr-defined]
    bench.clock.jump(jump)  # type: ignore[attr-defined]
    bench.advance(599)
    await pools.idle()
    before = list(bench.toolbox.executed)
    bench.advance(2)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert (before, bench.toolbox.executed) == ([], ["after/1"])

    await bench.close()


async def test_a_clock_set_forth_over_a_restart_ends_the_timer() -> None:
    """After a restart a timer ends at its due time on the wall clock, at once if that has passed."""
    bench = await Bench().open()
    run_id = await bench.submit({"timer": "wait", "seconds": 600}, {"tool": "after"})
    await bench.until(lambda: bench.clock.next_wake_seconds() is not None)  # type: ignore[attr-defined]
    await bench.crash()
    bench.clock.jump(DAY)  # type: ignore[attr-defined]
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_clock_set_back_over_a_restart_loses_no_order() -> None:
    """After a restart with the clock set back, a cancelled run is cancelled and a begun one continues."""
    bench = await Bench().open()
    bench.toolbox.hold("held")
    going, stopped = [await bench.submit(*toys.tools("first", "held")) for _ in range(2)]
    await bench.executed("held/1")
    await bench.pool.cancel(stopped)
    await bench.crash()
    bench.clock.jump(-30 * DAY)  # type: ignore[attr-defined]
    bench.toolbox.hold("held").set()
    await bench.restart()

    assert await bench.ended(going, stopped) == [RunState.DONE, RunState.CANCELLED]
    numbers = [event.seq for event in await bench.store.read_events(going)]
    assert numbers == sorted(set(numbers))

    await bench.close()
