"""Stalled runs: a silence is reported once, also for an evicted run, and ends with the next output."""

from __future__ import annotations

import pytest

from app.domain import states
from tests.unit.worker import pools

Bench = pools.Bench


async def stalled(bench: Bench, run_id: str) -> int:
    """Return how often a run was reported as stalled."""
    return (await bench.kinds(run_id)).count("run.stalled")


async def test_each_silence_causes_one_event() -> None:
    """Each silence causes one event; output ends it, and the step continues."""
    bench = await Bench(stalled_after_seconds=60).open()
    held = bench.toolbox.hold("write")
    run_id = await bench.submit({"agent": "write"})
    await bench.executed("write/1")
    counts, shown = [], []
    for seconds in (45, 15, 60, 60):
        bench.advance(seconds)
        await pools.idle()
        view = bench.pool.view(run_id)
        assert view is not None
        counts.append((seconds, bench.pool.status().stalled))
        shown.append(view.open[0].stalled)
    (wait,) = bench.pool.waits(run_id) or ()
    assert wait.step is not None
    wait.step.output_at = bench.clock.now()
    bench.advance(15)
    await pools.idle()
    (resumed,) = bench.pool.waits(run_id) or ()
    bench.advance(60)
    await pools.idle()
    held.set()

    assert counts == [(45, 0), (15, 1), (60, 1), (60, 1)]
    assert shown[0] is None
    assert shown[1] is not None
    assert (shown[1].key, shown[1].silent_seconds) == ("write", 60)
    assert shown[1] == shown[3]
    assert resumed.step is not None
    assert await bench.ended(run_id) == [states.RunState.DONE]
    assert await stalled(bench, run_id) == 2
    await bench.close()


@pytest.mark.parametrize("jump_seconds", [28_800, -28_800])
async def test_silence_is_not_measured_by_the_wall_clock(jump_seconds: float) -> None:
    """Time in which the machine was suspended or its clock was set does not count as an agent's silence."""
    bench = await Bench(stalled_after_seconds=60).open()
    held = bench.toolbox.hold("write")
    await bench.submit({"agent": "write"})
    await bench.executed("write/1")
    counts = []
    for seconds in (0, jump_seconds, jump_seconds, 0):
        bench.clock.jump(seconds)  # type: ignore[attr-defined]
        bench.advance(15)
        await pools.idle()
        counts.append(bench.pool.status().stalled)
    held.set()

    assert counts == [0, 0, 0, 1]
    await bench.close()


async def test_an_evicted_run_is_loaded_for_its_silence_event() -> None:
    """A run that was evicted while its agent works is loaded for the event."""
    bench = await Bench(stalled_after_seconds=600, kept_loaded=0).open()
    held = bench.toolbox.hold("write")
    run_id = await bench.submit({"agent": "write"})
    await bench.executed("write/1")
    await bench.evicted(run_id)
    bench.advance(600)
    await bench.until(lambda: bench.pool.status().stalled == 1)
    await pools.idle()
    held.set()

    assert await bench.ended(run_id) == [states.RunState.DONE]
    assert await stalled(bench, run_id) == 1
    await bench.close()


async def test_a_waiting_step_is_never_stalled() -> None:
    """A gate, a timer and a tool are silent by nature and never stalled."""
    bench = await Bench(stalled_after_seconds=60).open()
    run_id = await bench.submit({"gate": "go"})
    await bench.shown(run_id, states.RunState.WAITING)
    bench.advance(600)
    await pools.idle()

    assert bench.pool.status().stalled == 0
    assert await stalled(bench, run_id) == 0
    await bench.close()
