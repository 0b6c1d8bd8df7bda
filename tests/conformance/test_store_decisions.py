"""Decisions: of a cancel and an ending the first wins, and only a resume can follow an ending."""

from __future__ import annotations

import asyncio
import json

import pytest

from app import errors
from app.domain.decisions import DecisionKind
from app.domain.runs import Transition
from app.domain.states import RunState
from app.engine.stores import RunQuery
from app.storage.runs.folder_log import FolderLog
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness


def kinds(harness: StoreHarness) -> list[str]:
    """Return the kinds of all control lines in the file."""
    return [json.loads(line)["kind"] for line in harness.content("control.jsonl").splitlines()]


async def ending(log: FolderLog, status: str) -> bool:
    """Write an ending without moving the row."""
    return await log.decide(DecisionKind.ENDED, {"status": status})


async def test_a_decision_is_folded_in_and_found_again(harness: StoreHarness) -> None:
    """A decision is visible at once, with its instant, and survives a crash."""
    log = await store_harness.begun(harness)
    await log.decide(DecisionKind.PAUSED, {"reason": "paused_by_person"})
    now = log.loaded.decisions
    store = await harness.crash()
    found = (await store.read(RUN)).decisions

    assert (now.taken, now.paused) == (found.taken, found.paused) == (1, "paused_by_person")
    assert found.status is RunState.PAUSED
    assert found.last_at == "2026-02-10T14:30:00.000Z"


async def test_an_ending_counts_the_lines_before_it(harness: StoreHarness) -> None:
    """An ending waits for the steps in progress, and contains their number."""
    log = await store_harness.begun(harness)
    steps = [asyncio.ensure_future(log.append_step(store_harness.step(key))) for key in "ab"]
    await asyncio.sleep(0)
    await ending(log, "done")
    records = await asyncio.gather(*steps)
    await log.close()
    ended = (await harness.store.read(RUN)).decisions.ended

    assert ended is not None
    assert ended.lines == len(records) == 2


async def test_a_cancel_before_the_ending_wins(harness: StoreHarness) -> None:
    """After a cancel, `cancelled` is the only ending that can be written."""
    log = await store_harness.begun(harness)

    assert await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    assert not await ending(log, "done")
    assert not await ending(log, "failed")
    assert await ending(log, "cancelled")
    assert kinds(harness) == ["taken", "cancel_requested", "ended"]


async def test_an_ending_before_the_cancel_wins(harness: StoreHarness) -> None:
    """After an ending, neither a cancel nor a second ending is written."""
    log = await store_harness.begun(harness)

    assert await ending(log, "done")
    assert not await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    assert not await ending(log, "cancelled")
    assert kinds(harness) == ["taken", "ended"]


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_of_a_cancel_and_an_ending_at_the_same_time_the_first_wins(
    harness: StoreHarness, cancel_first: bool
) -> None:
    """Of a cancel and an ending in the same turn, exactly the first one is written."""
    log = await store_harness.begun(harness)
    asked = [log.decide(DecisionKind.CANCEL_REQUESTED, {}), ending(log, "done")]
    written = await asyncio.gather(*(asked if cancel_first else reversed(asked)))

    assert written == [True, False]
    assert kinds(harness)[-1] == ("cancel_requested" if cancel_first else "ended")


async def test_a_second_cancel_waits_for_the_first(harness: StoreHarness) -> None:
    """Two cancels at once write one line."""
    log = await store_harness.begun(harness)
    first, second = await asyncio.gather(*(log.decide(DecisionKind.CANCEL_REQUESTED, {}) for _ in range(2)))

    assert (first, second) == (True, False)
    assert kinds(harness) == ["taken", "cancel_requested"]


