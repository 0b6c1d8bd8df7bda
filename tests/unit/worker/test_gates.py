"""Gates: a question waits for a person, and the first answer decides."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from app import clock, errors
from app.domain import authors, gates, records, states
from app.engine import run_engine, stores
from app.storage import memory_store
from tests.unit.worker import failing, pools, toys

Bench = pools.Bench
RunState = states.RunState

ASKING: tuple[toys.Step, ...] = ({"tool": "one"}, {"gate": "ask"}, {"tool": "two"})


async def asked(bench: Bench, *program: toys.Step, **facts: Any) -> str:
    """Submit a run and wait until its state is waiting."""
    run_id = await bench.submit(*program, **facts)
    await bench.shown(run_id, RunState.WAITING)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))
    return run_id


def recorded(gate: gates.OpenGate, **decided: Any) -> dict[str, Any]:
    """Return the output of a gate's step."""
    bound = {name: getattr(gate, name) for name in ("gate_id", "shown_sha256")}
    return bound | {"idempotency_key": None} | decided


async def test_a_gate_answer_continues_the_run() -> None:
    """The run waits without capacity; the answer is its step's record, durable when it is accepted."""
    bench = await Bench(limit=1).open()
    run_id = await asked(bench, *ASKING)
    other = await bench.submit(*toys.tools("other"))

    assert await bench.ended(other) == [RunState.DONE]
    assert await bench.status(run_id) == "waiting"
    (gate,) = bench.pool.open_gates(run_id)
    assert (gate.key, gate.gate.prompt, gate.expires_at) == ("ask", "ask", None)

    await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve", message="go on")))

    assert pools.ending(await bench.store.read(run_id))["ask"] == (
        "done",
        recorded(gate, decision="approve", message="go on", by_default=False, denied=False),
    )
    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_the_first_answer_wins() -> None:
    """Of two answers one is recorded, and the second is refused; so is one after the run's end."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    answers = await asyncio.gather(
        bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve")),
        bench.pool.deliver(run_id, "ask", gates.Answer(decision="deny")),
        return_exceptions=True,
    )

    assert isinstance(answers[0], records.Record)
    assert isinstance(answers[1], errors.Conflict)
    assert answers[1].code == "gate_decided"

    await bench.ended(run_id)
    with pytest.raises(errors.Conflict, match="decided") as late:
        await bench.pool.deliver(run_id, "ask", gates.Answer(decision="deny"))

    assert late.value.code == "gate_decided"

    await bench.close()


async def test_an_answer_must_be_an_option_of_an_open_gate() -> None:
    """An unknown decision names the options, an unknown gate is not found, and the gate stays open."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    with pytest.raises(errors.RequestInvalid) as wrong:
        await bench.pool.deliver(run_id, "ask", gates.Answer(decision="perhaps"))
    with pytest.raises(errors.NotFound):
        await bench.pool.deliver(run_id, "one", gates.Answer(decision="approve"))
    with pytest.raises(errors.NotFound):
        await bench.pool.deliver("20260210T143000Z-nobody", "ask", gates.Answer(decision="approve"))

    assert wrong.value.detail["options"] == ["approve", "deny"]
    assert len(bench.pool.open_gates(run_id)) == 1

    await bench.close()


async def test_time_runs_out_once() -> None:
    """A gate takes its default when its time since the opening is over, also across a restart."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gate": "ask", "default": "deny", "expires_seconds": 100})
    (gate,) = bench.pool.open_gates(run_id)
    bench.advance(60)
    await bench.crash()
    await bench.restart()
    await bench.shown(run_id, RunState.WAITING)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))

    assert bench.pool.open_gates(run_id) == [gate]

    bench.advance(40)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert pools.ending(await bench.store.read(run_id))["ask"] == (
        "done",
        recorded(gate, decision="deny", message="", by_default=True, denied=True),
    )

    await bench.close()


async def test_a_gate_does_not_hold_up_a_pause_or_a_stop() -> None:
    """A waiting run pauses at once; its question returns with the run."""
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
    await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]

    await bench.close()


async def test_gates_of_parallel_branches_are_asked_together() -> None:
    """Each branch opens its own gate; the run continues when all have their answers."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gather": {"left": [{"gate": "a"}], "right": [{"gate": "b"}]}})
    await bench.until(lambda: len(bench.pool.open_gates(run_id)) == 2)

    assert [gate.key for gate in bench.pool.open_gates(run_id)] == ["a", "b"]

    await pools.soon(bench.pool.deliver(run_id, "b", gates.Answer(decision="approve")))

    assert [gate.key for gate in bench.pool.open_gates(run_id)] == ["a"]

    await pools.soon(bench.pool.deliver(run_id, "a", gates.Answer(decision="deny")))

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


