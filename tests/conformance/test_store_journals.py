"""Journals: a step counts when its line is synced, lines keep the order of their callers, and damage is reported."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from app import errors
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.domain.records import BlobRef
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

STARTED = {"key": "a", "attempt": 1, "operation": "sha256:a"}


async def test_a_step_is_read_back_as_it_was_recorded(harness: StoreHarness) -> None:
    """The returned record, the record after a crash and the line in the file are equal."""
    log = await store_harness.begun(harness)
    record = await log.append_step(store_harness.step("a", {"found": ["ä", 1.5, None]}))
    store = await harness.crash()
    loaded = await store.read(RUN)

    assert list(loaded.records) == [record]
    assert record.output == {"found": ["ä", 1.5, None]}
    assert json.loads(harness.content("steps.jsonl")) == record.line


async def test_lines_are_chained_to_the_start(harness: StoreHarness) -> None:
    """The first line of each journal contains the hash of start.json, each further one that of the line before."""
    log = await store_harness.begun(harness)
    for key in "abc":
        await log.append_step(store_harness.step(key))
    await log.decide(DecisionKind.STARTED, STARTED)
    for name in ("steps.jsonl", "control.jsonl"):
        before = harness.content("start.json")
        for line in harness.content(name).splitlines():
            assert json.loads(line)["prev"] == plain.labelled_sha256(before)
            before = line


async def test_lines_have_the_order_of_their_callers(harness: StoreHarness) -> None:
    """Concurrent steps and decisions are in their journals in the order of their calls."""
    log = await store_harness.begun(harness)
    done: list[str] = []

    async def record(key: str) -> None:
        await log.append_step(store_harness.step(key))
        done.append(key)

    keys = [f"s{n}" for n in range(20)]
    decisions = [log.decide(DecisionKind.STARTED, STARTED | {"attempt": n}, sync=n % 3 == 0) for n in range(20)]
    await asyncio.gather(*map(record, keys), *decisions)
    await log.close()
    steps = [json.loads(line)["key"] for line in harness.content("steps.jsonl").splitlines()]
    attempts = [json.loads(line).get("attempt") for line in harness.content("control.jsonl").splitlines()]

    assert steps == keys
    assert done == keys
    assert attempts == [None, *range(20)]


async def test_lines_appended_together_share_a_sync(harness: StoreHarness) -> None:
    """Branches that record in the same turn share one sync and one batch number."""
    log = await store_harness.begun(harness)
    before = harness.passed.points["storage.commit.before_sync"]
    together = await asyncio.gather(*(log.append_step(store_harness.step(key)) for key in "abcd"))
    syncs = harness.passed.points["storage.commit.before_sync"] - before
    alone = await log.append_step(store_harness.step("e"))

    assert syncs == 1
    assert {record.line["batch"] for record in together} == {0}
    assert alone.line["batch"] == 4


async def test_an_unsynced_decision_is_written_before_it_is_answered(harness: StoreHarness) -> None:
    """A `started` line without a sync is in the file when the call returns."""
    log = await store_harness.begun(harness)
    before = harness.passed.points["storage.decide.before_sync"]
    await log.decide(DecisionKind.STARTED, STARTED, sync=False)

    assert harness.passed.points["storage.decide.before_sync"] == before
    assert json.loads(harness.content("control.jsonl").splitlines()[-1])["kind"] == "started"
    assert [begun.attempt for begun in log.loaded.decisions.attempts["a"]] == [1]


async def test_the_first_taking_shares_the_sync_of_the_first_step(file_harness: StoreHarness) -> None:
    """An unsynced `taken` line shares the sync of the first step, and survives a crash after it."""
    store = await file_harness.open()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    before = file_harness.passed.points["storage.commit.before_sync"]
    await log.decide(DecisionKind.TAKEN, {}, sync=False)
    await log.decide(DecisionKind.STARTED, STARTED, sync=False)
    await log.append_step(store_harness.step("a"))
    syncs = file_harness.passed.points["storage.commit.before_sync"] - before
    store = await file_harness.crash()
    found = await store.read(RUN)

    assert syncs == 1
    assert found.decisions.taken == 1
    assert [record.key for record in found.records] == ["a"]


async def test_an_unsynced_taking_is_durable_before_its_events_are_read(file_harness: StoreHarness) -> None:
    """Reading the first events makes the `taken` line of their block durable, even before the first step."""
    store = await file_harness.open()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    before = file_harness.passed.points["storage.commit.before_sync"]
    await log.decide(DecisionKind.TAKEN, {}, sync=False)
    unread = file_harness.passed.points["storage.commit.before_sync"] - before
    told = await store.read_events(RUN)
    store = await file_harness.crash()

    assert unread == 0
    assert [event.type for event in told] == ["run.created", "run.started"]
    assert (await store.read(RUN)).decisions.taken == 1


async def test_a_log_that_is_closed_keeps_an_unsynced_taking(harness: StoreHarness) -> None:
    """Closing a log before its first step makes an unsynced `taken` line durable, with its events."""
    store = await harness.open()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {}, sync=False)
    await log.close()
    told = [event.type for event in await store.read_events(RUN)]
    store = await harness.crash()

    assert told == ["run.created", "run.started"]
    assert (await store.read(RUN)).decisions.taken == 1


async def test_events_wait_for_a_taking_that_cannot_be_synced(file_harness: StoreHarness) -> None:
    """If a `taken` line cannot be made durable, the events of its block are hidden until the log has healed."""
    store = await file_harness.open()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {}, sync=False)
    file_harness.faults.refuse("sync", "control.jsonl", errno.EIO)
    told = [event.type for event in await store.read_events(RUN)]
    file_harness.faults.lift()
    await log.heal()
    later = [event.type for event in await store.read_events(RUN)]
    store = await file_harness.crash()

    assert "run.started" not in told
    assert later == ["run.created", "run.started"]
    assert (await store.read(RUN)).decisions.taken == 1


async def test_a_caller_that_goes_away_stops_no_commit(harness: StoreHarness) -> None:
    """A commit finishes although its caller has been cancelled."""
    log = await store_harness.begun(harness)
    caller = asyncio.ensure_future(log.append_step(store_harness.step("a")))
    other = asyncio.ensure_future(log.append_step(store_harness.step("b")))
    await asyncio.sleep(0)
    caller.cancel()
    record = await other

    assert record.position == 1
    assert [record.key for record in (await harness.store.read(RUN)).records] == ["a", "b"]


@pytest.mark.blobs
async def test_large_outputs_are_kept_beside_the_journal(harness: StoreHarness) -> None:
    """A blob survives a crash right after its line."""
    log = await store_harness.begun(harness)
    text, value = "ü" * 100_000, {"rows": list(range(20_000))}
    kept = [
        await log.put_blob(text.encode(), text=True),
        await log.put_blob(plain.canonical(value), text=False),
    ]
    for key, blob in zip("ab", kept, strict=True):
        facts = {"output_hash": f"sha256:{blob.sha256}", "blob": blob.to_json()}
        await log.append_step(store_harness.step(key) | facts | {"output": None})
    store = await harness.crash()
    log = await store.open(RUN)

    assert [record.blob for record in log.loaded.records] == kept
    assert await log.get_blob(kept[0]) == text
    assert await store.read_blob(RUN, kept[1]) == value


@pytest.mark.blobs
async def test_a_blob_is_kept_once(harness: StoreHarness) -> None:
    """The same content has the same blob, and a damaged blob is written again."""
    log = await store_harness.begun(harness)
    first = await log.put_blob(b"x" * 70_000, text=True)
    harness.put(f"blobs/{first.sha256}", b"damaged")
    second = await log.put_blob(b"x" * 70_000, text=True)

    assert first == second
    assert await log.get_blob(second) == "x" * 70_000


@pytest.mark.blobs
@pytest.mark.parametrize("damage", ["missing", "changed", "shorter"])
async def test_a_lost_blob_makes_its_run_unreadable(harness: StoreHarness, damage: str) -> None:
    """A missing or wrong blob makes its run unreadable; the error names the line, and the journal stays."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    blob = await log.put_blob(b"x" * 70_000, text=True)
    facts = {"output_hash": f"sha256:{blob.sha256}", "blob": blob.to_json()}
    await log.append_step(store_harness.step("b") | facts | {"output": None})
    name = f"blobs/{blob.sha256}"
    if damage == "missing":
        harness.remove(name)
    else:
        harness.put(name, b"y" * 70_000 if damage == "changed" else b"x")
    with pytest.raises(errors.JournalCorrupt):
        await log.get_blob(blob)
    journal = harness.content("steps.jsonl")
    store = await harness.crash()
    with pytest.raises(errors.JournalCorrupt) as caught:
        await store.open(RUN)

    assert caught.value.detail["file"] == "steps.jsonl"
    assert caught.value.detail["line"] == 2
    assert harness.content("steps.jsonl") == journal


