"""Commits: after a kill or a power cut, exactly the confirmed data exists."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.domain import runs
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.domain.states import RunState
from app.engine.stores import RunQuery
from app.storage import layout
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, FolderStoreHarness, StoreHarness

KEYED = {"idempotency_key": "k1", "request_sha256": "a" * 64}


def keys(loaded: Any) -> list[str]:
    """Return the keys of a run's records."""
    return [record.key for record in loaded.records]


# -- creation


async def test_a_large_run_is_durable_without_the_log(harness: StoreHarness) -> None:
    """A run too large to be written twice is durable when it is accepted."""
    store = await harness.open()
    await store.create(store_harness.start(args={"text": "x" * 400_000}))
    store = await harness.crash()

    assert len((await store.read(RUN)).start.args["text"]) == 400_000


async def test_a_run_that_cannot_get_its_name_is_refused_for_good(harness: StoreHarness) -> None:
    """A committed run that cannot be moved into place is refused, and does not exist after a power cut."""
    store = await harness.open()
    files = store._parts.context.disk
    rename = files.rename

    def refuse(old: str, new: str) -> None:
        if new == f"runs/{RUN}":
            raise OSError(errno.EIO, "Input/output error", new)
        rename(old, new)

    files.rename = refuse  # type: ignore[method-assign]
    with pytest.raises(errors.WriteFailed):
        await store.create(store_harness.start())
    store = await harness.crash()

    assert await store.list_runs(RunQuery()) == []
    assert await store.list_unfinished() == []


# -- in the middle of a run


async def test_confirmed_lines_of_a_new_run_survive_a_power_cut(harness: StoreHarness) -> None:
    """Steps, decisions, a large output and receipts of a run without a sync of its own survive a power cut."""
    log = await store_harness.begun(harness)
    blob = await log.put_blob(b"y" * 70_000, text=True)
    await log.decide(DecisionKind.STARTED, {"key": "a", "attempt": 1, "operation": "x"}, sync=False)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    large = store_harness.step("b") | {"output": None, "blob": blob.to_json(), "output_hash": f"sha256:{blob.sha256}"}
    record = await log.append_step(large)
    store = await harness.crash()
    loaded = await store.read(RUN)
    log = await store.open(RUN)
    await log.flush()

    assert keys(loaded) == ["a", "b"]
    assert loaded.decisions.taken == 1
    assert await log.get_blob(record.blob or blob) == "y" * 70_000
    assert (await store.find_receipt("rcpt_a"))["key"] == "a"
    told = [event.type for event in await store.read_events(RUN)]
    assert (told.count(EventType.RUN_CREATED), told.count(EventType.STEP_FINISHED)) == (1, 2)


async def test_a_run_survives_several_power_cuts(harness: StoreHarness) -> None:
    """A run survives several power cuts in a row, each after a further step."""
    await (await harness.open()).create(store_harness.start())
    for number in range(4):
        log = await harness.store.open(RUN)
        await log.append_step(store_harness.step(f"s{number}"))
        await harness.crash()

    assert keys(await harness.store.read(RUN)) == ["s0", "s1", "s2", "s3"]


async def test_a_line_that_failed_does_not_come_back(harness: StoreHarness) -> None:
    """A line that could not be made durable does not return later, although the run continued and ended."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    harness.faults.refuse("sync", "", errno.EIO)
    with pytest.raises(errors.StorageFault):
        await log.append_step(store_harness.step("lost"))
    harness.faults.lift()
    await log.heal()
    await log.append_step(store_harness.step("b"))
    await store_harness.end(log)
    store = await harness.crash()

    assert keys(await store.read(RUN)) == ["a", "b"]
    assert (await store.maintenance.verify(RUN))["ok"]


# -- actions of people on runs in the log


async def test_a_deleted_run_does_not_come_back(harness: StoreHarness) -> None:
    """A run created, ended and deleted within a moment stays deleted after a power cut, and its receipt stays."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await store_harness.end(log)
    await log.close()
    await harness.store.delete(RUN)
    store = await harness.crash()

    assert await store.list_runs(RunQuery()) == []
    with pytest.raises(errors.NotFound):
        await store.read(RUN)
    assert (await store.find_receipt("rcpt_a"))["key"] == "a"


