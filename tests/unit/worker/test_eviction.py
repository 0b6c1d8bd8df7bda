"""Eviction: a run that only waits is unloaded, and continues as if it had stayed in memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import errors
from app.domain import gates, operations, plain, states
from app.services import run_reader
from app.storage import memory_store
from app.worker import eviction
from tests.examples import examples
from tests.unit.worker import failing, pools, toys

Bench = pools.Bench
RunState = states.RunState

ASKING: tuple[toys.Step, ...] = ({"tool": "one"}, {"gate": "ask"}, {"tool": "two"})

TIMES = ("started_at", "completed_at", "duration_ms", "prev", "crc32", "batch", "receipt_id", "at", "due_at")


def bench(**settings: Any) -> Bench:
    """Return a bench that evicts every quiet run."""
    return Bench(**({"kept_loaded": 0} | settings))


async def evicted(program: Sequence[toys.Step] = ASKING, **settings: Any) -> tuple[Bench, str]:
    """Return a bench with an evicted run."""
    there = await bench(**settings).open()
    run_id = await there.submit(*program)
    await there.evicted(run_id)
    return there, run_id


def timeless(lines: Sequence[Mapping[str, plain.Json]]) -> list[dict[str, plain.Json]]:
    """Return lines without the parts that differ between two executions."""
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


async def journal(there: Bench, run_id: str) -> list[dict[str, plain.Json]]:
    """Return the lines of a run's journal without their times."""
    return timeless([record.line for record in (await there.store.read(run_id)).records])


async def events_of(there: Bench, run_id: str) -> list[tuple[int, str, str | None]]:
    """Return number, type and key of a run's events."""
    return [(event.seq, event.type, event.key) for event in await there.store.read_events(run_id)]


async def test_an_answer_wakes_the_run() -> None:
    """An evicted run at a gate holds no folder; its accepted answer is durable, and the run continues to its end."""
    there, run_id = await evicted()

    assert there.store._parts.opener.logs == {}
    assert there.pool.view(run_id) is None
    assert [gate.key for gate in there.pool.open_gates(run_id)] == ["ask"]
    assert await there.status(run_id) == "waiting"
    assert there.pool.status().idle == 1

    await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve", message="go on")))

    assert pools.ending(await there.store.read(run_id))["ask"][1]["message"] == "go on"
    assert await there.ended(run_id) == [RunState.DONE]
    assert there.toolbox.executed == ["one/1", "two/1"]

    await there.close()


async def test_a_gate_keeps_nothing_of_its_run_loaded() -> None:
    """While a run at a gate is evicted, no object holds data that was read or written for it."""
    there = await bench(kept_loaded=1).open()
    run_id = await there.submit(*ASKING)
    await there.shown(run_id, RunState.WAITING)
    loaded = weakref.ref(there.store._parts.opener.logs[run_id])
    other = await there.submit(*ASKING)
    await there.evicted(run_id)
    gc.collect()

    assert loaded() is None

    await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await there.ended(run_id) == [RunState.DONE]

    await there.pool.cancel(other)
    await there.close()


async def test_an_evicted_run_is_freed_without_a_garbage_collection() -> None:
    """Runner and folder of an evicted run are freed with their last user, before any full collection."""
    there = await bench(kept_loaded=1).open()
    run_id = await there.submit(*ASKING)
    await there.shown(run_id, RunState.WAITING)
    active_run = there.active.active_runs[run_id]
    parts: list[weakref.ReferenceType[Any]] = [
        weakref.ref(active_run.runner),
        weakref.ref(there.store._parts.opener.logs[run_id]),
    ]
    del active_run
    gc.collect()
    gc.disable()
    try:
        other = await there.submit(*ASKING)
        await there.evicted(run_id)
        await asyncio.sleep(0)
        left = [part() for part in parts]
    finally:
        gc.enable()

    assert left == [None, None]

    await there.pool.cancel(other)
    await there.pool.cancel(run_id)
    await there.close()


async def test_a_gate_without_a_time_limit_holds_no_task() -> None:
    """An evicted run at a gate without a time limit keeps no task."""
    before = asyncio.all_tasks()
    there = await bench().open()
    pool = asyncio.all_tasks() - before
    runs = [await there.submit({"gate": "ask"}) for _ in range(3)]
    for run_id in runs:
        await there.evicted(run_id)

    assert asyncio.all_tasks() - before - pool == set()
    assert sorted(gate.run_id for gate in there.pool.open_gates()) == sorted(runs)

    await there.close()


