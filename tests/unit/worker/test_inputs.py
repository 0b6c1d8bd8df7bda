"""Inputs: a step waits for a delivery from outside; the first one is valid, also across crashes and restarts."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import gates, inputs, records, states
from tests import examples
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState

SHOWN = {"tasks": ["sweep"] * 1000}
"""The document shown with an input, too large for a journal line."""
PROGRAM: tuple[toys.Step, ...] = ({"input": "input#1", "shown": SHOWN}, {"input": "input#2"}, {"tool": "last"})
FIRST = inputs.Delivery(value={"order": [2, 1]}, author="ann", idempotency_key="k")
SECOND = inputs.Delivery(value="x" * 100_000, author="ben", idempotency_key="k")


async def waiting(bench: Bench, run_id: str, key: str) -> None:
    """Wait until a run waits for an input."""
    await bench.until(lambda: bench.pool._inputs.is_open(run_id, key))


async def submitted(bench: Bench) -> str:
    """Submit the program, and wait for its first input."""
    run_id = await bench.submit(*PROGRAM)
    await waiting(bench, run_id, "input#1")
    return run_id


async def delivered(bench: Bench, run_id: str, key: str, delivery: inputs.Delivery) -> records.Record:
    """Deliver to a run."""
    return await pools.soon(bench.pool.deliver(run_id, key, delivery))


async def test_a_delivery_is_a_journal_line() -> None:
    """A delivery's value and author are its step's output, durable when accepted; a waiting run has no capacity."""
    bench = await Bench(limit=1).open()
    run_id = await submitted(bench)
    other = await bench.submit(*toys.tools("other"))

    assert await bench.ended(other) == [RunState.DONE]
    assert await bench.status(run_id) == "waiting"
    assert bench.pool.open_gates() == []

    line = await delivered(bench, run_id, "input#1", FIRST)

    assert line.output == {"value": {"order": [2, 1]}, "author": "ann", "idempotency_key": "k"}
    assert [each.output for each in (await bench.store.read(run_id)).records] == [line.output]

    await waiting(bench, run_id, "input#2")
    await delivered(bench, run_id, "input#2", SECOND)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["other/1", "last/1"]

    await bench.close()


@pytest.mark.parametrize("delivery", [FIRST, SECOND])
async def test_a_delivery_counts_once(delivery: inputs.Delivery) -> None:
    """A repeated delivery under its key gets the same line, before and after the run's end; another one does not."""
    bench = await Bench().open()
    run_id = await submitted(bench)
    lines = await asyncio.gather(*(bench.pool.deliver(run_id, "input#1", delivery) for _ in range(3)))
    later = await delivered(bench, run_id, "input#1", delivery)
    await waiting(bench, run_id, "input#2")
    await delivered(bench, run_id, "input#2", inputs.Delivery(value=None))
    await bench.ended(run_id)
    last = await delivered(bench, run_id, "input#1", delivery)

    assert {line.position for line in (*lines, later, last)} == {0}
    for other in (inputs.Delivery(value=1), inputs.Delivery(value=1, idempotency_key="k")):
        with pytest.raises(errors.Conflict) as decided:
            await bench.pool.deliver(run_id, "input#1", other)

        assert decided.value.code == "input_decided"

    await bench.close()


async def test_a_delivery_to_another_step_is_refused() -> None:
    """A step that is not open, unknown or not an input takes no delivery, and an input takes no gate's answer."""
    bench = await Bench().open()
    run_id = await bench.submit({"tool": "one"}, {"gate": "ask"}, *PROGRAM)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))
    for key in ("one", "input#1", "other"):
        with pytest.raises(errors.NotFound) as unknown:
            await bench.pool.deliver(run_id, key, FIRST)

        assert unknown.value.code == "input_not_found"

    await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))
    await waiting(bench, run_id, "input#1")
    with pytest.raises(errors.Conflict) as lapsed:
        await bench.pool.deliver(run_id, "input#1", FIRST, attempt=2)

    assert lapsed.value.code == "input_lapsed"
    with pytest.raises(errors.NotFound) as gate:
        await bench.pool.deliver("20260210T143000Z-nobody", "input#1", FIRST)

    assert gate.value.code == "run_not_found"

    await bench.close()


