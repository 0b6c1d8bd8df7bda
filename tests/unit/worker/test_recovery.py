"""Recovery: the runs of a killed process continue, through the same queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app import errors
from app.domain import decisions, operations, records, states
from app.engine import ports, stores
from app.storage import memory_store
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState


async def test_two_hundred_runs_continue_within_the_limit() -> None:
    """After a crash every unfinished run is continued, oldest first, and never more than the limit at a time."""
    bench = await Bench(limit=8).open()
    hold = bench.toolbox.hold("two")
    run_ids = [await bench.submit(*toys.tools("one", "two", "three")) for _ in range(200)]
    await bench.until(lambda: bench.toolbox.executed.count("two/1") == 8)
    await bench.crash()
    hold.set()
    bench.toolbox.executed.clear()
    bench.toolbox.busiest = 0
    await bench.restart()

    assert await bench.ended(*run_ids) == [RunState.DONE] * 200
    assert bench.toolbox.busiest <= 8
    assert bench.toolbox.executed.count("one/1") == 192
    assert bench.toolbox.executed.count("two/2") == 8

    await bench.close()


async def test_queued_runs_are_not_opened() -> None:
    """Two thousand queued runs open no folder and need no task; each is loaded when its turn comes."""
    bench = await Bench(limit=2).open()
    keeper = await bench.keep_busy(2)
    run_ids = [await bench.submit(*toys.tools("one")) for _ in range(2000)]

    assert bench.pool.status().queued == 2000
    assert all(active_run.log is None and active_run.task is None for active_run in bench.active_runs(run_ids))

    keeper.set()

    assert await bench.ended(*run_ids[:10]) == [RunState.DONE] * 10

    await bench.close()


async def test_priorities_hold_after_a_restart() -> None:
    """Recovered runs get capacity by priority, and before runs that come later."""
    bench = await Bench(limit=1).open()
    hold = bench.toolbox.hold("busy")
    await bench.keep_busy(1)
    for name, priority in (("low", -5), ("first", 0), ("second", 0), ("high", 7)):
        await bench.submit(*toys.tools(name), priority=priority)
    await bench.crash()
    bench.toolbox.executed.clear()
    await bench.restart()
    late = await bench.submit(*toys.tools("late"))
    hold.set()
    await bench.ended(late)
    await bench.executed("low/1")

    assert [name for name in bench.toolbox.executed if "busy" not in name] == [
        "high/1",
        "first/1",
        "second/1",
        "late/1",
        "low/1",
    ]

    await bench.close()


async def test_a_crash_loop_parks_the_run_for_a_person() -> None:
    """A step that was under way in three crashes is not tried a fourth time without a person."""
    bench = await Bench().open()
    hold = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    for attempt in (1, 2, 3):
        await bench.executed(f"one/{attempt}")
        await bench.crash()
        await bench.restart()
    await bench.at_rest(run_id)
    loaded = await bench.store.read(run_id)

    assert bench.toolbox.executed == ["one/1", "one/2", "one/3"]
    assert loaded.decisions.paused == "crash_loop"
    assert await bench.status(run_id) == "paused"

    hold.set()
    await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed[3:] == ["one/4"]

    await bench.close()


class _FullWorkspace:
    """A performer whose workspace has no space, until a test makes some."""

    def __init__(self) -> None:
        self.full = True
        self.asked: list[int] = []

    async def perform(self, call: ports.Call) -> records.Result:
        self.asked.append(call.attempt)
        if self.full:
            raise errors.WorkspaceFault("No space left on device")
        return records.Result(output="written")


async def test_kills_during_a_wait_for_a_full_workspace_are_no_crash_loop() -> None:
    """A run that waits for space in its workspace continues, however often its process was killed meanwhile."""
    bench = Bench()
    workspace = _FullWorkspace()
    bench.performers[operations.ToolCall.kind] = workspace
    bench = await (await bench.restart()).restart()
    run_id = await bench.submit(*toys.tools("one"))
    for attempt in range(1, decisions.CRASH_LOOP_TRIES + 2):
        await bench.shown(run_id, RunState.PAUSED)
        await bench.until(lambda number=attempt: number in workspace.asked)  # type: ignore[misc]
        view = bench.pool.view(run_id)
        assert view is not None
        assert (view.error or {}).get("code") == "storage_error"
        await bench.crash()
        await bench.restart()
    await bench.shown(run_id, RunState.PAUSED)
    workspace.full = False
    await bench.advance_until(lambda: run_id not in bench.active.active_runs)

    assert await bench.status(run_id) == "done"
    assert set(workspace.asked) == {1, 2, 3, 4, 5}

    await bench.close()


@pytest.mark.parametrize(("rule", "state"), [("ask", "paused"), ("fail", "failed")])
async def test_a_step_may_forbid_its_repetition(rule: str, state: str) -> None:
    """A step in flight that must not be repeated automatically waits for a person, or fails."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit({"agent": "one", "on_interrupted": rule})
    await bench.toolbox.begun("one")
    await bench.crash()
    await bench.restart()
    await bench.at_rest(run_id)

    assert await bench.status(run_id) == state
    assert bench.toolbox.executed == ["one/1"]

    await bench.close()


