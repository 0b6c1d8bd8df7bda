"""Tests of the runner: the order of writes, the performed steps, and the states in which a run rests."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import Any

import pytest

from app import clock, errors
from app.domain import operations, records, runs, slots
from app.domain.decisions import DecisionKind
from app.domain.states import RunState, StepState
from app.engine import ports, step_rules, workspace_faults
from tests.unit.engine import logs, samples


async def _three(ctx):
    for name in ("a", "b", "c"):
        record = await ctx.perform(name, samples.tool(name))
        if not record.done:
            raise errors.RunFailed(f"{name} failed", causes=(name,), key=name)
        ctx.fill(name, slots.Slot(type="pointer", sha256=record.output_sha256, summary="", key=name))
        ctx.show(slots.Progress(phase="a", finished_steps=len(ctx.board().slots), total_steps=3))
    return runs.Ending()


async def _branches(ctx):
    async def branch(name):
        record = await ctx.perform(name, samples.tool(name))
        if not record.done:
            raise errors.RunFailed(f"{name} failed", causes=(name,))
        return record.output

    await ctx.gather({name: branch(name) for name in ("a", "b", "c")})
    return runs.Ending()


async def _until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def _code(runner):
    error = runner.view().error
    return error and error["code"]


async def test_a_run_goes_from_its_first_step_to_its_ending():
    """Each step has its lines and receipt, and the manifest, the slots and the index have the end."""
    bench = logs.Bench(_three)

    assert await bench.run() is RunState.DONE
    assert bench.performers.calls == [("a", 1), ("b", 1), ("c", 1)]
    assert bench.disk.recorded() == ["a", "b", "c"]
    assert bench.disk.kinds() == ["taken", "started", "started", "started", "ended"]
    assert len(set(bench.disk.receipts)) == 3
    assert bench.disk.row is RunState.DONE
    assert bench.disk.files["run.json"]["status"] == "done"
    assert bench.disk.files["run.json"]["current_step_index"] == 3
    assert list(bench.disk.files["cache.json"]) == ["a", "b", "c"]


async def test_a_recorded_step_is_never_performed_again():
    """A run with any part of its journal performs only the other steps and ends the same."""
    whole = logs.Bench(_three)
    await whole.run()
    for length in range(4):
        bench = logs.Bench(_three)
        bench.disk.steps = whole.disk.steps[:length]
        bench.disk.control = whole.disk.control[:1]

        assert await bench.run() is RunState.DONE
        assert [key for key, _ in bench.performers.calls] == ["a", "b", "c"][length:]
        assert bench.disk.files["cache.json"] == whole.disk.files["cache.json"]


async def test_a_view_is_marked_while_the_journal_is_replayed():
    """A view is marked as replaying until the driver has replayed the journal and set progress and slots."""
    whole = logs.Bench(_three)
    await whole.run()
    bench = logs.Bench(_three)
    bench.disk.steps, bench.disk.control = whole.disk.steps[:2], whole.disk.control[:1]
    runner = bench.runner()
    before = _progress(runner.view())
    await runner.run()

    assert before == (True, 2, 0)
    assert _progress(runner.view()) == (False, 3, 3)


def _progress(view):
    return view.replaying, len(view.records), view.board.progress.finished_steps


async def test_a_failed_step_fails_the_run_and_names_its_cause():
    """The ending of a failed run has the error and the position of the failed step's line."""
    bench = logs.Bench(_three)
    bench.performers.results["b"] = [errors.ToolFailed("broken", code="no_file", detail={"path": "x"})]

    assert await bench.run() is RunState.FAILED

    ended = json.loads(bench.disk.control[-1])

    assert ended["causes"] == [1]
    assert ended["error"]["message"] == "b failed"
    assert json.loads(bench.disk.steps[1])["error"] == {
        "code": "no_file",
        "message": "broken",
        "key": "b",
        "detail": {"path": "x"},
    }