async def test_an_evicted_run_and_one_in_the_queue_take_deliveries() -> None:
    """An evicted run is loaded for its delivery, and so is a queued run after a restart."""
    bench = await Bench(limit=1, kept_loaded=0).open()
    run_id = await submitted(bench)
    await bench.evicted(run_id)
    await delivered(bench, run_id, "input#1", FIRST)
    await waiting(bench, run_id, "input#2")
    busy = await bench.keep_busy(1)
    await bench.crash()
    bench.toolbox.busy = 0
    await bench.restart()
    await bench.until(lambda: bench.toolbox.busy == 1)
    await delivered(bench, run_id, "input#2", SECOND)
    busy.set()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def execute(bench: Bench) -> str:
    """Run the program to its end."""
    run_id = await bench.submit(*PROGRAM)
    for key, delivery in (("input#1", FIRST), ("input#2", SECOND)):
        while not bench.pool._inputs.is_open(run_id, key):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await bench.pool.deliver(run_id, key, delivery)
        bench.probes.passed_points.append(f"accepted {key}")
    await bench.pool.ended(run_id)
    return run_id


async def disturbed(point: str, nth: int, lose_unsynced: bool) -> None:
    """Crash at a point, restart, and repeat a delivery that was not accepted."""
    bench = await Bench().open()
    left = bench.crash_when(point, nth, lose_unsynced=lose_unsynced)
    executing = asyncio.create_task(execute(bench))
    await bench.take_over(left)
    await asyncio.gather(executing, return_exceptions=True)
    accepted = [each.removeprefix("accepted ") for each in bench.points_before_crash if each.startswith("accepted ")]
    await bench.restart()
    for run_id in await bench.run_ids():
        known = [line.key for line in (await bench.store.read(run_id)).records]

        assert known[: len(accepted)] == accepted, (point, nth)

        for key, delivery in (("input#1", FIRST), ("input#2", SECOND)):
            if key not in known:
                await waiting(bench, run_id, key)
            await delivered(bench, run_id, key, delivery)
        await bench.at_rest(run_id)
        lines = (await bench.store.read(run_id)).records

        assert await bench.status(run_id) == "done", (point, nth)
        assert [line.key for line in lines] == ["input#1", "input#2", "last"]
        assert lines[0].output == FIRST.output()

    await bench.close()


@pytest.mark.parametrize("lose_unsynced", [False, True], ids=["process", "power"])
async def test_a_delivery_is_accepted_or_not(lose_unsynced: bool) -> None:
    """After a crash at any point an accepted delivery is valid, and any delivery can be repeated."""
    bench = await Bench().open()
    bench.probes.passed_points.clear()
    await execute(bench)
    passed_points = [point for point in bench.probes.passed_points if not point.startswith("accepted")]
    await bench.close()
    for point, nth in examples.passings(passed_points):
        await disturbed(point, nth, lose_unsynced)


async def test_another_document_is_another_input() -> None:
    """A driver that shows another document under the key of a recorded input does not fit its journal."""
    bench = await Bench().open()
    run_id = await submitted(bench)
    await delivered(bench, run_id, "input#1", FIRST)
    await pools.soon(bench.pool.cancel(run_id))
    await bench.at_rest(run_id)
    changed = [{"input": "input#1", "shown": {"tasks": []}}, *PROGRAM[1:]]
    with pytest.raises(errors.RequestInvalid) as other:
        await bench.resumed(run_id, overrides={"args": {"program": changed}})

    assert "input#1" in other.value.message

    await bench.close()
