"""Findings of the crash laboratory; each was once hidden damage."""

from __future__ import annotations

import contextlib
import errno
import logging

import pytest

from app import errors
from app.domain import runs
from app.domain.decisions import PAUSED_BY_PERSON, DecisionKind
from app.domain.events import EventType
from app.domain.states import RunState
from app.engine.stores import RunQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

KEYED = {"idempotency_key": "k1", "request_sha256": "a" * 64}
AT = "2026-02-10T14:31:00.000Z"


async def test_a_refused_run_is_not_there_later(harness: StoreHarness) -> None:
    """A run that could not be made durable is refused, and neither a retry nor a restart finds it."""
    store = await harness.open()
    harness.faults.refuse("sync", "", errno.EIO)
    with pytest.raises(errors.WriteFailed):
        await store.create(store_harness.start(**KEYED))
    harness.faults.lift()
    again = await store.create(store_harness.start("second", **KEYED))
    store = await harness.crash()

    assert again == type(again)(run_id="second", existed=False)
    assert [run.run_id for run in await store.list_unfinished()] == ["second"]
    assert [run.run_id for run in await store.list_runs(RunQuery())] == ["second"]


async def test_a_finished_runs_files_survive_a_power_cut(harness: StoreHarness) -> None:
    """The snapshots, events and receipts of a finished run of a process survive a power cut without another opening."""
    await harness.store.start(serve=False)
    log = await store_harness.begun(harness)
    record = await log.append_step(store_harness.proven("a"))
    await log.add_receipt(record)
    log.refresh(lambda: {"run.json": {"status": "done"}, "cache.json": {"a": 1}})
    await store_harness.end(log)
    await harness.settle()
    store = await harness.crash()

    assert (await store.summary(RUN)).status == "done"
    assert (await store.read_snapshots(RUN)) == {"run.json": {"status": "done"}, "cache.json": {"a": 1}}
    assert (await store.find_receipt("rcpt_a"))["key"] == "a"
    assert [event.type for event in await store.read_events(RUN)] == [
        "run.created",
        "run.started",
        "step.finished",
        "run.ended",
    ]


async def test_the_service_completes_finished_runs_after_a_power_cut(harness: StoreHarness) -> None:
    """After a power cut the service opens the runs of its commit log again, finished ones too, and completes them."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await store_harness.end(log)
    await harness.store._parts.context.index.flush()
    store = await harness.crash()
    found = [run.run_id for run in await store.list_unfinished()]
    if found:
        await (await store.open(RUN)).flush()

    assert found == [RUN] or (await store.summary(RUN)).status == "done"
    assert (await store.read(RUN)).decisions.status is RunState.DONE
    assert (await store.find_receipt("rcpt_a"))["key"] == "a"
    assert "step.finished" in [event.type for event in await store.read_events(RUN)]


async def test_a_row_stays_unfinished_while_its_files_cannot_be_synced(harness: StoreHarness) -> None:
    """The row of an ended run counts as unfinished until its files are durable."""
    await harness.store.start(serve=False)
    log = await store_harness.begun(harness)
    log.refresh(lambda: {"run.json": {"status": "done"}})
    await log.decide(DecisionKind.ENDED, {"status": "done"})
    await log.flush()
    harness.faults.refuse("sync", "run.json", errno.EIO)
    await log.move(runs.Transition.end(RUN, RunState.DONE, AT))
    owed = [run.run_id for run in await harness.store.list_unfinished()]
    harness.faults.lift()
    await log.close()

    assert owed == [RUN]
    assert await harness.store.list_unfinished() == []
    assert (await harness.store.summary(RUN)).status == "done"


async def test_a_vanished_unfinished_run_is_logged(harness: StoreHarness, caplog: pytest.LogCaptureFixture) -> None:
    """A row without a folder is removed, and the log names the run if it was unfinished."""
    await (await harness.open()).create(store_harness.start())
    await harness.settle()
    harness.files().remove_tree(f"runs/{RUN}")
    harness.files().sync_folder("runs")
    with caplog.at_level(logging.ERROR):
        store = await harness.crash()
        listed = await store.list_runs(RunQuery())

    assert listed == []
    assert [record.getMessage() for record in caplog.records if RUN in record.getMessage()] == [
        f"the run {RUN} was pending, and its folder is gone"
    ]


async def test_a_receipt_that_its_file_did_not_keep_is_made_anew(harness: StoreHarness) -> None:
    """If the receipts file has lost a receipt of a finished run, the receipt comes from the run's journal."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await log.flush()
    before = await harness.store.find_receipt("rcpt_a")
    await store_harness.end(log)
    await log.close()
    harness.files().remove(f"audit/sessions/{store_harness.SESSION}/tool_receipts.jsonl")

    assert await harness.store.find_receipt("rcpt_a") == before