APPROVE = gates.Answer(decision="approve")
DENY = gates.Answer(decision="deny")


async def test_the_second_voter_sees_the_first_decision() -> None:
    """The refusal of a second answer comes after the first is durable, so that the caller can read the first."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    first = asyncio.create_task(bench.pool.deliver(run_id, "ask", APPROVE))
    await asyncio.sleep(
        0
    )  # Whether a wait for the second answer begins another task first differs between versions of Python.
    with pytest.raises(errors.Conflict) as late:
        await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="deny")))

    assert late.value.code == "gate_decided"
    assert pools.ending(await bench.store.read(run_id))["ask"][1]["decision"] == "approve"

    await first
    await bench.close()


async def test_all_open_gates_are_known() -> None:
    """Without a run's id the pool returns the open gates of every run, loaded or evicted."""
    bench = await Bench(kept_loaded=0).open()
    run_ids = [await asked(bench, *ASKING) for _ in range(3)]
    await bench.evicted(run_ids[0])

    assert [gate.run_id for gate in bench.pool.open_gates()] == run_ids
    assert len({gate.gate_id for gate in bench.pool.open_gates()}) == 3

    await bench.close()


async def test_a_gate_keeps_its_id_and_its_time_over_restarts() -> None:
    """After a kill, stop or pause a gate is opened again with the same id and opening time."""
    bench = await Bench().open()
    run_id = await asked(bench, *ASKING)
    (gate,) = bench.pool.open_gates(run_id)
    bench.advance(10)
    await bench.crash()
    await bench.restart()
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))

    assert bench.pool.open_gates(run_id) == [gate]

    await bench.pool.pause(run_id)
    await bench.at_rest(run_id)
    await bench.pool.unpause(run_id)
    await bench.until(lambda: bool(bench.pool.open_gates(run_id)))

    assert bench.pool.open_gates(run_id) == [gate]
    assert clock.instant(gate.asked_at or "") < bench.clock.now()

    await bench.close()


async def test_after_its_time_only_the_default_counts() -> None:
    """An answer after the gate's time is refused, even if the default is not yet recorded."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gate": "ask", "default": "approve", "expires_seconds": 100})
    assert isinstance(bench.clock, clock.FakeClock)
    bench.clock.jump(200)
    with pytest.raises(errors.Conflict) as late:
        await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="deny")))

    assert late.value.code == "gate_decided"
    assert pools.ending(await bench.store.read(run_id))["ask"][1]["by_default"] is True

    await bench.close()


async def test_without_a_default_a_gate_waits_for_ever() -> None:
    """An expiry time without a default does not decide a gate."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gate": "ask", "expires_seconds": 1})
    bench.advance(1000)
    await pools.idle()

    assert [gate.expires_at for gate in bench.pool.open_gates(run_id)] == [None]

    await bench.close()


async def test_a_run_in_the_queue_is_loaded_for_its_answer() -> None:
    """After a restart an answer does not wait until its run has capacity; the next step does."""
    bench = await Bench(limit=1).open()
    run_id = await asked(bench, *ASKING)
    busy = await bench.keep_busy(1)
    await bench.crash()
    bench.toolbox.busy = 0
    await bench.restart()
    await bench.until(lambda: bench.toolbox.busy == 1)
    await pools.soon(bench.pool.deliver(run_id, "ask", APPROVE))

    assert pools.ending(await bench.store.read(run_id))["ask"][1]["decision"] == "approve"
    assert "two/1" not in bench.toolbox.executed

    busy.set()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_run_that_does_not_ask_is_not_loaded_for_an_answer() -> None:
    """A run that waits for its first capacity keeps its place in the queue."""
    bench = await Bench(limit=1).open()
    busy = await bench.keep_busy(1)
    run_id = await bench.submit(*ASKING)
    with pytest.raises(errors.NotFound) as unknown:
        await bench.pool.deliver(run_id, "ask", APPROVE)

    assert unknown.value.code == "gate_not_found"
    assert bench.pool.status().queued == 1

    busy.set()
    await bench.close()


async def test_an_answer_on_a_full_disk_is_refused_and_kept() -> None:
    """On a full disk an answer is refused with the reason, kept in memory, and recorded as soon as there is room."""
    disk = failing.FullDisk()
    bench = Bench()
    bench.take_store(memory_store.MemoryStore(clock=bench.clock, probes=bench.probes, disk=disk))
    await bench.open()
    run_id = await asked(bench, *ASKING)
    disk.full = True
    for answer in (APPROVE, DENY):
        with pytest.raises(errors.WriteFailed):
            await pools.soon(bench.pool.deliver(run_id, "ask", answer))
    disk.full = False
    await bench.advance_until(lambda: run_id not in bench.active.active_runs)

    assert pools.ending(await bench.store.read(run_id))["ask"][1]["decision"] == "approve"

    await bench.close()