@pytest.mark.blobs
async def test_a_blob_that_leads_elsewhere_is_none(harness: StoreHarness) -> None:
    """A blob reference that is not a hash cannot be read."""
    await store_harness.begun(harness)
    with pytest.raises(errors.JournalCorrupt):
        await harness.store.read_blob(RUN, BlobRef(sha256="../start.json", size_bytes=1, text=True))


# -- failures


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_failed_commit_can_be_repeated(
    harness: StoreHarness, caplog: pytest.LogCaptureFixture, operation: str, code: int
) -> None:
    """After a failed write or sync the line does not count, and after healing the same line is appended."""
    log = await store_harness.begun(harness)
    first = await log.append_step(store_harness.step("a"))
    harness.faults.refuse(operation, "steps.jsonl", code)
    for _ in range(2):
        with pytest.raises(errors.StorageFault) as caught:
            await log.append_step(store_harness.step("b"))
    harness.faults.lift()
    with pytest.raises(errors.StorageFault):
        await log.append_step(store_harness.step("b"))
    await log.heal()
    second = await log.append_step(store_harness.step("b"))
    store = await harness.crash()

    assert caught.value.code == "storage_error"
    assert caught.value.detail["file"].endswith("steps.jsonl")
    # Other writes of the run may have succeeded since.
    assert "a write failed" in caplog.messages
    assert list((await store.read(RUN)).records) == [first, second]


