"""Gates under crashes: a process dies between any two writes while a gate opens, waits, or gets its answer."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import gates, states
from tests import examples
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState

PROGRAM: tuple[toys.Step, ...] = (
    {"tool": "one"},
    {"gate": "ask", "default": "deny", "expires_seconds": 100, "stops": True},
    {"tool": "two"},
)
APPROVE = gates.Answer(decision="approve", message="go on", idempotency_key="k")


async def execute(bench: Bench) -> str:
    """Run the program to its end, with its gate approved."""
    run_id = await bench.submit(*PROGRAM)
    # Without a time limit: Python 3.11 may lose the cancellation of a task that waits under one.
    while not bench.pool.open_gates(run_id):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await bench.pool.deliver(run_id, "ask", APPROVE)
    bench.probes.passed_points.append("answered")
    await bench.pool.ended(run_id)
    return run_id


async def disturbed(point: str, nth: int, lose_unsynced: bool) -> None:
    """Crash at a point, restart, and check that an accepted answer is valid and a lost one can be repeated."""
    bench = await Bench().open()
    left = bench.crash_when(point, nth, lose_unsynced=lose_unsynced)
    executing = asyncio.create_task(execute(bench))
    await bench.take_over(left)
    await asyncio.gather(executing, return_exceptions=True)
    accepted = "answered" in bench.points_before_crash
    await bench.restart()
    run_ids = await bench.run_ids()
    if run_ids:
        await bench.until(lambda: bool(bench.pool.open_gates(run_ids[0])) or run_ids[0] not in bench.active.active_runs)
        open_again = bench.pool.open_gates(run_ids[0])

        assert not (accepted and open_again), (point, nth)
        assert [gate.gate_id for gate in open_again] in ([], [gates.gate_id(run_ids[0], "ask", 1)])

        if open_again:
            await pools.soon(bench.pool.deliver(run_ids[0], "ask", APPROVE))
        await bench.at_rest(run_ids[0])
        lines = (await bench.store.read(run_ids[0])).records

        assert await bench.status(run_ids[0]) == "done", (point, nth)
        assert [line.key for line in lines] == ["one", "ask", "two"]

    await bench.close()


@pytest.mark.parametrize("lose_unsynced", [False, True], ids=["process", "power"])
async def test_an_answer_is_given_or_not(lose_unsynced: bool) -> None:
    """After a crash at any point an accepted answer is valid, and a lost one can be given to the same gate again."""
    bench = await Bench().open()
    bench.probes.passed_points.clear()
    await execute(bench)
    passed_points = [point for point in bench.probes.passed_points if point != "answered"]
    await bench.close()
    for point, nth in examples.passings(passed_points):
        await disturbed(point, nth, lose_unsynced)


async def test_two_answers_race_through_a_crash() -> None:
    """Of two answers under way when the process died, at most one is recorded."""
    bench = await Bench().open()
    run_id = await bench.submit(*PROGRAM)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))
    left = bench.crash_when("step.after_append", 1)
    given = [
        asyncio.create_task(bench.pool.deliver(run_id, "ask", gates.Answer(decision=decision)))
        for decision in ("approve", "deny")
    ]
    await bench.take_over(left)
    await asyncio.gather(*given, return_exceptions=True)
    await bench.restart()
    with pytest.raises(errors.Conflict) as late:
        await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="deny")))

    assert late.value.code == "gate_decided"
    assert await bench.ended(run_id) == [RunState.DONE]
    assert pools.ending(await bench.store.read(run_id))["ask"][1]["decision"] == "approve"

    await bench.close()
