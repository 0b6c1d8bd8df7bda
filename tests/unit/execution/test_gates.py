"""
Gates: a question waits for a person, and the first answer counts.
"""

from __future__ import annotations

import asyncio

import pytest

from app import errors
from app.engine import states
from tests.unit.execution import pools, toys

Bench = pools.Bench
RunState = states.RunState

ASKING: tuple[toys.Step, ...] = ({"tool": "one"}, {"gate": "ask"}, {"tool": "two"})


async def asked(bench: Bench, *program: toys.Step) -> str:
    """
    Submit a run and wait until it waits.
    """
    run_id = await bench.submit(*program)
    await bench.shown(run_id, RunState.WAITING)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))
    return run_id


async def test_an_answer_lets_the_run_go_on() -> None:
    """The run waits without a seat; the answer is its step's record, durable when it is accepted."""
    bench = await Bench(limit=1).open()
    run_id = await asked(bench, *ASKING)
    other = await bench.submit(*toys.tools("other"))

    assert await bench.ended(other) == [RunState.DONE]
    assert await bench.status(run_id) == "waiting"
    (gate,) = bench.pool.open_gates(run_id)
    assert (gate.key, gate.gate.prompt, gate.expires_at) == ("ask", "ask", None)

    await pools.soon(bench.pool.decide(run_id, "ask", "approve", "go on"))

    assert pools.ending(await bench.store.read(run_id))["ask"] == (
        "done",
        {"decision": "approve", "message": "go on", "by_default": False},
    )
    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_the_first_answer_wins() -> None:
    """Of two answers one is recorded, and the other is told that it came second; so is one after the end."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    answers = await asyncio.gather(
        bench.pool.decide(run_id, "ask", "approve"),
        bench.pool.decide(run_id, "ask", "deny"),
        return_exceptions=True,
    )

    assert answers[0] is None
    assert isinstance(answers[1], errors.Conflict)
    assert answers[1].code == "gate_decided"

    await bench.ended(run_id)
    with pytest.raises(errors.Conflict, match="decided") as late:
        await bench.pool.decide(run_id, "ask", "deny")

    assert late.value.code == "gate_decided"

    await bench.close()


async def test_an_answer_must_be_an_option_of_an_open_gate() -> None:
    """An unknown decision names the options, an unknown gate is not found, and the gate stays open."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    with pytest.raises(errors.RequestInvalid) as wrong:
        await bench.pool.decide(run_id, "ask", "perhaps")
    with pytest.raises(errors.NotFound):
        await bench.pool.decide(run_id, "one", "approve")
    with pytest.raises(errors.NotFound):
        await bench.pool.decide("20260210T143000Z-nobody", "ask", "approve")

    assert wrong.value.detail["options"] == ["approve", "deny"]
    assert len(bench.pool.open_gates(run_id)) == 1

    await bench.close()


async def test_time_runs_out_once() -> None:
    """A gate takes its default when its time is over, counted from its asking, also over a restart."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gate": "ask", "default": "deny", "expires_seconds": 100})
    due = bench.pool.open_gates(run_id)[0].expires_at
    bench.advance(60)
    await bench.crash()
    await bench.restart()
    await bench.shown(run_id, RunState.WAITING)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))

    assert bench.pool.open_gates(run_id)[0].expires_at == due

    bench.advance(40)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert pools.ending(await bench.store.read(run_id))["ask"] == (
        "done",
        {"decision": "deny", "message": "", "by_default": True},
    )

    await bench.close()


async def test_a_gate_does_not_hold_up_a_pause_or_a_stop() -> None:
    """A waiting run rests at once; its question comes back with the run."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    await bench.pool.pause(run_id)
    await bench.at_rest(run_id)

    assert await bench.status(run_id) == "paused"
    assert bench.pool.open_gates(run_id) == []

    await bench.pool.unpause(run_id)
    await bench.shown(run_id, RunState.WAITING)
    await pools.soon(bench.pool.stop())
    await bench.crash()
    await bench.restart()
    await bench.shown(run_id, RunState.WAITING)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))
    await pools.soon(bench.pool.decide(run_id, "ask", "approve"))

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]

    await bench.close()


async def test_gates_of_parallel_branches_are_asked_together() -> None:
    """Each branch has its own question; the run goes on when all have their answers."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gather": {"left": [{"gate": "a"}], "right": [{"gate": "b"}]}})
    await bench.until(lambda: len(bench.pool.open_gates(run_id)) == 2)

    assert [gate.key for gate in bench.pool.open_gates(run_id)] == ["a", "b"]

    await pools.soon(bench.pool.decide(run_id, "b", "approve"))

    assert [gate.key for gate in bench.pool.open_gates(run_id)] == ["a"]

    await pools.soon(bench.pool.decide(run_id, "a", "deny"))

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()
