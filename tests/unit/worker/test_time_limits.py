"""Time limits: a run that has used its time is parked and can be resumed, across restarts and evictions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import decisions, records, states
from app.domain.limits import RunLimits
from app.engine import active_time
from tests import examples
from tests.unit.worker import pools, toys

Bench = pools.Bench

PAUSED = states.RunState.PAUSED


async def limited(bench: Bench, *program: toys.Step, **limits: Any) -> str:
    """Submit a run with limits."""
    return await bench.submit(*program, limits=RunLimits(**limits))


async def parked(bench: Bench, run_id: str) -> Any:
    """Wait until a run has come to rest, and return the error that parked it."""
    await bench.at_rest(run_id)
    found = (await bench.store.read(run_id)).decisions
    assert found.paused == decisions.TIME_LIMIT
    return found.pause_error


async def test_a_run_is_parked_at_its_wall_time() -> None:
    """The step in flight is cut off, the reason names the limit, and the run is not executed by a restart."""
    bench = await Bench().open()
    bench.toolbox.hold("write")
    run_id = await limited(bench, {"tool": "look"}, {"agent": "write"}, wall_seconds=60)
    await bench.executed("write/1")
    bench.advance(59)
    await pools.idle()
    before = bench.pool.view(run_id)
    bench.advance(1)
    error = await parked(bench, run_id)

    assert before is not None
    assert before.status is states.RunState.RUNNING
    assert error["code"] == "time_limit"
    assert error["detail"] == {"run_id": run_id, "limit": "wall_seconds", "limit_seconds": 60, "used_seconds": 60}
    assert await bench.status(run_id) == "paused"
    assert [event for event in await bench.kinds(run_id) if event in ("step.interrupted", "run.paused")] == [
        "step.interrupted",
        "run.paused",
    ]

    await bench.close()
    await bench.restart()
    await pools.idle()

    assert bench.toolbox.executed == ["look/1", "write/1"]
    await bench.close()


@pytest.mark.parametrize(("killed", "left"), [(True, 10), (False, 20)])
async def test_active_time_counts_across_an_interruption(killed: bool, left: int) -> None:
    """The active time of a cut step ends with the stop of its service; after a kill, when the run is taken up again."""
    bench = await Bench().open()
    bench.toolbox.hold("write")
    run_id = await limited(bench, {"agent": "write"}, active_seconds=60)
    await bench.executed("write/1")
    bench.advance(40)
    if killed:
        await bench.crash()
    else:
        await pools.soon(bench.pool.stop(0))
        await bench.store.close()
    bench.advance(10)
    await bench.restart()
    await bench.executed("write/2")
    bench.advance(left - 1)
    await pools.idle()
    before = await bench.status(run_id)
    bench.advance(1)
    error = await parked(bench, run_id)

    assert before == "running"
    assert error["detail"] == {"run_id": run_id, "limit": "active_seconds", "limit_seconds": 60, "used_seconds": 60}
    await bench.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_step_that_a_pause_cut_off_counts_once(killed: bool) -> None:
    """A cut step's active time until the pause counts, the pause does not, whether or not the service dies."""
    bench = await Bench().open()
    bench.toolbox.hold("write")
    run_id = await limited(bench, {"agent": "write"}, active_seconds=60)
    await bench.executed("write/1")
    bench.advance(40)
    await bench.pool.pause(run_id, interrupt=True)
    await bench.at_rest(run_id)
    bench.advance(1000)
    if killed:
        await bench.crash()
        await bench.restart()
    await bench.pool.unpause(run_id)
    await bench.executed("write/2")
    bench.advance(19)
    await pools.idle()
    before = await bench.status(run_id)
    bench.advance(1)
    error = await parked(bench, run_id)

    assert before == "running"
    assert error["detail"]["used_seconds"] == 60
    await bench.close()


async def test_a_step_that_ends_after_a_pause_counts_once() -> None:
    """The time of a step that ends after a pause is in its line only, also after an unpause before its end."""
    bench = await Bench().open()
    first = bench.toolbox.hold("one")
    bench.toolbox.hold("two")
    run_id = await limited(bench, {"agent": "one"}, {"agent": "two"}, active_seconds=60)
    await bench.executed("one/1")
    bench.advance(10)
    await bench.pool.pause(run_id)
    bench.advance(10)
    first.set()
    await bench.at_rest(run_id)
    bench.advance(1000)
    await bench.pool.unpause(run_id)
    await bench.executed("two/1")
    bench.advance(39)
    await pools.idle()
    before = await bench.status(run_id)
    bench.advance(1)
    error = await parked(bench, run_id)

    assert before == "running"
    assert error["detail"]["used_seconds"] == 60
    await bench.close()


async def test_wall_time_counts_across_a_kill() -> None:
    """Wall time before a kill, and while no service runs, counts."""
    bench = await Bench().open()
    bench.toolbox.hold("write")
    run_id = await limited(bench, {"agent": "write"}, wall_seconds=60)
    await bench.executed("write/1")
    bench.advance(40)
    await bench.crash()
    await bench.restart()
    await bench.executed("write/2")
    bench.advance(19)
    await pools.idle()
    assert (await bench.store.read(run_id)).decisions.paused is None
    bench.advance(1)

    assert (await parked(bench, run_id))["detail"]["used_seconds"] == 60
    await bench.close()


async def test_an_evicted_run_is_parked_too() -> None:
    """An evicted run at a gate is parked when its time is over."""
    bench = await Bench(kept_loaded=0).open()
    run_id = await limited(bench, {"gate": "go"}, wall_seconds=600)
    await bench.evicted(run_id)
    bench.advance(600)

    assert (await parked(bench, run_id))["detail"]["limit"] == "wall_seconds"
    await bench.close()