async def test_a_repair_stays_as_it_was_made(harness: StoreHarness) -> None:
    """Lines that a repair has dropped do not return from the log."""
    log = await store_harness.begun(harness)
    for key in "abc":
        await log.append_step(store_harness.step(key))
    await log.close()
    harness.change("steps.jsonl", lambda content: content.replace(b'"step_id":"b"', b'"step_id":"X"'))
    await harness.store.maintenance.repair(RUN)
    store = await harness.crash()

    assert keys(await store.read(RUN)) == ["a"]
    assert (await store.read(RUN)).decisions.status is RunState.PAUSED


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("start.json", lambda content: content.replace(b'"draft"', b'"drift"')),
        ("steps.jsonl", lambda content: content + b'{"by":"hand"}\n'),
        ("control.jsonl", lambda content: content + b"\n"),
    ],
)
async def test_a_new_run_that_was_changed_by_hand_is_read_anew(harness: StoreHarness, name: str, change: Any) -> None:
    """The store reads a new run that was changed by hand from its folder, not from memory."""
    store = await harness.open()
    await store.create(store_harness.start())
    before = (await store.read(RUN)).start
    harness.change(name, change)
    log = await store.open(RUN)

    if name == "start.json":
        assert log.loaded.start.recipe_id == "drift" != before.recipe_id
    else:
        assert EventType.RECOVERY_TAIL_CUT in [event.type for event in await store.read_events(RUN)]
    await log.append_step(store_harness.step("a"))
    assert keys(await store.read(RUN)) == ["a"]


async def test_a_new_run_whose_folder_was_removed_is_not_found(harness: StoreHarness) -> None:
    """A run whose folder a person removed before its opening is not found, and leaves the store's memory."""
    store = await harness.open()
    await store.create(store_harness.start())
    harness.files().remove_tree(f"runs/{RUN}")
    with pytest.raises(errors.NotFound):
        await store.open(RUN)

    assert store._parts.opener.new_runs._held == {}


async def test_deletion_and_repair_treat_an_unopened_run_as_usual(harness: StoreHarness) -> None:
    """Deleting and repairing a run that waits for its opening works as for any other run."""
    store = await harness.open()
    await store.create(store_harness.start())
    with pytest.raises(errors.WrongState):
        await store.delete(RUN)
    await store.create(store_harness.start("second"))
    await store.maintenance.repair("second")
    log = await store.open(RUN)

    assert log.loaded.decisions.status is RunState.PENDING


# -- rows


async def test_while_rows_cannot_be_written_new_runs_are_refused(harness: StoreHarness) -> None:
    """A run whose row cannot be written is refused and does not appear later; open runs continue."""
    log = await store_harness.begun(harness)
    index = _database(harness)
    apply, put_run = index.apply, index.put_run

    async def refuse(*_: object) -> None:
        raise errors.StorageFault("the index is full", detail={"file": "index"})

    index.apply = index.put_run = refuse
    with pytest.raises(errors.WriteFailed):
        await harness.store.create(store_harness.start("keyed", **KEYED))
    await log.append_step(store_harness.step("a"))
    disk_health = await harness.store.write_fault() is None if isinstance(harness, FolderStoreHarness) else False
    listed = [run.run_id for run in await harness.store.list_runs(RunQuery())]
    index.apply = apply
    index.put_run = put_run
    again = await harness.store.create(store_harness.start("again", **KEYED))
    store = await harness.crash()

    assert not disk_health
    assert "keyed" not in listed
    assert not again.existed
    assert sorted(run.run_id for run in await store.list_unfinished()) == [RUN, "again"]