async def test_a_crowd_at_gates_is_evicted_without_a_wait() -> None:
    """When far too many runs are loaded, a run that only awaits answers is evicted at the next look."""
    there = await bench().open()
    asking = await there.submit({"gate": "ask"})
    await there.shown(asking, RunState.WAITING)
    active, now = there.active, there.clock.monotonic()

    await there.until(lambda: active._evictor._is_quiet(active.active_runs[asking], now))

    await there.evicted(asking)
    await there.close()


async def test_an_eviction_is_invisible_to_clients() -> None:
    """A client sees no difference: polls get the same bytes, no change is counted, and a wrong answer is refused."""
    there = await bench().open()
    run_id = await there.submit({"tool": "one"}, {"gather": {"a": [{"gate": "ask"}], "b": [{"gate": "too"}]}})
    await there.until(lambda: len(there.pool.open_gates(run_id)) == 2)
    await there.shown(run_id, RunState.WAITING)
    reader = run_reader.RunReader(store=there.store, engine=there.pool, drivers={"toy": toys.TOY}, clock=there.clock)
    number, before = there.pool.change_number(run_id), await reader.ready(run_id)
    events = await events_of(there, run_id)
    await there.evicted(run_id)
    reader.forget(run_id)
    after = await reader.ready(run_id)

    assert (await reader.status(run_id), there.pool.change_number(run_id)) == (RunState.WAITING, number)
    assert after.body == before.body
    assert await events_of(there, run_id) == events
    with pytest.raises(errors.RequestInvalid):
        await there.pool.deliver(run_id, "ask", gates.Answer(decision="perhaps"))
    with pytest.raises(errors.NotFound):
        await there.pool.deliver(run_id, "one", gates.Answer(decision="approve"))

    assert there.is_evicted(run_id)

    await there.close()


async def test_a_slow_step_continues_while_its_run_is_evicted() -> None:
    """A slow tool keeps its capacity, is not begun again, and its result is recorded when it ends."""
    there = await bench(limit=1).open()
    held = there.toolbox.hold("slow")
    run_id = await there.submit(*toys.tools("slow", "next"))
    waiting = await there.submit(*toys.tools("other"))
    await there.evicted(run_id)

    assert (there.pool.status().running, there.pool.status().queued) == (1, 1)
    (step,) = there.pool.standing(run_id).open  # type: ignore[union-attr]
    assert (step.key, step.attempt, step.kind) == ("slow", 1, "tool_call")

    held.set()

    assert await there.ended(run_id, waiting) == [RunState.DONE, RunState.DONE]
    assert there.toolbox.executed == ["slow/1", "next/1", "other/1"]

    await there.close()


async def test_a_command_keeps_its_run_loaded_for_a_while() -> None:
    """Commands usually end soon: in a crowd their runs are evicted after the long pause, others after the short one."""
    there = bench()
    there.performers = {operations.Command.kind: there.toolbox}
    there.take_store(there.store)
    await there.open()
    held = [there.toolbox.hold("slow"), there.toolbox.hold("true")]
    other = await there.submit(*toys.tools("slow"))
    run_id = await there.submit({"command": "true"})
    await there.executed("slow/1")
    await there.executed("true/1")
    for _ in range(5):
        there.advance(eviction.BUSY_PAUSE_SECONDS)
        await pools.idle()

    assert (there.is_evicted(other), there.is_evicted(run_id)) == (True, False)

    await there.evicted(run_id)
    for step in held:
        step.set()

    assert await there.ended(run_id, other) == [RunState.DONE, RunState.DONE]

    await there.close()


async def test_a_timer_wakes_its_run() -> None:
    """A timer's time counts while its run is evicted."""
    there, run_id = await evicted([{"timer": "wait", "seconds": 60}, {"tool": "two"}])
    there.advance(30)
    await pools.idle()

    assert there.is_evicted(run_id)

    there.advance(30)

    assert await there.ended(run_id) == [RunState.DONE]

    await there.close()


async def test_a_gate_takes_its_default_though_its_run_is_evicted() -> None:
    """A time-out answers the gate of an evicted run as a person does."""
    there, run_id = await evicted([{"gate": "ask", "default": "deny", "expires_seconds": 100}])
    there.advance(100)

    assert await there.ended(run_id) == [RunState.DONE]
    assert pools.ending(await there.store.read(run_id))["ask"][1]["by_default"]

    await there.close()