async def test_waiting_takes_no_active_time() -> None:
    """Only the time in which a step works counts, including a step that the limit cut off."""
    bench = await Bench().open()
    first, second = bench.toolbox.hold("one"), bench.toolbox.hold("two")
    program = ({"agent": "one"}, {"timer": "nap", "seconds": 1000}, {"agent": "two"})
    run_id = await limited(bench, *program, active_seconds=60)
    await bench.executed("one/1")
    bench.advance(40)
    first.set()
    await bench.until(lambda: _open(bench, run_id) == ["nap"])
    bench.advance(1000)
    await bench.executed("two/1")
    bench.advance(19)
    await pools.idle()
    assert not second.is_set()
    assert _open(bench, run_id) == ["two"]
    bench.advance(1)
    error = await parked(bench, run_id)

    assert error["detail"] == {"run_id": run_id, "limit": "active_seconds", "limit_seconds": 60, "used_seconds": 60}
    assert (await bench.store.read(run_id)).decisions.cut_seconds == 20

    await bench.pool.unpause(run_id)
    again = await parked(bench, run_id)

    assert again["detail"]["used_seconds"] == 60
    assert "two/2" not in bench.toolbox.executed
    await bench.close()


def _open(bench: Bench, run_id: str) -> list[str]:
    view = bench.pool.view(run_id)
    return [] if view is None else [step.key for step in view.open]


async def test_a_working_child_is_parked_before_its_parent() -> None:
    """A working child is parked with its parent, under the parent's limit, and does not continue alone."""
    bench = await Bench().open()
    bench.toolbox.hold("write")
    run_id = await limited(bench, {"child": "on", "program": [{"agent": "write"}]}, wall_seconds=60)
    await bench.executed("write/1")
    (child,) = [each for each in await bench.run_ids() if each != run_id]
    bench.advance(60)
    parent_error, child_error = await parked(bench, run_id), await parked(bench, child)

    assert child_error["detail"] == parent_error["detail"]
    assert parent_error["detail"]["run_id"] == run_id
    await bench.close()


@pytest.mark.parametrize("raised", [True, False])
async def test_a_queued_child_continues_with_its_resumed_parent(raised: bool) -> None:
    """Once the parent is resumed under a higher limit, its child executes; until then it is parked in its turn."""
    bench = await Bench(limit=1).open()
    busy = bench.toolbox.hold("busy")
    run_id = await limited(bench, {"child": "on", "program": [{"tool": "write"}]}, wall_seconds=60)
    other = await bench.submit({"tool": "busy"}, priority=9)
    await bench.executed("busy/1")
    (child,) = [each for each in await bench.run_ids() if each not in (run_id, other)]
    bench.advance(61)
    await parked(bench, run_id)
    if raised:
        await bench.pool.limit(run_id, RunLimits(wall_seconds=1_000))
        await bench.pool.unpause(run_id)
    busy.set()
    if raised:
        assert await bench.ended(run_id, child) == [states.RunState.DONE] * 2
    else:
        assert (await parked(bench, child))["detail"]["run_id"] == run_id
    await bench.close()


async def test_a_run_that_ends_at_its_limit_has_ended() -> None:
    """A run that ends before its limit stays done."""
    bench = await Bench().open()
    run_id = await limited(bench, {"tool": "look"}, wall_seconds=60, active_seconds=60)

    assert await bench.ended(run_id) == [states.RunState.DONE]
    bench.advance(100)
    await pools.idle()
    assert await bench.status(run_id) == "done"
    await bench.close()


async def test_wherever_a_process_dies_the_run_is_parked() -> None:
    """A process may be killed at any point from the limit to the rest: after a restart the run and its child rest."""
    passed_points = await _parking(None)
    for kill in examples.passings(passed_points):
        await _parking(kill)


async def _parking(kill: tuple[str, int] | None) -> list[str]:
    bench = await Bench().open()
    bench.toolbox.hold("write")
    bench.probes.passed_points.clear()
    run_id = await limited(bench, {"child": "on", "program": [{"agent": "write"}]}, wall_seconds=60)
    await bench.executed("write/1")
    (child,) = [each for each in await bench.run_ids() if each != run_id]
    begun = len(bench.probes.passed_points)
    left = bench.crash_when(kill[0], kill[1]) if kill else None
    bench.advance(60)
    if left is not None:
        await bench.take_over(left)
        await bench.restart()
    for each in (run_id, child):
        assert (await parked(bench, each))["detail"]["run_id"] == run_id
    passed_points = bench.probes.passed_points[begun:]
    await bench.close()
    return passed_points


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(SPANS, st.none() | st.integers(0, 80))
def test_active_time_is_the_union_of_the_tries(spans: list[tuple[int, int]], begun: int | None) -> None:
    """Each second of work counts once, in whatever order attempts end and however they overlap."""
    now = 80
    time = active_time.ActiveTime()
    for start, length in spans:
        time._add(start, start + length)
    seconds = {second for start, length in spans for second in range(start, start + length)}
    at_work = seconds if begun is None else seconds | set(range(begun, now))

    assert time.until(now, begun) == len(at_work)


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ({"body": {"kind": "gate"}}, True),
        ({"hash": "x", "kind": "child_run"}, True),
        ({"hash": "x", "blob": {}}, True),
        ({"hash": "x"}, False),
        ({"body": {"kind": "agent_call"}}, False),
    ],
)
def test_lines_that_only_wait_are_known(asked: dict[str, Any], waits: bool) -> None:
    """The operation in a line shows whether its step worked or only waited."""
    line = {"tool": None, "operation": asked}
    record = records.Record(**dict.fromkeys(records.Record.__dataclass_fields__) | {"line": line})

    assert active_time._only_waits(record) is waits
