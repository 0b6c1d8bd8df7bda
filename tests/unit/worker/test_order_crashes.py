"""Orders under crashes: a process dies between any two writes of a cancel, a pause, an unpause or a resume."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from app import errors
from app.domain import states
from app.engine import run_engine
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An order, the run before it, and the state of the run when it is carried out."""

    before: Callable[[Bench], Awaitable[str]]
    """Bring a run to the place of the order; works again after a restart."""
    order: Callable[[Bench, str], Awaitable[RunState]]
    """The order."""
    state: str
    """The run's state in the index in the end."""
    durable: str
    """The point from which on the order must have its effect without being repeated."""


async def running(bench: Bench) -> str:
    """Return a run whose first step is under way, and slow."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    return run_id


async def queued(bench: Bench) -> str:
    """Return a run that waits for capacity."""
    await bench.keep_busy(1)
    return await bench.submit(*toys.tools("one", "two"))


async def paused(bench: Bench) -> str:
    """Return a run that rests after its first step."""
    run_id = await running(bench)
    await bench.pool.pause(run_id)
    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)
    return run_id


async def failed(bench: Bench) -> str:
    """Return a run whose second step failed, and would succeed now."""
    bench.toolbox.fail("two")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.ended(run_id)
    bench.toolbox.mend("two")
    return run_id


async def cancel(bench: Bench, run_id: str) -> RunState:
    """Cancel."""
    return await bench.pool.cancel(run_id)


async def pause(bench: Bench, run_id: str) -> RunState:
    """Pause the run, and let the step under way end."""
    answer = await bench.pool.pause(run_id)
    bench.toolbox.hold("one").set()
    return answer


async def unpause(bench: Bench, run_id: str) -> RunState:
    """Unpause."""
    return await bench.pool.unpause(run_id)


async def resume(bench: Bench, run_id: str) -> RunState:
    """Resume."""
    return await bench.resumed(run_id)


async def done(bench: Bench) -> str:
    """Return a run that has ended as done."""
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.ended(run_id)
    return run_id


async def label(bench: Bench, run_id: str) -> RunState:
    """Label and pin."""
    await bench.pool.mark(run_id, run_engine.Marks(labels={"book": "one"}, pinned=True))
    bench.toolbox.hold("one").set()
    bench.toolbox.hold("busy").set()
    await bench.at_rest(run_id)
    assert (await bench.store.read(run_id)).start.labels == {"book": "one"}
    return RunState.DONE


CASES = {
    "cancel running": Case(before=running, order=cancel, state="cancelled", durable="pool.after_cancel"),
    "cancel queued": Case(before=queued, order=cancel, state="cancelled", durable="pool.after_cancel"),
    "cancel paused": Case(before=paused, order=cancel, state="cancelled", durable="pool.after_cancel"),
    "pause running": Case(before=running, order=pause, state="paused", durable="pool.after_pause"),
    "pause queued": Case(before=queued, order=pause, state="paused", durable="pool.after_pause"),
    "unpause": Case(before=paused, order=unpause, state="done", durable="pool.after_unpause"),
    "label running": Case(before=running, order=label, state="done", durable="pool.after_labels"),
    "label queued": Case(before=queued, order=label, state="done", durable="pool.after_labels"),
    "label done": Case(before=done, order=label, state="done", durable="pool.after_labels"),
    "resume": Case(before=failed, order=resume, state="done", durable="pool.after_resume"),
}


async def carried_out(case: Case) -> list[str]:
    """Carry an order out without a crash, and return the points passed."""
    bench = await Bench(limit=1).open()
    run_id = await case.before(bench)
    bench.probes.passed_points.clear()
    await case.order(bench, run_id)
    await bench.at_rest(run_id)
    passed_points = list(bench.probes.passed_points)

    assert await bench.status(run_id) == case.state

    await bench.crash()
    return passed_points


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lose_unsynced", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("name", CASES)
async def test_an_order_is_given_or_not(name: str, lose_unsynced: bool, every: int) -> None:
    """After a crash a written order is valid, and any other can be given again; the end is the same.

    A sample tries every seventh point, each order another seventh of them.
    """
    case = CASES[name]
    passed_points = await carried_out(case)
    for number, point in enumerate(passed_points):
        if (number + list(CASES).index(name)) % every:
            continue
        await disturbed(name, point, passed_points[: number + 1].count(point), lose_unsynced)


async def disturbed(name: str, point: str, nth: int, lose_unsynced: bool) -> None:
    """Crash while an order is carried out, restart, and check that the order is valid or can be repeated."""
    case = CASES[name]
    bench = await Bench(limit=1).open()
    run_id = await case.before(bench)
    left = bench.crash_when(point, nth, lose_unsynced=lose_unsynced)
    given = asyncio.create_task(_quietly(case.order(bench, run_id)))
    await bench.take_over(left)
    await asyncio.gather(given, return_exceptions=True)
    await bench.restart()
    if case.durable not in bench.points_before_crash:
        await _quietly(case.order(bench, run_id))
    bench.toolbox.hold("one").set()
    bench.toolbox.hold("busy").set()
    await bench.at_rest(run_id)

    assert await bench.status(run_id) == case.state, (point, nth)
    assert not name.startswith("label") or await _labels(bench, run_id) == [{"book": "one"}] * 2, (point, nth)

    await bench.close()


async def _labels(bench: Bench, run_id: str) -> list[dict[str, str]]:
    # In the row, once doubtful rows are read again, and in the journal.
    assert bench.store._counting is not None
    assert bench.store._counting._task is not None
    await asyncio.wait([bench.store._counting._task])
    return [dict((await bench.store.summary(run_id)).labels), dict((await bench.store.read(run_id)).start.labels)]


async def _quietly(order: Awaitable[RunState]) -> None:
    # A repeated order that is valid already is refused; over a dead store it fails.
    with contextlib.suppress(errors.WrongState, errors.WriteFailed):
        await order
