"""Runs that rest: after a restart a run at gates waits again, restored from its journals alone."""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.domain import gates, states
from app.storage import layout
from tests.unit.worker import failing, pools, toys

Bench = pools.Bench
RunState = states.RunState

ASKING: tuple[toys.Step, ...] = ({"tool": "one"}, {"gate": "ask"}, {"tool": "two"})
APPROVE = gates.Answer(decision="approve")


async def restarted(program: tuple[toys.Step, ...] = ASKING, **facts: object) -> tuple[Bench, str]:
    """Return a bench that was killed while a run waited at its gate, and runs again."""
    bench, run_id = await killed(program, **facts)
    return await bench.restart(), run_id


async def killed(program: tuple[toys.Step, ...] = ASKING, **facts: object) -> tuple[Bench, str]:
    """Return a bench that was killed while a run waited at its gate, with all its files written."""
    bench = await Bench(kept_loaded=0).open()
    run_id = await bench.submit(*program, **facts)
    await bench.evicted(run_id)
    await bench.crash()
    return bench, run_id


def written(bench: Bench, run_id: str) -> dict[str, bytes]:
    """Return the journals and events of a run."""
    names = (layout.STEPS, layout.CONTROL, layout.EVENTS)
    return {name: bench.store.disk.read(f"{layout.run_folder(run_id)}/{name}") for name in names}


async def test_a_run_at_a_gate_waits_again_without_being_loaded() -> None:
    """The run opens no folder, executes no step and writes no line, and its gate is in the inbox with the same id."""
    bench, run_id = await killed()
    before = written(bench, run_id)
    await bench.restart()
    await bench.until(lambda: bench.rests_unread(run_id))
    (asked,) = bench.pool.open_gates(run_id)
    standing = bench.pool.standing(run_id)

    assert (asked.gate_id, asked.attempt) == (gates.gate_id(run_id, "ask", 1), 1)
    assert standing is not None
    assert (standing.status, [step.key for step in standing.open]) == (RunState.WAITING, ["ask"])
    assert (bench.pool.status().idle, bench.pool.status().queued) == (1, 0)
    assert bench.store._parts.opener.logs == {}
    assert written(bench, run_id) == before

    await bench.close()


async def test_a_pool_settles_when_it_waits_again() -> None:
    """A pool has settled when it has read every run that was found waiting."""
    bench, run_id = await restarted()
    await pools.soon(bench.pool.wait_idle())

    assert bench.rests_unread(run_id)

    await bench.close()


async def test_runs_of_plans_are_not_counted() -> None:
    """Of a person's run and the run of a plan, which both wait, only the first is counted, until it ends."""
    bench, run_id = await restarted()
    plan = await bench.submit(*ASKING, run_id="sp_20260210_aaaaaa")
    await bench.shown(plan, RunState.WAITING)
    await bench.until(lambda: bench.pool.status().idle == 1)
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE, 1))
    await bench.ended(run_id)
    await bench.at_rest(run_id)

    assert (bench.pool.status().running, bench.pool.status().queued, bench.pool.status().idle) == (0, 0, 0)

    await bench.close()


async def test_an_answer_takes_it_up() -> None:
    """The answer loads the run: the process takes it up, opens the gate under the same attempt and continues."""
    bench, run_id = await restarted()
    await bench.until(lambda: bench.rests_unread(run_id))
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE, 1))

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]
    loaded = await bench.store.read(run_id)
    assert (loaded.decisions.taken, loaded.decisions.highest_attempt["ask"]) == (2, 1)

    await bench.close()


async def test_a_cancel_ends_it() -> None:
    """A cancel of a run that rests ends it, and its gate is gone."""
    bench, run_id = await restarted()
    await bench.until(lambda: bench.rests_unread(run_id))
    await pools.soon(bench.pool.cancel(run_id))

    assert await bench.ended(run_id) == [RunState.CANCELLED]
    assert bench.pool.open_gates() == []

    await bench.close()


async def test_a_lost_question_event_is_written_again() -> None:
    """If a power cut has taken the event of an open gate, the run is loaded and writes the event again."""
    bench, run_id = await killed()
    path = f"{layout.run_folder(run_id)}/{layout.EVENTS}"
    kept = [line for line in bench.store.disk.read(path).splitlines(keepends=True) if b"gate.opened" not in line]
    bench.store.disk.write(path, b"".join(kept), sync=True)
    await bench.restart()
    await bench.shown(run_id, RunState.WAITING)
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE))
    await bench.ended(run_id)

    assert (await bench.kinds(run_id)).count("gate.opened") == 1

    await bench.close()


@pytest.mark.parametrize(
    "program",
    [
        ({"gate": "ask", "default": "deny", "expires_seconds": 100},),
        ({"gather": {"a": [{"gate": "ask"}], "b": [{"timer": "long", "seconds": 100}]}},),
    ],
    ids=["a time", "a timer beside it"],
)
async def test_a_run_with_a_due_time_is_loaded(program: tuple[toys.Step, ...]) -> None:
    """A run with a due time is loaded after a restart."""
    bench, run_id = await restarted(program)
    await bench.until(lambda: bench.pool.view(run_id) is not None)

    assert not bench.rests_unread(run_id)

    await pools.soon(bench.pool.cancel(run_id))
    await bench.close()


async def held_back(program: tuple[toys.Step, ...] = ASKING) -> tuple[Bench, str, failing.LateReads, asyncio.Event]:
    """Return a bench that was killed, runs again and has not read the waiting run yet."""
    bench, run_id = await killed(program)
    store = failing.LateReads(clock=bench.clock, disk=bench.store.disk, index=bench.store.index)
    let = store.let_read()
    bench.take_store(store)
    await bench.open()
    return bench, run_id, store, let


async def test_an_order_that_comes_before_it_is_read_does_not_lose_it() -> None:
    """An order that finds the run's folder unreadable is refused, and the run waits again once it can be read."""
    bench, run_id, store, let = await held_back()
    store.bad = True
    with pytest.raises(errors.Unreadable):
        await bench.pool.pause(run_id)
    store.bad = False
    let.set()
    await bench.advance_until(lambda: bench.pool.view(run_id) is not None)
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE))

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_run_with_an_unreadable_output_waits_again_later() -> None:
    """A run whose question depends on an output that cannot be read now waits again once it can."""
    bench, run_id, store, let = await held_back(({"tool": "big", "reads": True}, {"gate": "ask"}))
    store.bad = True
    let.set()
    await bench.at_rest(run_id)
    store.bad = False

    assert not bench.pool.status().stopping

    await bench.advance_until(lambda: bench.pool.view(run_id) is not None)
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE))

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()