async def test_a_broken_performer_fails_its_step():
    """An unexpected exception of a performer fails its step with `internal_error`."""
    bench = logs.Bench(_three)
    bench.performers.results["a"] = [ValueError("oops")]

    assert await bench.run() is RunState.FAILED
    assert json.loads(bench.disk.steps[0])["error"]["code"] == "internal_error"


async def test_a_retry_is_recorded_waits_and_is_not_seen_by_the_driver():
    """A try that is not final is recorded but hidden from the driver, and its delay survives a restart."""

    async def drive(ctx):
        policy = operations.RetryPolicy(max_attempts=2, initial_seconds=60)
        record = await ctx.perform("a", operations.ToolCall(tool="a", args={}, retry=policy))
        return runs.Ending(reason=record.output)

    bench = logs.Bench(drive)
    bench.performers.results["a"] = [errors.ToolFailed("busy"), records.Result(output="fine")]
    first = bench.runner()
    running = asyncio.create_task(first.run())
    await _until(lambda: bench.clock.next_wake_seconds() is not None)
    bench.clock.advance(20)
    first.stop()

    assert await running is RunState.RUNNING
    assert bench.disk.kinds()[-1] == "released"
    assert json.loads(bench.disk.steps[0])["final"] is False

    again = asyncio.create_task(bench.run())
    await _until(lambda: bench.clock.next_wake_seconds() == 40)
    bench.clock.advance(40)

    assert await again is RunState.DONE
    assert bench.performers.calls == [("a", 1), ("a", 2)]


async def test_a_cancel_interrupts_the_open_step_and_wins():
    """A cancel interrupts the open step without a record, and the run ends as cancelled."""
    bench = logs.Bench(_three)
    bench.performers.hold("b")
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: "b" in bench.performers.reached and bench.performers.reached["b"].is_set())
    await bench.log.decide(DecisionKind.CANCEL_REQUESTED, {})
    runner.cancel()

    assert await running is RunState.CANCELLED
    assert bench.performers.cut == ["b"]
    assert bench.disk.recorded() == ["a"]
    assert bench.disk.kinds()[-1] == "ended"


async def test_a_cancel_written_before_the_ending_wins():
    """A cancel that is written before the ending makes the run cancelled."""
    bench = logs.Bench(_three)
    hold = bench.performers.hold("c")
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.performers.reached["c"].is_set())
    hold.set()
    await bench.log.decide(DecisionKind.CANCEL_REQUESTED, {})

    assert await running is RunState.CANCELLED
    assert bench.disk.recorded() == ["a", "b", "c"]


async def test_a_requested_cancel_is_finished_without_a_slot():
    """A run with a requested cancel performs no step and takes no capacity when it is executed."""
    bench = logs.Bench(_three)
    runner = bench.runner()
    await bench.log.decide(DecisionKind.CANCEL_REQUESTED, {})

    assert await bench.run() is RunState.CANCELLED
    assert bench.performers.calls == []
    assert bench.slots.story == []
    assert runner.view().status is RunState.PENDING


async def _paused_in(bench, key):
    """Run until a step is performed, pause, complete the step, and return the state of the run at rest."""
    hold = bench.performers.hold(key)
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.performers.reached[key].is_set())
    await bench.log.decide(DecisionKind.PAUSED, {"reason": "paused_by_person"})
    runner.pause()
    hold.set()
    return await running


async def test_a_pause_waits_for_the_open_step_and_begins_no_other():
    """A pause waits for the open step, and the run continues after it once it is unpaused."""
    bench = logs.Bench(_three)

    assert await _paused_in(bench, "b") is RunState.PAUSED
    assert bench.disk.recorded() == ["a", "b"]
    assert bench.disk.row is RunState.PAUSED
    assert await bench.run() is RunState.PAUSED

    await logs.ListLog(bench.disk).decide(DecisionKind.UNPAUSED, {})
    bench.disk.row = RunState.PENDING

    assert await bench.run() is RunState.DONE
    assert bench.performers.calls == [("a", 1), ("b", 1), ("c", 1)]