async def test_the_end_of_a_child_wakes_its_parent() -> None:
    """Parent and child may both be evicted; the child is started once."""
    there = await bench(limit=1).open()
    held = there.toolbox.hold("slow")
    run_id = await there.submit({"child": "sub", "program": toys.tools("slow")}, {"tool": "two"})
    await there.toolbox.begun("slow")
    (child,) = [found for found in await there.run_ids() if found != run_id]
    await there.advance_until(lambda: there.is_evicted(run_id) and there.is_evicted(child))
    held.set()

    assert await there.ended(run_id, child) == [RunState.DONE, RunState.DONE]
    assert len(await there.run_ids()) == 2
    assert there.toolbox.executed == ["slow/1", "two/1"]

    await there.close()


async def test_a_cancel_interrupts_the_step_of_an_evicted_run() -> None:
    """A cancel cuts off the step of an evicted run, which ends as cancelled and leaves no task."""
    there = await bench().open()
    there.toolbox.hold("slow")
    run_id = await there.submit(*toys.tools("slow"))
    await there.evicted(run_id)

    assert await there.pool.cancel(run_id) is RunState.CANCELLED
    assert await there.ended(run_id) == [RunState.CANCELLED]
    assert there.toolbox.cut == ["slow"]
    assert there.pool.status().running == 0

    await there.close()


async def test_a_pause_lets_a_gate_go_and_a_slow_step_end() -> None:
    """A pause treats an evicted run like a loaded one; the question returns with the run."""
    there, run_id = await evicted()
    slow = there.toolbox.hold("slow")
    busy = await there.submit(*toys.tools("slow", "never"))
    await there.evicted(busy)
    await there.pool.pause(run_id)
    await there.pool.pause(busy)
    await there.at_rest(run_id)

    assert await there.status(run_id) == "paused"
    assert there.pool.open_gates(run_id) == []

    slow.set()
    await there.at_rest(busy)

    assert [record.key for record in (await there.store.read(busy)).records] == ["slow"]

    await there.pool.unpause(run_id)
    await there.shown(run_id, RunState.WAITING)
    await there.evicted(run_id)
    await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await there.ended(run_id) == [RunState.DONE]

    await there.close()


@pytest.mark.parametrize("stops", [True, False], ids=["stop", "kill"])
async def test_a_restart_finds_it_as_it_was(stops: bool) -> None:
    """A stop interrupts a slow step without counting as a crash, a kill causes the next attempt; gates remain open."""
    there, run_id = await evicted(grace_seconds=0)
    there.toolbox.hold("slow")
    busy = await there.submit(*toys.tools("slow"))
    await there.evicted(busy)
    if stops:
        await pools.soon(there.pool.stop())

        assert (await there.kinds(busy))[-1] == "step.interrupted"

    await there.crash()
    await there.restart()
    await there.shown(run_id, RunState.WAITING)
    await there.until(lambda: bool(there.pool.open_gates(run_id)))
    await there.executed("slow/2")
    await there.evicted(run_id)
    there.toolbox.hold("slow").set()
    await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await there.ended(run_id, busy) == [RunState.DONE, RunState.DONE]
    assert sorted(there.toolbox.executed) == ["one/1", "slow/1", "slow/2", "two/1"]

    await there.close()


async def test_a_stop_lets_a_slow_step_end_within_its_grace() -> None:
    """A slow step that ends within the grace period is recorded although its run was evicted."""
    there = await bench().open()
    held = there.toolbox.hold("slow")
    run_id = await there.submit(*toys.tools("slow", "next"))
    await there.evicted(run_id)
    stop = asyncio.create_task(there.pool.stop())
    await pools.idle()
    held.set()
    await pools.soon(stop)

    assert [record.key for record in (await there.store.read(run_id)).records] == ["slow"]
    assert there.toolbox.executed == ["slow/1"]

    await there.close()


async def test_a_result_waits_until_the_folder_is_free() -> None:
    """An answer that comes while another process has the folder is recorded later, not lost."""
    there, run_id = await evicted()
    lock = there.store.disk.lock(f"runs/{run_id}")
    assert lock is not None
    answer = asyncio.create_task(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))
    await there.until(lambda: there.probes.count("pool.woken") == 1)
    await pools.idle()

    assert not answer.done()

    lock.release()
    await there.advance_until(answer.done)
    await answer

    assert await there.ended(run_id) == [RunState.DONE]

    await there.close()