def _database(harness: StoreHarness) -> Any:
    index: Any = harness.store._parts.context.index
    return getattr(index, "_inner", index)


# -- two processes


@pytest.fixture
async def neighbours(tmp_path: Path, migrated: bytes) -> Any:
    """Yield a service and a process beside it, over the same folder."""
    service = FolderStoreHarness(tmp_path, migrated)
    beside = FolderStoreHarness.__new__(FolderStoreHarness)
    StoreHarness.__init__(beside)
    beside.place = service.place
    beside.store = beside._built()
    await service.store.start()
    await beside.store.start(serve=False)
    yield service, beside
    await beside.store.close()
    await service.store.close()


async def test_a_process_beside_the_service_leaves_its_log_alone(neighbours: Any) -> None:
    """A process beside the service syncs its own runs, and leaves the service's log unchanged."""
    service, beside = neighbours
    await service.store.create(store_harness.start())
    log = await service.store.open(RUN)
    await log.append_step(store_harness.step("a"))
    segments = service.files().names(layout.COMMITS)
    await beside.store.create(store_harness.start("other", owner="process"))
    other = await beside.store.open("other")
    await other.append_step(store_harness.step("a"))
    synced = beside.passed.points["storage.append.after_sync"]
    with pytest.raises(errors.Conflict) as caught:
        await beside.store.open(RUN)
    await other.close()
    await beside.store.close()

    assert segments == service.files().names(layout.COMMITS) == ["1.log"]
    assert synced == 1
    assert caught.value.code == "run_busy"
    assert sorted(run.run_id for run in await service.store.list_runs(RunQuery())) == [RUN, "other"]


async def test_a_run_deleted_by_another_process_does_not_return(neighbours: Any) -> None:
    """A run that another process deleted does not return from the service's log after a power cut."""
    service, beside = neighbours
    await service.store.create(store_harness.start())
    log = await service.store.open(RUN)
    await store_harness.end(log)
    await log.close()
    await service.store._parts.context.index.flush()
    await beside.store.delete(RUN)
    segment = f"{layout.COMMITS}/1.log"
    content = service.files().read(segment)
    service.store.abandon()
    service.files().write(segment, content.replace(_boot_id(service), b"earlier boot"), sync=True)
    service.store = service._built()
    await service.store.start()

    assert await service.store.list_unfinished() == []
    assert not service.files().has_folder(f"runs/{RUN}")
    assert service.files().names(layout.COMMITS) == []


def _boot_id(harness: StoreHarness) -> bytes:
    return harness.files().boot_id().encode()


async def test_a_process_that_finds_a_log_completes_runs_before_it_reads(
    tmp_path: Path, migrated: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power cut, the first process to open the store restores the runs of the commit log, and logs that."""
    harness = FolderStoreHarness(tmp_path, migrated)
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await store_harness.end(log)
    await harness.store._parts.context.index.flush()
    harness.store.abandon()
    for name in ("steps.jsonl", "control.jsonl", "events.jsonl"):
        harness.files().cut(harness.path(name), 10)
    segment = f"{layout.COMMITS}/1.log"
    content = harness.files().read(segment)
    harness.files().write(segment, content.replace(_boot_id(harness), b"earlier boot"), sync=True)
    first = harness._built()
    with caplog.at_level(logging.WARNING):
        await first.start(serve=False)
    told = keys(await first.read(RUN))
    await first.close()
    harness.store = harness._built()
    await harness.store.start()
    unfinished = [run.run_id for run in await harness.store.list_unfinished()]
    log = await harness.store.open(RUN)
    await log.flush()
    await log.move(runs.Transition.end(RUN, RunState.DONE, "2026-02-10T14:33:00.000Z"))
    events = [event.type for event in await harness.store.read_events(RUN)]
    await harness.store.close()

    assert told == ["a"]
    assert "completed from the commit log" in caplog.text
    assert unfinished == [RUN]
    assert (events.count("step.finished"), events.count("run.ended")) == (1, 1)
