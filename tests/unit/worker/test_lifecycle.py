"""A run's way through the pool: every state of a run, and how it leaves that state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app import errors
from app.domain import limits, states
from app.engine import run_engine, stores
from app.worker import pool
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Return an open bench with a capacity of two."""
    made = await Bench(limit=2).open()
    yield made
    await made.close()


async def raise_limit(there: pool.Pool, run_id: str) -> None:
    """Change a limit of a run."""
    await there.limit(run_id, limits.RunLimits(calls=5))


async def add_label(there: pool.Pool, run_id: str) -> None:
    """Give a run a label."""
    await there.mark(run_id, run_engine.Marks(labels={"kept": "yes"}))


def queue_at_next_summary(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue the run whose row is read next, before its reader gets the row."""
    read, patched = bench.store.summary, set[str]()

    async def read_and_queue(run_id: str) -> stores.RunSummary:
        row = await read(run_id)
        if not patched:
            patched.add(run_id)
            await bench.pool.submit(run_id)
        return row

    monkeypatch.setattr(bench.store, "summary", read_and_queue)


def open_slowly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the loop turn after a folder has been opened, before the caller gets its log; return an event that is set
    once a folder is open.
    """
    opened, is_open = bench.store.open, asyncio.Event()

    async def slowly(run_id: str) -> stores.RunLog:
        log = await opened(run_id)
        is_open.set()
        await pools.idle()
        return log

    monkeypatch.setattr(bench.store, "open", slowly)
    return is_open


async def test_a_run_goes_from_pending_to_done(bench: Bench) -> None:
    """A run is taken, performed step by step, ended, unloaded, and found in the index as done."""
    run_id = await bench.create(*toys.tools("one", "two"))

    assert await bench.status(run_id) == "pending"
    assert await bench.pool.submit(run_id) is RunState.RUNNING
    assert await bench.ended(run_id) == [RunState.DONE]
    assert await bench.status(run_id) == "done"
    assert bench.toolbox.executed == ["one/1", "two/1"]
    assert bench.pool.view(run_id) is None
    assert bench.pool.standing(run_id) is None
    assert await bench.kinds(run_id) == [
        "run.created",
        "run.started",
        "step.started",
        "step.finished",
        "step.started",
        "step.finished",
        "run.ended",
    ]


async def test_without_free_capacity_a_run_is_pending(bench: Bench) -> None:
    """A run beyond the limit waits unloaded, and is taken when capacity is returned."""
    for key in ("a", "b"):
        bench.toolbox.hold(key)
        await bench.submit(*toys.tools(key))
    await bench.toolbox.begun("b")
    third = await bench.create(*toys.tools("c"))

    assert await bench.pool.submit(third) is RunState.PENDING
    assert bench.pool.view(third) is None
    assert (bench.pool.status().running, bench.pool.status().queued) == (2, 1)

    standing = bench.pool.standing(third)

    assert standing is not None
    assert (standing.status, standing.reason) == (RunState.PENDING, None)

    bench.toolbox.hold("a").set()

    assert await bench.ended(third) == [RunState.DONE]

    bench.toolbox.hold("b").set()


async def test_submitting_twice_changes_nothing(bench: Bench) -> None:
    """A run that the pool already has is not queued again."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")

    assert await bench.pool.submit(run_id) is RunState.RUNNING

    bench.toolbox.hold("one").set()
    await bench.ended(run_id)

    assert bench.toolbox.executed == ["one/1"]


async def test_a_failed_step_fails_the_run(bench: Bench) -> None:
    """A driver that gives up ends its run as failed, with the cause."""
    bench.toolbox.fail("two")
    run_id = await bench.submit(*toys.tools("one", "two", "three"))

    assert await bench.ended(run_id) == [RunState.FAILED]

    decisions = (await bench.store.read(run_id)).decisions

    assert decisions.ended is not None
    assert decisions.ended.causes == (1,)
    assert bench.toolbox.executed == ["one/1", "two/1"]


async def test_a_broken_driver_parks_only_its_own_run(bench: Bench) -> None:
    """A run with a fault is shown as paused with the fault, others continue, and a cancel ends it."""
    broken = await bench.submit({"break": "no"})
    fine = await bench.submit(*toys.tools("one"))
    view = await bench.shown(broken, RunState.PAUSED)

    assert view.error is not None
    assert view.error["code"] == "driver_fault"
    assert await bench.ended(fine) == [RunState.DONE]
    assert await bench.status(broken) == "paused"
    assert await bench.pool.cancel(broken) is RunState.CANCELLED
    assert await bench.ended(broken) == [RunState.CANCELLED]
    assert bench.pool.view(broken) is None


async def test_an_unknown_dialect_parks_the_run_until_it_is_known(bench: Bench) -> None:
    """A run of a language that this version does not know waits for a version that does."""
    run_id = await bench.submit(*toys.tools("one"), dialect="later")
    view = await bench.shown(run_id, RunState.PAUSED)

    assert view.error is not None
    assert view.error["code"] == "unknown_dialect"

    bench.dialects["later"] = toys.TOY
    await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]


async def test_a_run_of_a_newer_driver_waits_for_one_that_knows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that a later version began is parked; it is neither driven by guess nor failed."""
    run_id = await bench.submit(*toys.tools("one"), driver_version=2)
    view = await bench.shown(run_id, RunState.PAUSED)

    assert view.error is not None
    assert view.error["code"] == "driver_newer"

    monkeypatch.setattr(toys.TOY, "driver_version", 2)
    await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]