async def test_a_requested_cancel_is_finished_after_a_crash() -> None:
    """A run whose cancel was written before the crash ends as cancelled, and performs no further step."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one"))
    await bench.toolbox.begun("one")
    await bench.crash_at("pool.after_cancel", 1, bench.pool.cancel(run_id))
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.CANCELLED]
    assert bench.toolbox.executed == ["one/1"]

    await bench.close()


async def test_a_paused_run_that_was_cancelled_ends_after_a_crash() -> None:
    """A written cancel is valid although the row still says that the run is paused."""
    bench = await Bench().open()
    run_id = await _paused(bench)
    await bench.crash_at("pool.after_cancel", 1, bench.pool.cancel(run_id))
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.CANCELLED]

    await bench.close()


@pytest.mark.parametrize("point", ["pool.before_unpause", "pool.after_unpause"])
async def test_an_unpause_counts_when_it_is_written(point: str) -> None:
    """A crash before the line leaves the run paused; after a crash behind the line the run continues."""
    bench = await Bench().open()
    run_id = await _paused(bench)
    await bench.crash_at(point, 1, bench.pool.unpause(run_id))
    await bench.restart()
    if point == "pool.before_unpause":
        assert await bench.status(run_id) == "paused"

        await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


@pytest.mark.parametrize("point", ["pool.before_pause", "pool.after_pause"])
async def test_a_pause_counts_when_it_is_written(point: str) -> None:
    """After a crash before the line the run continues; a crash behind the line leaves it paused."""
    bench = await Bench().open()
    hold = bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"))
    await bench.toolbox.begun("one")
    await bench.crash_at(point, 1, bench.pool.pause(run_id))
    hold.set()
    await bench.restart()
    if point == "pool.after_pause":
        await bench.at_rest(run_id)

        assert await bench.status(run_id) == "paused"

        await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_fault_without_a_line_is_tried_again_at_the_next_start() -> None:
    """A run that only this version could not continue continues in a service of another version."""
    bench = await Bench().open()
    run_id = await bench.submit(*toys.tools("one"), dialect="later")
    await bench.shown(run_id, RunState.PAUSED)
    await bench.crash()
    bench.dialects["later"] = toys.TOY
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_run_of_another_process_is_left_alone() -> None:
    """A run that a command line began is not continued automatically; after a resume it is the service's."""
    bench = await Bench().open()
    run_id = await bench.submit(*toys.tools("one", "two"), owner="process")
    bench.toolbox.hold("two")
    await bench.toolbox.begun("two")
    await bench.crash()
    await bench.restart()
    await pools.idle()

    assert bench.pool.standing(run_id) is None
    assert bench.toolbox.executed == ["one/1", "two/1"]

    await bench.resumed(run_id)
    await bench.executed("two/2")
    await bench.crash()
    bench.toolbox.hold("two").set()
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_paused_run_of_another_process_is_taken_over_by_an_unpause() -> None:
    """A paused run that a command line began continues with an unpause, as its listed orders say."""
    bench = await Bench().open()
    run_id = await _paused(bench, owner="process")
    await bench.crash()
    await bench.restart()
    await bench.pool.unpause(run_id)

    assert await bench.pool.ended(run_id) is RunState.DONE
    assert bench.toolbox.executed == ["one/1", "two/1"]
    assert (await bench.store.summary(run_id)).owner == "service"

    await bench.close()