async def test_a_driver_that_asks_while_it_is_closed_changes_nothing():
    """A driver that asks in a `finally` while it is closed does not change the pause of its run."""

    async def drive(ctx):
        try:
            await ctx.perform("a", samples.tool("a"))
            await ctx.perform("b", samples.tool("b"))
        finally:
            await ctx.perform("c", samples.tool("c"))

    bench = logs.Bench(drive)

    assert await _paused_in(bench, "a") is RunState.PAUSED
    assert (bench.disk.recorded(), bench.disk.row) == (["a"], RunState.PAUSED)


async def test_a_stop_lets_the_open_step_finish():
    """A step that ends within the grace period of a stop is recorded."""
    bench = logs.Bench(_three)
    hold = bench.performers.hold("a")
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.performers.reached["a"].is_set())
    runner.stop()
    hold.set()

    assert await running is RunState.RUNNING
    assert bench.disk.recorded() == ["a"]


async def test_an_interrupted_step_leaves_no_record_and_runs_again():
    """A step interrupted by a stop has no record and runs again; stops do not count as crashes."""
    bench = logs.Bench(_three)
    for _ in range(4):
        bench.performers.hold("a")
        runner = bench.runner()
        running = asyncio.create_task(runner.run())
        await _until(lambda: bench.performers.reached["a"].is_set())
        runner.stop()
        runner.interrupt()

        assert await running is RunState.RUNNING

    bench.performers.holds.clear()

    assert bench.disk.recorded() == []
    assert await bench.run() is RunState.DONE
    assert [attempt for key, attempt in bench.performers.calls if key == "a"] == [1, 2, 3, 4, 5]


async def _crash(bench):
    reached = bench.performers.hold("a") and bench.performers.reached["a"]
    running = asyncio.create_task(bench.runner().run())
    await _until(reached.is_set)
    before = list(bench.disk.control)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.disk.control = before


async def test_three_crashes_in_one_step_park_the_run():
    """A run is parked after three crashes in one step, and continues after an unpause."""
    bench = logs.Bench(_three)
    for _ in range(3):
        await _crash(bench)
    bench.performers.holds.clear()

    assert await bench.run() is RunState.PAUSED
    assert json.loads(bench.disk.control[-1])["reason"] == "crash_loop"
    assert len(bench.performers.calls) == 3

    await logs.ListLog(bench.disk).decide(DecisionKind.UNPAUSED, {})

    assert await bench.run() is RunState.DONE


@pytest.mark.parametrize(("policy", "state"), [("ask", RunState.PAUSED), ("fail", RunState.FAILED)])
async def test_a_step_may_forbid_its_repetition(policy, state):
    """After a crash, a step with the policy `ask` or `fail` is not repeated; its run pauses or fails."""

    async def drive(ctx):
        record = await ctx.perform("a", operations.ToolCall(tool="a", args={}, on_interrupted=policy))
        if not record.done:
            raise errors.RunFailed(record.error.message, code=record.error.code, causes=("a",))

    bench = logs.Bench(drive)
    await _crash(bench)
    bench.performers.holds.clear()

    assert await bench.run() is state
    assert bench.performers.calls == [("a", 1)]


async def test_branches_run_side_by_side_and_a_failure_cuts_the_others():
    """The first failing branch cancels the open steps of its siblings."""
    bench = logs.Bench(_branches)
    bench.performers.hold("a")
    bench.performers.hold("c")
    bench.performers.results["b"] = [errors.ToolFailed("broken")]

    assert await bench.run() is RunState.FAILED
    assert sorted(bench.performers.cut) == ["a", "c"]
    assert bench.disk.recorded() == ["b"]
    assert json.loads(bench.disk.steps[0])["branch"] == "/1.b"