async def test_a_paused_run_stops_at_its_step_boundary(bench: Bench) -> None:
    """The open step is recorded, no further one begins, the capacity is returned, and an unpause continues after it."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")

    assert await bench.pool.pause(run_id) is RunState.PAUSED

    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)

    assert await bench.status(run_id) == "paused"
    assert bench.pool.view(run_id) is None
    assert bench.pool.status().running == 0
    assert bench.toolbox.executed == ["one/1"]
    assert await bench.pool.unpause(run_id) is RunState.RUNNING
    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]


async def test_an_unpause_during_the_last_step_cancels_the_pause(bench: Bench) -> None:
    """A pause that is taken back while its last step is open has no effect."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    await bench.pool.pause(run_id)
    await bench.pool.unpause(run_id)
    bench.toolbox.hold("one").set()

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]


async def test_a_queued_run_can_be_paused(bench: Bench) -> None:
    """A run paused before its turn leaves the queue, and after an unpause continues to its end."""
    keeper = await bench.keep_busy(2)
    run_id = await bench.submit(*toys.tools("one"))
    await bench.pool.pause(run_id)
    await bench.at_rest(run_id)

    assert await bench.status(run_id) == "paused"
    assert bench.pool.status().queued == 0
    assert await bench.pool.unpause(run_id) is RunState.PENDING

    keeper.set()

    assert await bench.ended(run_id) == [RunState.DONE]


async def test_a_pause_survives_a_restart(bench: Bench) -> None:
    """Recovery leaves a paused run alone until a person unpauses it."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    await bench.pool.pause(run_id)
    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)
    await bench.crash()
    await bench.restart()

    assert await bench.status(run_id) == "paused"
    assert bench.pool.standing(run_id) is None

    await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "two/1"]


async def test_an_idle_run_holds_no_capacity(bench: Bench) -> None:
    """Runs that only wait for time let others run; they come back through the queue."""
    waiting = [await bench.submit({"timer": "wait", "seconds": 60}, *toys.tools("after")) for _ in range(5)]
    run_id = await bench.submit(*toys.tools("one"))

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.until(lambda: bench.pool.status().idle == 5)
    bench.advance(60)

    assert await bench.ended(*waiting) == [RunState.DONE] * 5
    assert bench.toolbox.busiest <= 2


async def test_the_wrong_state_is_refused(bench: Bench) -> None:
    """An order that does not fit the run's state is refused with that state."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.ended(run_id)
    for order in (bench.pool.cancel, bench.pool.pause, bench.pool.unpause, bench.resumed):
        with pytest.raises(errors.WrongState) as refused:
            await order(run_id)

        assert refused.value.detail["status"] == "done"


async def test_a_run_cannot_be_paused_twice(bench: Bench) -> None:
    """Pausing a pausing or paused run, and unpausing a running one, are refused."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    with pytest.raises(errors.WrongState):
        await bench.pool.unpause(run_id)
    with pytest.raises(errors.WrongState):
        await bench.resumed(run_id)
    await bench.pool.pause(run_id)
    with pytest.raises(errors.WrongState):
        await bench.pool.pause(run_id)
    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)
    with pytest.raises(errors.WrongState):
        await bench.pool.pause(run_id)

    assert await bench.pool.cancel(run_id) is RunState.CANCELLED


async def test_an_unknown_run_is_not_found(bench: Bench) -> None:
    """Every order about an unknown run is answered as not found."""
    for order in (bench.pool.cancel, bench.pool.pause, bench.pool.unpause, bench.resumed, bench.pool.submit):
        with pytest.raises(errors.NotFound):
            await order("20260210T143000Z-nobody")


async def test_a_poll_sees_every_change(bench: Bench) -> None:
    """A poll that waits for the next change is woken by the run's steps and by its end."""
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    number = bench.pool.change_number(run_id)
    poll = asyncio.create_task(bench.pool.changed(run_id, number))
    bench.toolbox.hold("one").set()

    assert await pools.soon(poll) > number

    await bench.ended(run_id)

    assert await pools.soon(bench.pool.changed(run_id, number)) == bench.pool.change_number(run_id)


@pytest.mark.parametrize("queued_first", [False, True])
@pytest.mark.parametrize("command", [pool.Pool.unpause, raise_limit, add_label])
async def test_a_command_succeeds_while_its_run_is_queued(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, command: Any, queued_first: bool
) -> None:
    """A paused run that is queued while a command opens its folder, or before it does, is opened by one after the
    other, and neither finds the folder locked."""
    run_id = await bench.submit(*toys.tools("one"))
    await bench.pool.pause(run_id)
    await bench.at_rest(run_id)
    is_open = open_slowly(bench, monkeypatch)
    if queued_first:
        queue_at_next_summary(bench, monkeypatch)
        await command(bench.pool, run_id)
    else:
        commanding = asyncio.create_task(command(bench.pool, run_id))
        await is_open.wait()
        await bench.pool.submit(run_id)
        await commanding
    if command is not pool.Pool.unpause:
        await bench.at_rest(run_id)
        await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert caplog.messages == []


async def test_a_turn_waits_for_a_run_that_has_ended_to_leave(bench: Bench) -> None:
    """A caller that acts on an ended run finds it closed: the run needs its turn to leave, and would wait for it."""
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    active: list[bool] = []

    async def take_turn() -> None:
        async with bench.pool.turn(run_id):
            active.append(run_id in bench.active.active_runs)

    ending = bench.probes.count("storage.move.before_row") + 1
    async with bench.active.locks.of(run_id):
        taking = asyncio.create_task(take_turn())
        held.set()
        await bench.probes.passed("storage.move.before_row", ending)
        await pools.idle()
    await pools.soon(taking)

    assert active == [False]