async def test_a_folder_that_is_gone_ends_the_wait() -> None:
    """If a run's folder is gone, its steps are cut off, and an answer is refused."""
    there, run_id = await evicted()
    there.remove(run_id)
    with pytest.raises(errors.ControlRoomError):
        await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))
    await there.at_rest(run_id)

    assert there.pool.open_gates(run_id) == []
    assert there.pool.status().idle == 0

    await there.close()


async def test_a_run_with_unwritable_snapshots_is_not_evicted() -> None:
    """A run whose snapshots cannot be written is not evicted."""
    there = bench()
    disk = failing.FullDisk()
    there.take_store(memory_store.MemoryStore(clock=there.clock, probes=there.probes, disk=disk))
    await there.open()
    run_id = await there.submit(*ASKING)
    await there.shown(run_id, RunState.WAITING)
    disk.full = True
    for _ in range(20):
        there.advance(eviction.BUSY_PAUSE_SECONDS)
        await pools.idle()

    assert not there.is_evicted(run_id)

    disk.full = False
    await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await there.ended(run_id) == [RunState.DONE]

    await there.close()


async def test_few_runs_stay_loaded() -> None:
    """Only the surplus runs are evicted, those that have been quiet for longest first."""
    there = await Bench(kept_loaded=2).open()
    run_ids = []
    for _ in range(4):
        run_ids.append(await there.submit(*ASKING))
        await there.shown(run_ids[-1], RunState.WAITING)
        there.advance(eviction.PAUSE_SECONDS)
        await pools.idle()
    await there.advance_until(lambda: there.is_evicted(run_ids[1]))
    for _ in range(20):
        there.advance(eviction.PAUSE_SECONDS)
        await pools.idle()

    assert [there.is_evicted(run_id) for run_id in run_ids] == [True, True, False, False]

    await there.close()


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("order", ["decide", "cancel", "pause", "stop"])
async def test_an_order_in_the_moment_of_eviction(order: str, turns: int) -> None:
    """An order at any moment of an eviction is carried out once, and loses no line."""
    there = await bench(grace_seconds=0).open()
    run_id = await there.submit(*ASKING)
    await there.shown(run_id, RunState.WAITING)
    await there.until(lambda: bool(there.pool.open_gates(run_id)))
    given: list[asyncio.Task[Any]] = []
    orders = {
        "decide": lambda: there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")),
        "cancel": lambda: there.pool.cancel(run_id),
        "pause": lambda: there.pool.pause(run_id),
        "stop": there.pool.stop,
    }

    async def later() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await orders[order]()

    there.probes.at("pool.before_evict", 1, lambda: given.append(asyncio.create_task(later())))
    await there.advance_until(lambda: bool(given))
    await pools.soon(given[0])
    await there.at_rest(run_id)
    expected = {"decide": "done", "cancel": "cancelled", "pause": "paused", "stop": "waiting"}[order]

    assert await there.status(run_id) in {expected, "running" if order == "stop" else expected}
    assert there.toolbox.executed == ["one/1", "two/1"][: 2 if order == "decide" else 1]
    assert there.pool.status().idle == 0

    await there.close()


@pytest.mark.parametrize("turns", range(12))
async def test_a_pause_during_an_eviction_interrupts_the_step(turns: int) -> None:
    """A pause cuts off the step that it interrupts, even if it reaches a runner that was released."""
    there = await bench().open()
    there.toolbox.hold("slow")
    run_id = await there.submit(*toys.tools("slow", "two"))
    await there.toolbox.begun("slow")
    given: list[asyncio.Task[Any]] = []

    async def later() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await there.pool.pause(run_id, interrupt=True)

    there.probes.at("pool.before_evict", 1, lambda: given.append(asyncio.create_task(later())))
    await there.advance_until(lambda: bool(given))
    await pools.soon(given[0])
    await there.at_rest(run_id)

    assert await there.status(run_id) == "paused"
    assert there.toolbox.cut == ["slow"]

    await there.close()


async def test_a_kill_at_every_point_of_eviction_and_loading() -> None:
    """A process may die at any point of eviction and loading: the next one asks again, and the run ends the same."""
    there, run_id = await evicted()
    began = len(there.probes.passed_points)
    await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))
    await there.ended(run_id)
    passed_points = there.probes.passed_points
    first = passed_points.index("pool.before_evict")
    await there.close()
    for number in range(first, began + 12):
        await _die_at(passed_points[number], passed_points[: number + 1].count(passed_points[number]))