async def test_a_replayed_gather_ends_as_the_live_one_did():
    """A run restarted at any line of a gather ends the same, whatever the order of its branches."""
    whole = logs.Bench(_branches)
    holds = {name: whole.performers.hold(name) for name in "abc"}
    running = asyncio.create_task(whole.run())
    for name in "cab":
        await _until(whole.performers.reached[name].is_set)
        holds[name].set()
        await _until(lambda name=name: name in whole.disk.recorded())

    assert await running is RunState.DONE
    assert whole.disk.recorded() == ["c", "a", "b"]

    for length in range(4):
        bench = logs.Bench(_branches)
        bench.disk.steps = whole.disk.steps[:length]

        assert await bench.run() is RunState.DONE
        assert sorted(key for key, _ in bench.performers.calls) == sorted(["c", "a", "b"][length:])


async def test_a_full_disk_parks_the_run_and_keeps_the_result():
    """With a full disk the run is parked, and its result is committed later without performing the step again."""
    bench = logs.Bench(_three)
    hold = bench.performers.hold("b")
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.performers.reached["b"].is_set())
    bench.disk.broken = True
    hold.set()
    await _until(lambda: runner.view().status is RunState.PAUSED)

    assert _code(runner) == "storage_error"
    assert bench.slots.story[-1] == "leave"

    bench.clock.advance(1)
    await _until(lambda: bench.clock.next_wake_seconds() is not None)
    bench.disk.broken = False
    bench.clock.advance(60)

    assert await running is RunState.DONE
    assert bench.performers.calls == [("a", 1), ("b", 1), ("c", 1)]


async def test_a_stop_does_not_wait_for_room():
    """A service whose disk is full can be stopped."""
    bench = logs.Bench(_three)
    runner = bench.runner()
    bench.disk.broken = True
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.clock.next_wake_seconds() is not None)
    runner.stop()
    runner.interrupt()

    assert await asyncio.wait_for(running, 60) is RunState.RUNNING


async def test_nondeterminism_parks_the_run_and_writes_nothing():
    """Nondeterminism parks the run and leaves the journals unchanged, so that the earlier version can continue it."""
    whole = logs.Bench(_three)
    await whole.run()
    bench = logs.Bench(_branches)
    bench.disk.steps = whole.disk.steps[:2]
    bench.disk.control = whole.disk.control[:3]
    bench.disk.steps = [
        line.replace(b'"tool":"b"', b'"tool":"z"').replace(b'"key":"a"', b'"key":"q"') for line in bench.disk.steps
    ]
    before = list(bench.disk.steps), list(bench.disk.control)
    runner = bench.runner()

    assert await runner.run() is RunState.PAUSED
    assert _code(runner) == "nondeterminism"
    assert (bench.disk.steps, bench.disk.control) == before


async def test_a_broken_driver_parks_the_run():
    """A bug in a driver parks the run and does not end it."""

    async def drive(ctx):
        await ctx.perform("a", samples.tool("a"))
        raise KeyError("bug")

    bench = logs.Bench(drive)
    runner = bench.runner()

    assert await runner.run() is RunState.PAUSED
    assert _code(runner) == "driver_fault"
    assert "ended" not in bench.disk.kinds()


async def test_waiting_gives_the_slot_back():
    """A run whose open steps only wait uses no capacity and is shown as waiting."""

    async def drive(ctx):
        await ctx.perform("a", samples.tool("a"))
        await ctx.gate("ask", operations.Gate(prompt="go on?", expires_seconds=60))
        await ctx.perform("b", samples.tool("b"))

    bench = logs.Bench(drive)
    hold = bench.performers.hold("ask")
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: runner.view().status is RunState.WAITING)

    assert bench.slots.story == ["enter", "leave"]

    hold.set()

    assert await running is RunState.DONE
    assert bench.slots.story == ["enter", "leave", "enter"]


