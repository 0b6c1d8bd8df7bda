"""The effect of an answer: an approval lapses when an earlier step runs again, a denial never does."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from app import errors
from app.domain import gates, states
from app.engine import dry_replay
from tests.unit.worker import pools, toys
from tests.unit.worker.test_gates import asked

Bench = pools.Bench
RunState = states.RunState

APPROVE, DENY = gates.Answer(decision="approve"), gates.Answer(decision="deny")

GUARDED: tuple[toys.Step, ...] = ({"tool": "one"}, {"gate": "ask", "stops": True}, {"tool": "two"})


async def answered(bench: Bench, answer: gates.Answer, *program: toys.Step) -> str:
    """Run a program with one gate to its end, and answer the gate."""
    run_id = await asked(bench, *program)
    await pools.soon(bench.pool.deliver(run_id, "ask", answer))
    await bench.ended(run_id)
    return run_id


async def gate_of(bench: Bench, run_id: str) -> gates.OpenGate:
    """Wait until a run opens a gate, and return the gate."""
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))
    return bench.pool.open_gates(run_id)[0]


async def test_a_resume_before_a_gate_voids_its_approval() -> None:
    """Resumed from an earlier step, the run opens another gate; the old answer and its attempt are no longer valid."""
    bench = await Bench().open()
    bench.toolbox.fail("two")
    run_id = await asked(bench, *GUARDED)
    first = await gate_of(bench, run_id)
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE))
    await bench.ended(run_id)
    bench.toolbox.mend("two")
    await bench.resumed(run_id, from_key="one")
    second = await gate_of(bench, run_id)

    assert (first.attempt, second.attempt) == (1, 2)
    assert first.gate_id != second.gate_id
    with pytest.raises(errors.Conflict) as lapsed:
        await bench.pool.deliver(run_id, "ask", APPROVE, attempt=1)

    assert lapsed.value.code == "gate_lapsed"

    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE, attempt=2))
    lines = (await bench.store.read(run_id)).records

    assert [line.attempt for line in lines if line.key == "ask"] == [1, 2]
    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_an_approval_stays_where_only_later_steps_run_again() -> None:
    """A resume from a step after the gate does not ask again."""
    bench = await Bench().open()
    bench.toolbox.fail("two")
    run_id = await answered(bench, APPROVE, *GUARDED)
    bench.toolbox.mend("two")
    await bench.resumed(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1", "two/2"]

    await bench.close()


@pytest.mark.parametrize("from_key", [None, "ask", "one"])
@pytest.mark.parametrize("by_default", [False, True])
async def test_no_resume_goes_past_a_denial(from_key: str | None, by_default: bool) -> None:
    """A resume from the gate or before it is refused after a denial by a person or by the default of a time-out."""
    bench = await Bench().open()
    gate = {"gate": "ask", "stops": True, "default": "deny", "expires_seconds": 100}
    if by_default:
        run_id = await asked(bench, {"tool": "one"}, gate, {"tool": "two"})
        bench.advance(100)
        await bench.ended(run_id)
    else:
        run_id = await answered(bench, DENY, {"tool": "one"}, gate, {"tool": "two"})
    with pytest.raises(errors.Conflict) as denied:
        await bench.resumed(run_id, from_key=from_key)

    assert (denied.value.code, denied.value.key) == ("gate_denied", "ask")
    assert denied.value.detail["by_default"] is by_default
    assert await bench.status(run_id) == "failed"
    assert bench.toolbox.executed == ["one/1"]

    await bench.close()


async def test_a_denial_is_kept_when_its_later_steps_resume() -> None:
    """The steps that follow a denial can be resumed; the denial is not asked for again."""
    bench = await Bench().open()
    bench.toolbox.fail("two")
    run_id = await answered(bench, DENY, {"tool": "one"}, {"gate": "ask"}, {"tool": "two"})
    bench.toolbox.mend("two")
    await bench.resumed(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert pools.ending(await bench.store.read(run_id))["ask"][1]["denied"] is True

    await bench.close()


async def test_a_denial_in_another_branch_stays() -> None:
    """A resume of one branch does not touch the denied gate of another."""
    bench = await Bench().open()
    bench.toolbox.fail("broken")
    run_id = await asked(
        bench,
        {"gather": {"a": [{"gate": "ask"}, {"timer": "short", "seconds": 1}], "b": [{"timer": "t", "seconds": 5},
                                                                                   {"tool": "broken"}]}},
    )  # fmt: skip
    await pools.soon(bench.pool.deliver(run_id, "ask", DENY))
    await bench.advance_until(lambda: run_id not in bench.active.active_runs)
    bench.toolbox.mend("broken")
    await bench.resumed(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert [line.key for line in (await bench.store.read(run_id)).records].count("ask") == 1

    await bench.close()


async def test_an_open_gate_is_another_one_after_a_resume() -> None:
    """A run that is cancelled at an open gate and resumed opens another gate, with its whole time."""
    bench = await Bench().open()
    run_id = await asked(bench, {"tool": "one"}, {"gate": "ask", "default": "deny", "expires_seconds": 100})
    first = await gate_of(bench, run_id)
    bench.advance(60)
    await bench.pool.cancel(run_id)
    await bench.ended(run_id)
    await bench.resumed(run_id)
    second = await gate_of(bench, run_id)

    assert second.attempt == first.attempt + 1
    assert (second.expires_at or "") > (first.expires_at or "")

    await bench.close()


async def test_a_run_that_was_left_behind_asks_the_same() -> None:
    """A run that is taken over from a process that is gone keeps its gate and the gate's time."""
    bench = await Bench().open()
    program = ({"gate": "ask", "default": "deny", "expires_seconds": 100},)
    run_id = await asked(bench, *program, owner="process")
    first = await gate_of(bench, run_id)
    bench.advance(60)
    await bench.crash()
    await bench.restart()

    assert bench.pool.open_gates(run_id) == []
    with pytest.raises(errors.WrongState):
        await bench.pool.deliver(run_id, "ask", APPROVE)

    await bench.resumed(run_id)
    second = await gate_of(bench, run_id)

    assert (second.gate_id, second.asked_at, second.expires_at) == (first.gate_id, first.asked_at, first.expires_at)

    await bench.close()