async def test_an_interrupted_run_of_another_process_is_not_unpaused() -> None:
    """A run that was not paused refuses an unpause, whichever process began it."""
    bench = await Bench().open()
    run_id = await bench.submit(*toys.tools("one"), owner="process")
    bench.toolbox.hold("one")
    await bench.toolbox.begun("one")
    await bench.crash()
    await bench.restart()

    with pytest.raises(errors.WrongState, match="is running; only a paused run is unpaused"):
        await bench.pool.unpause(run_id)

    await bench.close()


async def test_a_pool_without_a_service_recovers_no_run() -> None:
    """A command line's pool executes the runs that it submits, and leaves the runs that it finds to the service."""
    bench = await Bench().open()
    found = await bench.create(*toys.tools("one"))
    await bench.crash()
    await bench.restart(recover=False)
    mine = await bench.submit(*toys.tools("two"), owner="process", exclusive_workspace=True)

    assert await bench.ended(mine) == [RunState.DONE]
    assert bench.pool.standing(found) is None
    assert bench.toolbox.executed == ["two/1"]

    await bench.close()


async def test_recovery_returns_the_number_of_runs() -> None:
    """The pool returns the number of runs that it has recovered."""
    bench = await Bench(limit=1).open()
    for _ in range(3):
        await bench.create(*toys.tools("one"))
    await bench.crash()
    await bench.restart()

    assert await bench.pool.recovered() == 3

    await bench.close()


async def test_a_waiting_caller_waits_through_pauses() -> None:
    """A caller that waits for the end of a run waits through its pause and unpause."""
    bench = await Bench().open()
    run_id = await _paused(bench)
    end = asyncio.create_task(bench.pool.ended(run_id))
    await pools.idle()

    assert not end.done()

    await bench.pool.unpause(run_id)

    assert await pools.soon(end) is RunState.DONE

    await bench.close()


async def _paused(bench: Bench, **facts: Any) -> str:
    bench.toolbox.hold("one")
    run_id = await bench.submit(*toys.tools("one", "two"), **facts)
    await bench.toolbox.begun("one")
    await bench.pool.pause(run_id)
    bench.toolbox.hold("one").set()
    await bench.at_rest(run_id)
    return run_id


class SlowRows(memory_store.MemoryStore):
    """A store whose rows are out of date by the time that they are read."""

    looked = False

    def __init__(self, bench: Bench) -> None:
        super().__init__(clock=bench.clock, probes=bench.probes)
        self.arrive = asyncio.Event()

    async def list_unfinished(self) -> list[stores.RunSummary]:
        """Return the runs that are unfinished now, a while later."""
        found = await super().list_unfinished()
        self.looked = True
        await self.arrive.wait()
        return found


async def test_a_run_that_ended_while_rows_were_read_is_not_queued_again() -> None:
    """A run that ended during recovery is not queued again when its old row is read."""
    bench = Bench()
    store = SlowRows(bench)
    bench.take_store(store)
    await store.start()
    hold = bench.toolbox.hold("one")
    run_id = await bench.create(*toys.tools("one"))
    bench.pool.start()
    await bench.pool.submit(run_id)
    await bench.executed("one/1")
    await bench.until(lambda: store.looked)
    hold.set()
    await bench.ended(run_id)
    store.arrive.set()
    found = await pools.soon(bench.pool.recovered())

    assert found == 1
    assert bench.pool.standing(run_id) is None
    assert bench.probes.count("pool.queued") == 1

    await bench.close()


@pytest.mark.parametrize("submitted", [False, True])
async def test_a_run_created_after_the_start_is_not_recovered(submitted: bool) -> None:
    """A run created after the start does not count as recovered, whether it is submitted or not."""
    bench = Bench()
    store = SlowRows(bench)
    bench.take_store(store)
    await store.start()
    left = await bench.create(*toys.tools("one"))
    bench.pool.start()
    bench.pool.expect("20260210T143001Z-000000")
    fresh = await bench.create(*toys.tools("two"), run_id="20260210T143001Z-000000")
    if submitted:
        await bench.pool.submit(fresh)
    await bench.until(lambda: store.looked)
    store.arrive.set()
    found = await pools.soon(bench.pool.recovered())
    await bench.pool.submit(fresh)
    ended = await bench.ended(left, fresh)

    assert found == 1
    assert ended == [RunState.DONE, RunState.DONE]

    await bench.close()