async def test_an_answer_to_an_evicted_run_that_cannot_be_opened_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is refused while the folder cannot be opened, and the first one afterwards is accepted."""
    bench = await Bench(kept_loaded=0).open()
    run_id = await asked(bench, *ASKING)
    await bench.evicted(run_id)
    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(bench.store, "open", refuse_to_open)
        for answer in (APPROVE, DENY):
            with pytest.raises(errors.WriteFailed):
                await pools.soon(bench.pool.deliver(run_id, "ask", answer))
    with pytest.raises(errors.Conflict, match="is decided"):
        await pools.soon(bench.pool.deliver(run_id, "ask", DENY))

    assert pools.ending(await bench.store.read(run_id))["ask"][1]["decision"] == "approve"

    await bench.close()


async def refuse_to_open(run_id: str) -> stores.RunLog:
    """Fail like a disk that accepts no lock file."""
    raise errors.StorageFault(f"the folder of {run_id} cannot be opened")


async def test_gate_events_name_question_and_decider() -> None:
    """The opening event has question, options, time and hash, the decision event who decided; both name the gate."""
    bench = await Bench().open()
    run_id = await asked(bench, {"gate": "ask", "prompt": "Ship it?", "default": "deny", "expires_seconds": 100})
    (gate,) = bench.pool.open_gates(run_id)
    await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve", message="well done")))
    await bench.ended(run_id)
    told = {event.type: event for event in await bench.store.read_events(run_id) if event.type.startswith("gate.")}

    assert list(told) == ["gate.opened", "gate.decided"]
    assert {event.key for event in told.values()} == {"ask"}
    assert told["gate.opened"].data == {
        "gate_id": gate.gate_id,
        "prompt": "Ship it?",
        "options": ["approve", "deny"],
        "default": "deny",
        "expires_at": gate.expires_at,
        "shown_sha256": gate.shown_sha256,
    }
    assert told["gate.decided"].data == {
        "gate_id": gate.gate_id,
        "decision": "approve",
        "message": "well done",
        "by_default": False,
        "denied": False,
        "author": None,
    }

    await bench.close()


async def test_time_runs_out_though_all_capacity_is_taken() -> None:
    """After a restart a gate whose time is over takes its default at once, however long others hold the capacity."""
    bench = await Bench(limit=1).open()
    run_id = await asked(bench, {"gate": "ask", "default": "deny", "expires_seconds": 100})
    busy = await bench.keep_busy(1)
    bench.advance(60)
    await bench.crash()
    bench.toolbox.busy = 0
    await bench.restart()
    await bench.until(lambda: bench.toolbox.busy == 1 and bool(bench.pool.open_gates(run_id)))
    bench.advance(40)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.busy == 1

    busy.set()
    await bench.close()


async def test_a_stop_during_loading_leaves_no_run_open() -> None:
    """A service that stops while it loads runs for their gates leaves no run open."""
    bench = await Bench(limit=1).open()
    run_ids = [await asked(bench, *ASKING) for _ in range(3)]
    await bench.keep_busy(1)
    await bench.crash()
    await bench.restart()
    await pools.soon(bench.pool.stop(0))

    assert bench.store._parts.opener.logs == {}
    assert {await bench.status(run_id) for run_id in run_ids} <= {"waiting", "running"}

    await bench.store.close()


async def test_a_vote_that_comes_after_the_decision_is_not_recorded() -> None:
    """A vote whose turn comes once its gate is decided, or its run has ended, is refused and leaves no line."""
    bench = await Bench().open()
    held = bench.toolbox.hold("two")
    run_id = await asked(bench, *ASKING)
    (gate,) = bench.pool.open_gates(run_id)
    vote = run_engine.Vote(gate_id=gate.gate_id, decision="approve", message="", shown_sha256=gate.shown_sha256)
    late = run_engine.Marks(vote=vote)
    await pools.soon(bench.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))
    await bench.toolbox.begun("two")
    with pytest.raises(errors.Conflict, match="already decided"):
        await bench.pool.mark(run_id, late, authors.LOCAL)
    held.set()
    await bench.ended(run_id)
    with pytest.raises(errors.Conflict, match="already decided"):
        await bench.pool.mark(run_id, late, authors.LOCAL)
    votes = (await bench.store.read(run_id)).decisions.votes
    cut_off = await asked(bench, *ASKING[1:])
    (gate,) = bench.pool.open_gates(cut_off)
    await bench.pool.cancel(cut_off)
    await bench.ended(cut_off)
    with pytest.raises(errors.NotFound):
        await bench.pool.mark(cut_off, run_engine.Marks(vote=dataclasses.replace(vote, gate_id=gate.gate_id)))
    await bench.close()

    assert votes == {}