async def test_a_failed_commit_fails_all_that_waited_for_it(harness: StoreHarness) -> None:
    """When a batch fails, each caller of its lines gets the error."""
    log = await store_harness.begun(harness)
    harness.faults.refuse("sync", "steps.jsonl")
    results = await asyncio.gather(*(log.append_step(store_harness.step(key)) for key in "abc"), return_exceptions=True)
    harness.faults.lift()
    await log.heal()
    again = await asyncio.gather(*(log.append_step(store_harness.step(key)) for key in "abc"))

    assert all(isinstance(result, errors.StorageFault) for result in results)
    assert [record.position for record in again] == [0, 1, 2]


async def test_healing_needs_room(harness: StoreHarness) -> None:
    """Without space healing fails and the store reports a write fault, but reading continues."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    harness.faults.refuse("write")
    with pytest.raises(errors.StorageFault):
        await log.append_step(store_harness.step("b"))
    with pytest.raises(errors.StorageFault):
        await log.heal()
    refused = await harness.store.write_fault() is None
    read = await harness.store.read(RUN)
    with pytest.raises(errors.WriteFailed):
        await harness.store.create(store_harness.start("second"))
    harness.faults.lift()
    await log.heal()

    assert not refused
    assert [record.key for record in read.records] == ["a"]
    assert await harness.store.write_fault() is None


async def test_a_failed_decision_is_not_folded_in(harness: StoreHarness) -> None:
    """A decision that could not be made durable has no effect, and the earlier ones stay, synced or not."""
    log = await store_harness.begun(harness)
    await log.decide(DecisionKind.STARTED, STARTED, sync=False)
    harness.faults.refuse("short", "control.jsonl")
    with pytest.raises(errors.StorageFault):
        await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    with pytest.raises(errors.StorageFault):
        await log.decide(DecisionKind.STARTED, STARTED | {"attempt": 2}, sync=False)
    requested = log.loaded.decisions.cancel_requested_at
    harness.faults.lift()
    await log.heal()
    written = await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    await log.close()
    kinds = [json.loads(line)["kind"] for line in harness.content("control.jsonl").splitlines()]

    assert requested is None
    assert written
    assert kinds == ["taken", "started", "cancel_requested"]


@pytest.mark.blobs
async def test_a_blob_whose_write_failed_can_be_stored_later(harness: StoreHarness) -> None:
    """A blob that could not be written can be stored later."""
    log = await store_harness.begun(harness)
    harness.faults.refuse("write")
    with pytest.raises(errors.StorageFault):
        await log.put_blob(b"x" * 70_000, text=True)
    harness.faults.lift()
    blob = await log.put_blob(b"x" * 70_000, text=True)

    assert await log.get_blob(blob) == "x" * 70_000


# -- findings at the opening


async def test_a_torn_last_line_is_cut_off_and_reported(harness: StoreHarness) -> None:
    """An incomplete last line is cut off and reported by an event, and the run continues after the line before."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await log.append_step(store_harness.step("b"))
    await log.flush()
    await harness.crash()
    harness.change("steps.jsonl", lambda content: content[:-10])
    kept = harness.content("steps.jsonl").index(b"\n") + 1
    log = await harness.store.open(RUN)
    event = next(event for event in await harness.store.read_events(RUN) if event.type == "recovery.tail_cut")
    record = await log.append_step(store_harness.step("b"))
    await log.close()
    loaded = await harness.store.read(RUN)

    assert [record.key for record in log.loaded.records] == ["a"]
    assert (event.data["file"], event.data["at_byte"]) == ("steps.jsonl", kept)
    assert record.position == 1
    assert [record.key for record in loaded.records] == ["a", "b"]