async def test_a_run_waits_only_while_an_input_is_open():
    """Whenever a run is shown as waiting, it has an open input."""
    seen = []

    async def drive(ctx):
        await ctx.gate("ask", operations.Gate(prompt="go on?"))
        await ctx.gate("again", operations.Gate(prompt="sure?"))

    bench = logs.Bench(drive)
    holds = [bench.performers.hold("ask"), bench.performers.hold("again")]
    runner = bench.runner()
    runner._projection._changed = lambda: seen.append(runner.view())
    running = asyncio.create_task(runner.run())
    for key, hold in zip(("ask", "again"), holds, strict=True):
        await _until(lambda key=key: seen and seen[-1].status is RunState.WAITING and seen[-1].open[0].key == key)
        hold.set()
    await running

    assert all(view.open for view in seen if view.status is RunState.WAITING)


async def test_a_gate_keeps_its_due_time_through_a_restart():
    """After a restart, a gate continues as the same try with the same due time and no second line."""
    due = []

    class Waiter(logs.Performers):
        async def perform(self, call):
            due.append((call.attempt, call.due_at))
            await asyncio.Event().wait()

    async def drive(ctx):
        await ctx.gate("ask", operations.Gate(prompt="go on?", expires_seconds=60))

    bench = logs.Bench(drive)
    bench.performers = Waiter()
    for passes in (1, 2):
        runner = bench.runner()
        running = asyncio.create_task(runner.run())
        await _until(lambda passes=passes: len(due) == passes)
        bench.clock.advance(30)
        runner.stop()

        assert await running is RunState.RUNNING

    assert due == [(1, "2026-02-10T14:31:00.000Z")] * 2
    assert bench.disk.kinds().count("started") == 1


async def test_large_outputs_are_kept_beside_the_journal():
    """An output over 64 kB is stored as a blob, and the driver reads it in replay as in the live run."""

    async def drive(ctx):
        record = await ctx.perform("a", samples.tool("a"))
        text = record.output if record.blob is None else await ctx.read(record.blob)
        await ctx.perform("b", samples.tool("b", length=len(text)))

    bench = logs.Bench(drive)
    bench.performers.results["a"] = [records.Result(output="x" * 100_000)]

    assert await bench.run() is RunState.DONE

    line = json.loads(bench.disk.steps[0])

    assert line["output"] is None
    assert line["blob"]["size_bytes"] == 100_000
    assert json.loads(bench.disk.steps[1])["operation"]["body"]["args"] == {"length": 100_000}

    bench.disk.steps.pop()
    bench.disk.control = bench.disk.control[:1]

    assert await bench.run() is RunState.DONE


async def test_secrets_never_reach_the_disk():
    """Outputs, summaries and errors are masked before they are written."""
    bench = logs.Bench(_three)
    bench.secrets = ("hunter2",)
    bench.performers.results["a"] = [records.Result(output={"k": "hunter2"}, summary="hunter2!")]
    bench.performers.results["b"] = [step_rules.failed("x", "no hunter2", {"is": "hunter2"})]
    await bench.run()

    assert b"hunter2" not in b"".join(bench.disk.steps + bench.disk.control)
    assert json.loads(bench.disk.steps[0])["output"] == {"k": "***"}


async def test_notes_are_not_repeated_by_a_replay():
    """A replay does not repeat the notes of a driver."""

    async def drive(ctx):
        ctx.emit("note", {"x": 1})
        await ctx.perform("a", samples.tool("a"))

    bench = logs.Bench(drive)
    await bench.run()
    bench.disk.control = bench.disk.control[:1]
    await bench.run()

    assert [event.key for event in bench.disk.events if event.type == "recipe.note"] == ["note"]


async def test_a_driver_may_end_its_run_in_its_own_way():
    """The run ends with the ending that its driver returns."""

    async def drive(ctx):
        await ctx.perform("a", samples.tool("a"))
        return runs.Ending(status=RunState.CANCELLED, reason="exit_recipe", partial=True, failed_steps=("a",))

    bench = logs.Bench(drive)

    assert await bench.run() is RunState.CANCELLED
    assert bench.disk.files["run.json"]["ending"] == {
        "reason": "exit_recipe",
        "partial": True,
        "failed_steps": ["a"],
    }