async def test_a_cancel_whose_caller_goes_away_still_counts(harness: StoreHarness) -> None:
    """A cancel whose caller disappears is still written, and a later ending is refused."""
    log = await store_harness.begun(harness)
    cancel = asyncio.ensure_future(log.decide(DecisionKind.CANCEL_REQUESTED, {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cancel.cancel()

    assert not await ending(log, "done")
    assert kinds(harness) == ["taken", "cancel_requested"]


async def test_a_lost_cancel_can_be_asked_for_again(harness: StoreHarness) -> None:
    """A cancel that could not be made durable does not count."""
    log = await store_harness.begun(harness)
    harness.faults.refuse("sync", "control.jsonl")
    with pytest.raises(errors.StorageFault):
        await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    harness.faults.lift()
    await log.heal()

    assert await ending(log, "done")
    assert not await log.decide(DecisionKind.CANCEL_REQUESTED, {})


async def test_an_ended_log_refuses_steps_until_a_resume(harness: StoreHarness) -> None:
    """After an ending the log refuses steps and decisions, until a resume."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await ending(log, "failed")

    with pytest.raises(errors.WrongState):
        await log.append_step(store_harness.step("b"))
    assert not await log.decide(DecisionKind.PAUSED, {"reason": "x"})
    assert not await log.decide(DecisionKind.TAKEN, {})
    assert await log.decide(DecisionKind.RESUMED, {"dead": [[0, 0]], "overrides": {"args": {"x": 2}}})
    assert (await log.append_step(store_harness.step("a"))).position == 1
    assert log.loaded.start.args == {"x": 2}
    assert log.loaded.decisions.dead == {0}


async def test_a_resumed_run_is_found_as_it_was_resumed(harness: StoreHarness) -> None:
    """After a crash, a resumed run has its dead lines, overrides and further lines, and is unfinished."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await store_harness.end(log, "failed")
    await log.decide(DecisionKind.RESUMED, {"dead": [[0, 0]], "overrides": {"args": {"x": 2}}})
    await log.append_step(store_harness.step("a"))
    store = await harness.crash()
    loaded = await store.read(RUN)

    assert loaded.start.args == {"x": 2}
    assert loaded.decisions.dead == {0}
    assert loaded.decisions.status is RunState.PENDING
    assert [run.status for run in await store.list_unfinished()] == ["pending"]


async def test_the_row_is_unfinished_before_the_resume_is_written(harness: StoreHarness) -> None:
    """A resume writes one line, and makes the row unfinished."""
    log = await store_harness.begun(harness)
    await store_harness.end(log, "failed")
    before = await harness.store.summary(RUN)
    seen: list[str] = []
    harness.passed.at["storage.decide.before_write"] = lambda: seen.append("line")
    await log.decide(DecisionKind.RESUMED, {"dead": []})

    assert before.status == "failed"
    assert seen == ["line"]
    assert (await harness.store.summary(RUN)).status == "pending"


async def test_a_decision_that_cannot_be_folded_in_is_not_written(harness: StoreHarness) -> None:
    """A decision without its required facts raises an error in the caller, and writes no line."""
    log = await store_harness.begun(harness)
    with pytest.raises(KeyError):
        await log.decide(DecisionKind.STARTED, {})

    assert kinds(harness) == ["taken"]


# -- moves of the row


async def test_a_move_applies_from_an_expected_state_only(harness: StoreHarness) -> None:
    """A move from another state than the run's current one changes no row, and neither does a repeated move."""
    log = await store_harness.begun(harness)
    seen = []
    for move in (
        Transition.end(RUN, RunState.DONE, "2026-02-10T14:31:00.000Z"),
        Transition.begin(RUN, "2026-02-10T14:32:00.000Z"),
        Transition.end(RUN, RunState.DONE, "2026-02-10T14:33:00.000Z"),
        Transition.begin(RUN, "2026-02-10T14:34:00.000Z"),
    ):
        await log.move(move)
        seen.append((await harness.store.summary(RUN)).status)

    assert seen == ["pending", "running", "done", "done"]
    assert (await harness.store.summary(RUN)).completed_at == "2026-02-10T14:33:00.000Z"


async def test_an_ending_on_disk_moves_a_row_from_any_unfinished_state(harness: StoreHarness) -> None:
    """The row of an ended run moves to its ending even if its earlier moves are missing."""
    log = await store_harness.begun(harness)
    await ending(log, "done")
    done = Transition.end(RUN, RunState.DONE, "2026-02-10T14:32:00.000Z")
    before = (await harness.store.summary(RUN)).status
    await log.move(done)

    assert before == "pending"
    assert (await harness.store.summary(RUN)).status == "done"


async def test_a_row_that_cannot_be_written_is_owed(harness: StoreHarness) -> None:
    """A full index does not block a run.

    Its ending is shown, and its row counts as unfinished until the run closes.
    """
    log = await store_harness.begun(harness)
    harness.refuse_rows()
    take, done = (
        Transition.begin(RUN, "2026-02-10T14:31:00.000Z"),
        Transition.end(RUN, RunState.DONE, "2026-02-10T14:32:00.000Z"),
    )
    await log.move(take)
    await ending(log, "done")
    await log.move(done)
    shown = [await harness.store.summary(RUN), *await harness.store.list_runs(RunQuery(status="done"))]
    unfinished = await harness.store.list_unfinished()
    with pytest.raises(errors.StorageFault):
        await log.move(Transition.queue(RUN, "2026-02-10T14:33:00.000Z"))
    harness.allow_rows()
    await log.close()

    assert [(run.status, run.completed_at is not None) for run in shown] == [("done", True)] * 2
    assert [run.status for run in unfinished] == ["pending"]
    assert (await harness.store.summary(RUN)).status == "done"
    assert await harness.store.list_unfinished() == []


async def test_a_move_back_clears_the_ending(harness: StoreHarness) -> None:
    """Queuing a failed run again clears its completion and its error."""
    log = await store_harness.begun(harness)
    await log.move(Transition.begin(RUN, "2026-02-10T14:31:00.000Z"))
    await log.move(Transition.end(RUN, RunState.FAILED, "2026-02-10T14:32:00.000Z", "tool_failed"))
    failed = await harness.store.summary(RUN)
    await log.move(Transition.queue(RUN, "2026-02-10T14:33:00.000Z"))
    queued = await harness.store.summary(RUN)

    assert (failed.status, failed.error_code) == ("failed", "tool_failed")
    assert (queued.status, queued.error_code, queued.completed_at) == ("pending", None, None)