async def test_reading_changes_nothing(harness: StoreHarness) -> None:
    """Reading a run omits its torn end, and leaves the file unchanged."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await harness.crash()
    harness.change("steps.jsonl", lambda content: content + b'{"torn')
    loaded = await harness.store.read(RUN)

    assert [record.key for record in loaded.records] == ["a"]
    assert harness.content("steps.jsonl").endswith(b'{"torn')


@pytest.mark.parametrize("name", ["steps.jsonl", "control.jsonl"])
async def test_damage_before_the_end_parks_the_run_with_its_place(harness: StoreHarness, name: str) -> None:
    """A damaged line before the last batch parks the run as failed; the error names the place, and the file stays."""
    log = await store_harness.begun(harness)
    for key in "abc":
        await log.append_step(store_harness.step(key))
        await log.decide(DecisionKind.STARTED, STARTED | {"key": key})
    await log.flush()
    await harness.settle()
    await harness.crash()
    harness.change(name, lambda content: _damaged(content, line=1))
    damaged = harness.content(name)
    with pytest.raises(errors.JournalCorrupt) as caught:
        await harness.store.open(RUN)
    with pytest.raises(errors.JournalCorrupt):
        await harness.store.read(RUN)
    summary = await harness.store.summary(RUN)
    manifest = (await harness.store.read_snapshots(RUN))["run.json"]

    assert caught.value.detail == {"run_id": RUN, "file": name, "line": 2, "reason": caught.value.detail["reason"]}
    assert (summary.status, summary.error_code) == ("failed", "journal_corrupt")
    assert (manifest["status"], manifest["error"]["code"]) == ("failed", "journal_corrupt")
    assert store_harness.types(await harness.store.read_events(RUN))[-1] == "recovery.corrupt"
    assert harness.content(name) == damaged
    assert await harness.store.list_unfinished() == []


@pytest.mark.parametrize("name", ["steps.jsonl", "control.jsonl"])
async def test_a_missing_journal_is_damage(harness: StoreHarness, name: str) -> None:
    """A missing journal counts as damage, not as an empty journal."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await harness.crash()
    harness.remove(name)
    with pytest.raises(errors.JournalCorrupt) as caught:
        await harness.store.open(RUN)

    assert (caught.value.detail["file"], caught.value.detail["reason"]) == (name, "is missing")


