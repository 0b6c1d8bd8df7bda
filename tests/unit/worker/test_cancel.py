"""Cancel: it reaches a run in any state, and wins every race."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import states
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState

PROGRAM: tuple[toys.Step, ...] = (
    {"tool": "one"},
    {"gather": {"left": [{"agent": "two"}], "right": toys.tools("three", "four")}},
    {"timer": "wait", "seconds": 0},
    {"agent": "five"},
)


async def test_a_queued_run_is_cancelled_without_capacity() -> None:
    """A run that waits for its turn ends at once, and none of its steps is performed."""
    bench = await Bench(limit=1).open()
    keeper = await bench.keep_busy(1)
    run_id = await bench.submit(*toys.tools("one"))

    assert await bench.pool.cancel(run_id) is RunState.CANCELLED
    assert await bench.ended(run_id) == [RunState.CANCELLED]
    assert await bench.status(run_id) == "cancelled"
    assert (bench.pool.status().running, bench.pool.status().queued) == (1, 0)

    keeper.set()
    await bench.close()

    assert bench.toolbox.executed == ["busy/1"]


async def test_a_running_step_is_cut_off() -> None:
    """A cancel cuts off the step under way."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    await bench.pool.cancel(run_id)

    assert await bench.ended(run_id) == [RunState.CANCELLED]
    assert bench.toolbox.cut == ["one"]
    assert bench.toolbox.executed == ["one/1"]
    assert "run.cancel_requested" in await bench.kinds(run_id)

    await bench.close()


async def test_a_waiting_run_is_cancelled() -> None:
    """A run that waits for an answer ends without it, and its question is withdrawn."""
    bench = await Bench().open()
    run_id = await bench.submit({"gate": "ask"})
    await bench.shown(run_id, RunState.WAITING)
    await bench.pool.cancel(run_id)

    assert await bench.ended(run_id) == [RunState.CANCELLED]
    assert bench.pool.open_gates(run_id) == []

    await bench.close()


async def test_a_paused_run_is_cancelled() -> None:
    """A paused run is loaded, ended as cancelled and unloaded."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    await bench.pool.pause(run_id)
    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)
    await bench.pool.cancel(run_id)

    assert await bench.ended(run_id) == [RunState.CANCELLED]
    assert bench.toolbox.executed == ["one/1"]

    await bench.close()


async def test_cancelling_again_is_the_same() -> None:
    """A second cancel of a run that is being cancelled gets the same answer; after the end it is refused."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    released = bench.toolbox.resist("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")

    assert await asyncio.gather(*(bench.pool.cancel(run_id) for _ in range(3))) == [RunState.CANCELLED] * 3
    assert (await bench.kinds(run_id)).count("run.cancel_requested") == 1

    released.set()

    assert await bench.ended(run_id) == [RunState.CANCELLED]
    with pytest.raises(errors.WrongState):
        await bench.pool.cancel(run_id)

    await bench.close()


async def test_a_cancel_is_carried_out_after_its_caller_hangs_up() -> None:
    """A cancel whose caller hangs up is still recorded, and the run ends."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    caller = asyncio.create_task(bench.pool.cancel(run_id))
    await asyncio.sleep(0)
    caller.cancel()

    assert await bench.ended(run_id) == [RunState.CANCELLED]

    await bench.close()


async def test_a_cancelled_run_can_be_resumed() -> None:
    """A person resumes a cancelled run, which continues after its last line."""
    bench = await Bench().open()
    bench.toolbox.hold("two")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("two")
    await bench.pool.cancel(run_id)
    await bench.ended(run_id)
    bench.toolbox.hold("two").set()
    await bench.resumed(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1", "two/2"]

    await bench.close()


async def passed_points() -> list[str]:
    """Return the points that an undisturbed run passes."""
    bench = await Bench().open()
    run_id = await bench.create(*PROGRAM)
    bench.probes.passed_points.clear()
    await bench.pool.submit(run_id)
    await bench.ended(run_id)
    passed = list(bench.probes.passed_points)
    await bench.close()
    return passed


async def test_a_cancel_wins_every_race() -> None:
    """A run whose cancel was answered is never done, whenever the cancel comes; a refused cancel came after the end."""
    passed = await passed_points()
    for number, point in enumerate(passed):
        await race(point, passed[: number + 1].count(point))


async def race(point: str, nth: int) -> None:
    """Cancel a run at the nth passing of a point."""
    bench = await Bench().open()
    cancelled: list[asyncio.Task[RunState]] = []
    run_id = await bench.create(*PROGRAM)
    nth += bench.probes.count(point)
    bench.probes.at(point, nth, lambda: cancelled.append(asyncio.create_task(bench.pool.cancel(run_id))))
    await bench.pool.submit(run_id)
    ended = await bench.ended(run_id)
    await bench.until(lambda: bool(cancelled) and cancelled[0].done())
    answer = await asyncio.gather(*cancelled, return_exceptions=True)
    decisions = (await bench.store.read(run_id)).decisions
    await bench.close()

    if answer == [RunState.CANCELLED]:
        assert ended == [RunState.CANCELLED], (point, nth)
    else:
        assert isinstance(answer[0], errors.WrongState), (point, nth, answer)
        assert ended == [RunState.DONE], (point, nth)
    assert decisions.status is ended[0]
    assert len(bench.toolbox.executed) == len(set(bench.toolbox.executed))