async def test_projections_are_written_with_the_snapshots():
    """The projections of a driver are written with the snapshots, with its data and the state of the run."""

    async def drive(ctx):
        seen: list[str] = []
        ctx.project(lambda standing: {"state.json": [standing.status.value, *seen]})
        seen.append((await ctx.perform("a", samples.tool("a"))).key)

    bench = logs.Bench(drive)
    await bench.run()

    assert bench.disk.files["state.json"] == ["done", "a"]


async def test_a_run_that_ended_is_only_shown_again():
    """After a crash between the ending and its row, only the row is written."""
    bench = logs.Bench(_three)
    await bench.run()
    bench.disk.row, before = RunState.RUNNING, list(bench.disk.control)

    assert await bench.run() is RunState.DONE
    assert bench.disk.row is RunState.DONE
    assert bench.disk.control == before


async def test_skipped_steps_are_records_too():
    """A step that its performer skips is recorded as skipped."""
    bench = logs.Bench(_three)
    bench.performers.results["a"] = [records.Result(status=StepState.SKIPPED)]

    assert await bench.run() is RunState.FAILED
    assert json.loads(bench.disk.steps[0])["status"] == "skipped"


async def test_a_run_whose_lines_are_gone_is_parked():
    """A run whose lines are missing, as a begun step proves, is parked, and continues after an unpause."""
    whole = logs.Bench(_three)
    await whole.run()
    bench = logs.Bench(_three)
    bench.disk.steps = whole.disk.steps[:1]
    bench.disk.control = whole.disk.control[:-1]

    assert await bench.run() is RunState.PAUSED

    parked = bench.log.loaded.decisions
    told = [event.data for event in bench.disk.events if event.type == "recovery.lines_missing"]

    assert (parked.paused, parked.pause_error["code"]) == ("journal_lines_missing", "journal_lines_missing")
    assert told == [parked.pause_error["detail"]]
    assert (told[0]["lines"], told[0]["told_by"]) == (1, "control.jsonl (begun: c)")
    assert bench.performers.calls == []

    await bench.log.decide(DecisionKind.UNPAUSED, {})

    assert await bench.run() is RunState.DONE


@pytest.mark.parametrize(
    ("on_interrupted", "cuts", "status", "code", "attempts"),
    [
        ("rerun", 2, RunState.DONE, None, [1, 2, 3]),
        ("rerun", 3, RunState.PAUSED, "crash_loop", [1, 2, 3]),
        ("ask", 1, RunState.PAUSED, "step_interrupted", [1]),
        ("fail", 1, RunState.FAILED, "interrupted", [1]),
    ],
)
async def test_a_step_that_was_cut_off_leaves_a_trace(on_interrupted, cuts, status, code, attempts):
    """An interrupted try is begun, reported and counted as after a kill of the service."""

    async def drive(ctx):
        asked = operations.ToolCall(tool="a", args={}, on_interrupted=on_interrupted)
        record = await ctx.perform("a", asked)
        if not record.done:
            raise errors.RunFailed("failed", causes=("a",), code=record.line["error"]["code"])
        return runs.Ending()

    bench = logs.Bench(drive)
    lost = errors.ControlRoomError("the launcher ended")
    bench.performers.results["a"] = [ports.Interrupted(lost) for _ in range(cuts)]

    assert await bench.run() is status

    decided, ended = bench.log.loaded.decisions, json.loads(bench.disk.steps[-1]) if bench.disk.steps else None
    error = decided.pause_error or (decided.ended and decided.ended.error)
    told = [event.data["attempt"] for event in bench.disk.events if event.type == "step.interrupted"]

    assert [attempt for _, attempt in bench.performers.calls] == attempts
    assert told == list(range(1, cuts + 1))
    assert (error and error["code"]) == code
    assert ended is None or ended["attempt"] == cuts + 1