async def test_an_ending_vouches_for_its_lines(harness: StoreHarness) -> None:
    """A journal shorter than its ending records is damaged, although each line is sound."""
    await store_harness.ended(harness, "a", "b")
    whole = harness.content("steps.jsonl")
    await harness.crash()
    for content in (whole[: whole.index(b"\n") + 1], b"", whole[:-5]):
        harness.put("steps.jsonl", content)
        with pytest.raises(errors.JournalCorrupt) as caught:
            await harness.store.open(RUN)
        assert caught.value.detail["file"] == "steps.jsonl"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"run_id": 1}', b"\xff"])
async def test_an_unreadable_start_is_named_in_the_error(harness: StoreHarness, content: bytes) -> None:
    """An unreadable start.json is named in the error, and the run is listed as corrupt."""
    await store_harness.begun(harness)
    await harness.crash()
    harness.put("start.json", content)
    with pytest.raises(errors.JournalCorrupt) as caught:
        await harness.store.open(RUN)

    assert caught.value.detail["file"] == "start.json"
    assert (await harness.store.summary(RUN)).error_code == "journal_corrupt"


async def test_a_changed_start_is_refused(harness: StoreHarness) -> None:
    """A start.json that was changed after the first line does not match its journals."""
    await store_harness.begun(harness)
    await harness.crash()
    harness.change("start.json", lambda content: content.replace(b"draft", b"drift"))
    with pytest.raises(errors.JournalCorrupt) as caught:
        await harness.store.open(RUN)

    assert "start.json" in caught.value.detail["reason"]


async def test_a_line_whose_output_does_not_fit_runs_again(harness: StoreHarness) -> None:
    """If the output of the last line does not match its hash, the line is cut off like a torn one."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    await log.append_step(store_harness.step("b") | {"output": "something else"})
    store = await harness.crash()
    log = await store.open(RUN)

    assert [record.key for record in log.loaded.records] == ["a"]


async def test_a_run_has_one_writer(harness: StoreHarness) -> None:
    """An open run cannot be opened, deleted or repaired, but it can be read, and opened again after closing."""
    log = await store_harness.begun(harness)
    for asked in (harness.store.open(RUN), harness.store.delete(RUN), harness.store.maintenance.repair(RUN)):
        with pytest.raises(errors.Conflict) as caught:
            await asked
        assert caught.value.code == "run_busy"
    await harness.store.read(RUN)
    await log.close()
    await log.close()
    again = await harness.store.open(RUN)

    assert again.loaded.decisions.taken == 1


async def test_a_cancelled_opening_leaves_the_run_closed(harness: StoreHarness) -> None:
    """Cancelling the opening of a run leaves the run closed."""
    log = await store_harness.begun(harness)
    await log.close()
    before = asyncio.all_tasks()
    opening = asyncio.ensure_future(harness.store.open(RUN))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    while others := asyncio.all_tasks() - before:
        await asyncio.wait(others)
    again = await harness.store.open(RUN)

    assert again.run_id == RUN


def _damaged(content: bytes, line: int) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[line] = lines[line].replace(b"a", b"b", 1)
    return b"".join(lines)