async def test_open_gates_are_found_from_the_folder_alone() -> None:
    """Without an engine the same open gates are found, and none after an answer or the run's end."""
    bench = await Bench().open()
    program = ({"tool": "one"}, {"gather": {"a": [{"gate": "ask"}, {"tool": "two"}], "b": [{"gate": "too"}]}})
    run_id = await bench.submit(*program)
    await bench.until(lambda: len(bench.pool.open_gates(run_id)) == 2)

    async def found() -> list[gates.OpenGate]:
        loaded = await bench.store.read(run_id)
        return await dry_replay.asked(loaded, toys.TOY, functools.partial(bench.store.read_blob, run_id))

    assert await found() == bench.pool.open_gates(run_id)

    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE))

    assert [gate.key for gate in await found()] == ["too"]

    await bench.pool.cancel(run_id)
    await bench.ended(run_id)

    assert await found() == []

    await bench.close()


async def test_a_large_question_is_kept_whole() -> None:
    """A long question is stored whole and can be read after the decision."""
    bench = await Bench().open()
    run_id = await answered(bench, APPROVE, {"gate": "ask", "prompt": "Read this. " * 2000})
    (line,) = (await bench.store.read(run_id)).records

    assert isinstance(line.line["operation"], dict)
    assert "blob" in line.line["operation"]
    assert gates.answer_in(line) is not None

    await bench.close()


async def test_an_output_like_a_denial_does_not_prevent_a_resume() -> None:
    """A tool whose output looks like a denial does not keep its run from being resumed."""
    bench = await Bench().open()
    bench.toolbox.fail("two")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.ended(run_id)
    (line, _) = (await bench.store.read(run_id)).records
    gate_id = gates.gate_id(run_id, line.key, line.attempt)
    spoken = dataclasses.replace(line, output={"gate_id": gate_id, "by_default": False, "denied": True})

    assert not gates.is_denial(spoken)

    await bench.close()