async def test_a_missing_last_event_of_a_finished_run_is_logged(
    harness: StoreHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading the events of a finished run logs an error if its last event is missing."""
    log = await store_harness.begun(harness)
    await store_harness.end(log)
    await log.close()
    harness.put("events.jsonl", b"")
    with caplog.at_level(logging.ERROR):
        found = await harness.store.read_events(RUN)

    assert found == []
    assert f"the run {RUN} has ended, and its last events are missing" in caplog.messages


@pytest.mark.parametrize("lost", [True, False])
async def test_a_page_of_events_logs_a_missing_end(
    harness: StoreHarness, lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading only the first events of a finished run logs an error exactly if the last events are missing."""
    log = await store_harness.begun(harness)
    await store_harness.end(log)
    await log.close()
    if lost:
        harness.change("events.jsonl", lambda content: content[: content[:-1].rfind(b"\n") + 1])
    with caplog.at_level(logging.ERROR):
        found = await harness.store.read_events(RUN, 0, 1)

    assert store_harness.types(found) == ["run.created"]
    assert (f"the run {RUN} has ended, and its last events are missing" in caplog.messages) is lost


async def test_a_run_that_could_not_be_opened_is_not_written_on(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an opening that fails at its last step, no writer remains, and the run can be opened again."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await log.flush()
    store = await harness.crash()
    context = store._parts.context

    async def refuse(_: object) -> None:
        raise errors.StorageFault("the index is full")

    with monkeypatch.context() as patch:
        patch.setattr(context.index, "add_receipts", refuse)
        with pytest.raises(errors.StorageFault):
            await store.open(RUN)
    left_open = context.throttle.open
    log = await store.open(RUN)
    await log.flush()

    assert left_open == 0
    assert sorted(store_harness.types(await store.read_events(RUN))) == ["run.created", "run.started", "step.finished"]


async def test_an_ended_run_whose_row_was_taken_back_is_opened_once_more(harness: StoreHarness) -> None:
    """A run whose row a power cut removed is listed as unfinished, so that the service opens it."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.proven("a"))
    await log.decide(DecisionKind.ENDED, {"status": "done"})
    await harness.store._parts.context.index.remove_run(RUN)
    store = await harness.crash()
    unfinished = [run.run_id for run in await store.list_unfinished()]
    log = await store.open(RUN)
    await log.flush()

    assert unfinished == [RUN]
    assert (await store.find_receipt("rcpt_a"))["key"] == "a"


@pytest.mark.parametrize("folder", ["runs", RUN])
async def test_events_whose_folder_cannot_be_synced_are_not_written_twice(harness: StoreHarness, folder: str) -> None:
    """After a failed folder sync, the events are written again, each of them once."""
    log = await store_harness.begun(harness)
    log.add_event(EventType.RUN_PAUSED, None, {"reason": PAUSED_BY_PERSON})
    harness.faults.refuse("sync", folder, errno.EIO)
    with contextlib.suppress(errors.StorageFault):
        await log.flush()
    harness.faults.lift()
    await log.flush()
    numbers = [event.seq for event in await harness.store.read_events(RUN)]

    assert numbers == sorted(set(numbers))
    assert harness.content("events.jsonl").count(b"run.paused") == 1


@pytest.mark.parametrize("name", ["steps.jsonl", "control.jsonl"])
async def test_a_failed_sync_at_the_opening_does_not_fail_the_run(harness: StoreHarness, name: str) -> None:
    """A failed sync of a journal at the opening is a passing fault, and does not fail the run."""
    await (await harness.open()).create(store_harness.start())
    store = await harness.crash()
    harness.faults.refuse("settle", name, errno.EIO)
    with pytest.raises(errors.StorageFault):
        await store.open(RUN)
    harness.faults.lift()
    log = await store.open(RUN)

    assert (await store.summary(RUN)).status == "pending"
    assert log.loaded.decisions.ended is None