async def test_a_step_waits_for_its_workspace():
    """A step refused by a full workspace is repeated as the same try, and the fault is reported once and shown."""
    full = OSError(errno.ENOSPC, "raw")
    bench = logs.Bench(_three)
    for key in ("a", "b"):
        bench.performers.results[key] = [workspace_faults.waits(f"Drafts/{key}.md", full) for _ in range(5)]
    shown: list[object] = []
    running: list[Any] = []
    bench.clock = Noting(lambda seconds: shown.append((*_shown(running[0]), seconds)))
    running.append(runner := bench.runner())

    assert await runner.run() is RunState.DONE

    told = [event.type for event in bench.disk.events if event.type.startswith("storage.")]

    assert [json.loads(line)["attempt"] for line in bench.disk.steps] == [1, 1, 1]
    assert told == ["storage.failed", "storage.healed"] * 2
    assert shown[:5] == [("paused", "storage_error", "Drafts/a.md", 0.25 * 2**times) for times in range(5)]


class Noting(clock.FakeClock):
    """A clock that reports every wait."""

    def __init__(self, note) -> None:
        super().__init__()
        self._note = note

    async def sleep(self, seconds: float) -> None:
        self._note(seconds)


def _shown(runner):
    view = runner.view()
    return view.status.value, view.error["code"], view.error["detail"]["file"]


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [(errno.EMFILE, RunState.PAUSED, "storage_error"), (errno.EACCES, RunState.FAILED, "internal_error")],
)
async def test_a_system_error_is_described_without_python_names(number, status, code):
    """A temporary system error parks the run, and another one fails the step, without Python names in the message."""
    bench = logs.Bench(_three)
    bench.performers.results["a"] = [OSError(number, "raw", "/srv/x")]
    runner = bench.runner()

    assert await runner.run() is status

    error = json.loads(bench.disk.steps[0])["error"] if bench.disk.steps else dict(runner.view().error or {})

    assert (error["code"], error["detail"]["errno"]) == (code, errno.errorcode[number])
    assert "/srv/x" in error["message"]
    assert "Error" not in error["message"]


async def test_an_interrupted_step_is_not_a_sign_of_missing_lines():
    """A begun step that was cut off or cancelled is not a sign of missing lines."""
    bench = logs.Bench(_branches)
    bench.performers.hold("a")
    bench.performers.results["b"] = [errors.ToolFailed("broken")]
    await bench.run()
    bench.disk.control = bench.disk.control[:-1]
    await bench.run()
    sequence = logs.Bench(_three)
    await _crash(sequence)
    sequence.performers.holds.clear()
    await sequence.run()

    for disk in (bench.disk, sequence.disk):
        assert "recovery.continued" in {event.type for event in disk.events}
        assert "recovery.lines_missing" not in {event.type for event in disk.events}


async def test_a_run_with_a_requested_pause_is_pausing():
    """A run with a requested pause is running with the reason `pausing` until its open step ends."""
    bench = logs.Bench(_three)
    hold = bench.performers.hold("a")
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.performers.reached["a"].is_set())
    await bench.log.decide(DecisionKind.PAUSED, {"reason": "paused_by_person"})
    runner.pause()
    shown = runner.view()
    hold.set()

    assert (shown.status, shown.reason) == (RunState.RUNNING, "pausing")
    assert await running is RunState.PAUSED
    assert runner.view().reason == "paused_by_person"


async def test_a_failed_tool_execution_has_its_receipt_too():
    """A failed tool execution has a receipt too."""
    bench = logs.Bench(_three)
    bench.performers.results["a"] = [errors.ToolFailed("broken")]
    await bench.run()

    assert bench.disk.receipts == [json.loads(bench.disk.steps[0])["receipt_id"]]
    assert bench.disk.receipts[0].startswith("rcpt_")