async def _die_at(point: str, nth: int) -> None:
    there = await bench().open()
    left = there.crash_when(point, nth)
    run_id = await there.submit(*ASKING)
    await there.until(lambda: bool(there.pool.open_gates(run_id)) or left.done())
    for _ in range(4):
        there.advance(eviction.BUSY_PAUSE_SECONDS)
        await pools.idle()
    answer = asyncio.create_task(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))
    await there.take_over(left)
    await asyncio.gather(answer, return_exceptions=True)
    await there.restart()
    if "ask" not in pools.ending(await there.store.read(run_id)):
        await there.until(lambda: bool(there.pool.open_gates(run_id)))
        await pools.soon(there.pool.deliver(run_id, "ask", gates.Answer(decision="approve")))

    assert await there.ended(run_id) == [RunState.DONE], (point, nth)
    assert list(pools.ending(await there.store.read(run_id))) == ["one", "ask", "two"]

    await there.close()


def _around(left: list[Any], right: list[Any], others: list[Any]) -> list[dict[str, Any]]:
    return [{"kind": "gather", "left": left, "right": right}, *others]


KINDS = st.sampled_from(["tool", "agent", "gate", "timer", "child"])
PLAIN = st.builds(lambda kind: {"kind": kind}, KINDS)
STEPS: st.SearchStrategy[list[dict[str, Any]]] = st.recursive(
    st.lists(PLAIN, min_size=1, max_size=3),
    lambda steps: st.builds(_around, steps, steps, st.lists(PLAIN, max_size=2)),
    max_leaves=4,
)


def named(steps: Sequence[Mapping[str, Any]], prefix: str) -> list[toys.Step]:
    """Return a program with a key for each step."""
    program: list[toys.Step] = []
    for number, step in enumerate(steps):
        key, kind = f"{prefix}{number}", step["kind"]
        if kind == "gather":
            branches = {side: named(step[side], f"{key}{side[0]}") for side in ("left", "right")}
            program.append({"gather": branches})
        elif kind == "timer":
            program.append({"timer": key, "seconds": 7})
        elif kind == "child":
            program.append({"child": key, "program": [{"gate": f"{key}g"}]})
        else:
            program.append({kind: key})
    return program


async def outcome(program: Sequence[toys.Step], *, evicts: bool) -> tuple[Any, ...]:
    """Execute a program whose gates are answered and agents end in the order of their keys; return the results."""
    there = await Bench(kept_loaded=0 if evicts else 100).open()
    for key in _keys(program, "agent"):
        there.toolbox.hold(key)
    run_id = await there.submit(*program)
    for _ in range(200):
        await pools.idle()
        if RunState(await there.status(run_id)).finished:
            break
        await _move_on(there, evicts=evicts)
    await there.ended(run_id)
    found = await journal(there, run_id), await events_of(there, run_id), there.toolbox.executed
    evictions = there.probes.count("pool.evicted")
    await there.close()

    assert (evictions > 0) <= evicts
    return found


async def _move_on(there: Bench, *, evicts: bool) -> None:
    # One event at a time, so that both executions see the same order.
    for _ in range(6 if evicts else 0):
        there.advance(eviction.BUSY_PAUSE_SECONDS)
        await pools.idle()
    held = sorted(
        key for key, event in there.toolbox._held.items() if not event.is_set() and f"{key}/1" in there.toolbox.executed
    )
    asking = sorted(
        (gate.key, gate.run_id) for run_id in await there.run_ids() for gate in there.pool.open_gates(run_id)
    )
    if held:
        there.toolbox.hold(held[0]).set()
    elif asking:
        key, run_id = asking[0]
        await pools.soon(there.pool.deliver(run_id, key, gates.Answer(decision="approve")))
    else:
        there.advance(7)


def _keys(program: Sequence[toys.Step], kind: str) -> list[str]:
    found = []
    for step in program:
        if "gather" in step:
            found += [key for branch in step["gather"].values() for key in _keys(branch, kind)]
        elif kind in step:
            found.append(step[kind])
    return found


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
async def test_a_run_that_was_evicted_ends_as_one_that_was_not(steps: Sequence[Mapping[str, Any]]) -> None:
    """An evicted run has the same journal lines but for times, the same events and numbers, and no repeated step."""
    program = named(steps, "s")

    assert await outcome(program, evicts=True) == await outcome(program, evicts=False)
