"""Journals: a step counts when its line is synced, lines keep the order of their callers, and a
damaged place is told.
"""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from app import errors
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.domain.records import BlobRef
from tests.conformance import houses
from tests.conformance.houses import RUN, House

STARTED = {"key": "a", "attempt": 1, "operation": "sha256:a"}


async def test_a_step_is_read_back_as_it_was_recorded(house: House) -> None:
    """The record handed out, the one found after a crash and the line in the file are the same."""
    log = await houses.begun(house)
    record = await log.append_step(houses.step("a", {"found": ["ä", 1.5, None]}))
    store = await house.crash()
    loaded = await store.read(RUN)

    assert list(loaded.records) == [record]
    assert record.output == {"found": ["ä", 1.5, None]}
    assert json.loads(house.content("steps.jsonl")) == record.line


async def test_lines_are_chained_to_the_start(house: House) -> None:
    """The first line of each journal carries the hash of start.json, each further one that of the line before."""
    log = await houses.begun(house)
    for key in "abc":
        await log.append_step(houses.step(key))
    await log.decide(DecisionKind.STARTED, STARTED)
    for name in ("steps.jsonl", "control.jsonl"):
        before = house.content("start.json")
        for line in house.content(name).splitlines():
            assert json.loads(line)["prev"] == plain.labelled_sha256(before)
            before = line


async def test_lines_have_the_order_of_their_callers(house: House) -> None:
    """Concurrent steps and decisions stand in their journals in the order in which they were asked for."""
    log = await houses.begun(house)
    done: list[str] = []

    async def record(key: str) -> None:
        await log.append_step(houses.step(key))
        done.append(key)

    keys = [f"s{n}" for n in range(20)]
    decisions = [log.decide(DecisionKind.STARTED, STARTED | {"attempt": n}, sync=n % 3 == 0) for n in range(20)]
    await asyncio.gather(*map(record, keys), *decisions)
    await log.close()
    steps = [json.loads(line)["key"] for line in house.content("steps.jsonl").splitlines()]
    attempts = [json.loads(line).get("attempt") for line in house.content("control.jsonl").splitlines()]

    assert steps == keys
    assert done == keys
    assert attempts == [None, *range(20)]


async def test_lines_appended_together_share_a_sync(house: House) -> None:
    """Branches that record in the same turn cost one sync and carry one batch number; the next line another."""
    log = await houses.begun(house)
    before = house.passed.points["storage.commit.before_sync"]
    together = await asyncio.gather(*(log.append_step(houses.step(key)) for key in "abcd"))
    syncs = house.passed.points["storage.commit.before_sync"] - before
    alone = await log.append_step(houses.step("e"))

    assert syncs == 1
    assert {record.line["batch"] for record in together} == {0}
    assert alone.line["batch"] == 4


async def test_an_unsynced_decision_is_written_before_it_is_answered(house: House) -> None:
    """A `started` line that needs no sync costs none, and outlives the process though not a power cut."""
    log = await houses.begun(house)
    before = house.passed.points["storage.decide.before_sync"]
    await log.decide(DecisionKind.STARTED, STARTED, sync=False)

    assert house.passed.points["storage.decide.before_sync"] == before
    assert json.loads(house.content("control.jsonl").splitlines()[-1])["kind"] == "started"
    assert [begun.attempt for begun in log.loaded.decisions.tries["a"]] == [1]


async def test_a_caller_that_goes_away_stops_no_commit(house: House) -> None:
    """A commit once asked for finishes although nobody waits for it any more."""
    log = await houses.begun(house)
    caller = asyncio.ensure_future(log.append_step(houses.step("a")))
    other = asyncio.ensure_future(log.append_step(houses.step("b")))
    await asyncio.sleep(0)
    caller.cancel()
    record = await other

    assert record.position == 1
    assert [record.key for record in (await house.store.read(RUN)).records] == ["a", "b"]


async def test_large_outputs_are_kept_beside_the_journal(house: House) -> None:
    """A blob is there, checked against its hash, after a crash right behind its line."""
    log = await houses.begun(house)
    text, value = "ü" * 100_000, {"rows": list(range(20_000))}
    kept = [
        await log.put_blob(text.encode(), text=True),
        await log.put_blob(plain.canonical(value), text=False),
    ]
    for key, blob in zip("ab", kept, strict=True):
        facts = {"output_hash": f"sha256:{blob.sha256}", "blob": blob.to_json()}
        await log.append_step(houses.step(key) | facts | {"output": None})
    store = await house.crash()
    log = await store.open(RUN)

    assert [record.blob for record in log.loaded.records] == kept
    assert await log.get_blob(kept[0]) == text
    assert await store.read_blob(RUN, kept[1]) == value


async def test_a_blob_is_kept_once(house: House) -> None:
    """The same content again is the same blob, and one that was damaged is written anew."""
    log = await houses.begun(house)
    first = await log.put_blob(b"x" * 70_000, text=True)
    house.put(f"blobs/{first.sha256}", b"damaged")
    second = await log.put_blob(b"x" * 70_000, text=True)

    assert first == second
    assert await log.get_blob(second) == "x" * 70_000


@pytest.mark.parametrize("damage", ["missing", "changed", "shorter"])
async def test_a_lost_blob_is_told(house: House, damage: str) -> None:
    """A blob that is missing or wrong makes its run unreadable, names the line and deletes nothing."""
    log = await houses.begun(house)
    await log.append_step(houses.step("a"))
    blob = await log.put_blob(b"x" * 70_000, text=True)
    facts = {"output_hash": f"sha256:{blob.sha256}", "blob": blob.to_json()}
    await log.append_step(houses.step("b") | facts | {"output": None})
    name = f"blobs/{blob.sha256}"
    if damage == "missing":
        house.remove(name)
    else:
        house.put(name, b"y" * 70_000 if damage == "changed" else b"x")
    with pytest.raises(errors.JournalCorrupt):
        await log.get_blob(blob)
    journal = house.content("steps.jsonl")
    store = await house.crash()
    with pytest.raises(errors.JournalCorrupt) as caught:
        await store.open(RUN)

    assert caught.value.detail["file"] == "steps.jsonl"
    assert caught.value.detail["line"] == 2
    assert house.content("steps.jsonl") == journal


async def test_a_blob_that_leads_elsewhere_is_none(house: House) -> None:
    """A handle is a hash; nothing else can be read through it."""
    await houses.begun(house)
    with pytest.raises(errors.JournalCorrupt):
        await house.store.read_blob(RUN, BlobRef(sha256="../start.json", size_bytes=1, text=True))


# -- failures


@pytest.mark.parametrize("operation", ["write", "short", "sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_failed_commit_can_be_repeated(house: House, operation: str, code: int) -> None:
    """After a failed or short write or sync nothing of it counts, and after healing the same line is appended."""
    log = await houses.begun(house)
    first = await log.append_step(houses.step("a"))
    house.faults.refuse(operation, "steps.jsonl", code)
    for _ in range(2):
        with pytest.raises(errors.StorageFault) as caught:
            await log.append_step(houses.step("b"))
    room = house.store._parts.means.room.free
    house.faults.lift()
    with pytest.raises(errors.StorageFault):
        await log.append_step(houses.step("b"))
    await log.heal()
    second = await log.append_step(houses.step("b"))
    store = await house.crash()

    assert caught.value.code == "storage_error"
    assert caught.value.detail["file"].endswith("steps.jsonl")
    assert not room
    assert list((await store.read(RUN)).records) == [first, second]


async def test_a_failed_commit_fails_all_that_waited_for_it(house: House) -> None:
    """Every line of a failed batch, and every one queued behind it, is told to its own caller."""
    log = await houses.begun(house)
    house.faults.refuse("sync", "steps.jsonl")
    results = await asyncio.gather(*(log.append_step(houses.step(key)) for key in "abc"), return_exceptions=True)
    house.faults.lift()
    await log.heal()
    again = await asyncio.gather(*(log.append_step(houses.step(key)) for key in "abc"))

    assert all(isinstance(result, errors.StorageFault) for result in results)
    assert [record.position for record in again] == [0, 1, 2]


async def test_healing_needs_room(house: House) -> None:
    """While there is no room healing fails, the store says so, and reading goes on."""
    log = await houses.begun(house)
    await log.append_step(houses.step("a"))
    house.faults.refuse("write")
    with pytest.raises(errors.StorageFault):
        await log.append_step(houses.step("b"))
    with pytest.raises(errors.StorageFault):
        await log.heal()
    refused = await house.store.has_room()
    read = await house.store.read(RUN)
    with pytest.raises(errors.NoRoom):
        await house.store.create(houses.start("second"))
    house.faults.lift()
    await log.heal()

    assert not refused
    assert [record.key for record in read.records] == ["a"]
    assert await house.store.has_room()


async def test_a_failed_decision_is_not_folded_in(house: House) -> None:
    """A decision that could not be made durable has not happened, and those before it stay, synced or not."""
    log = await houses.begun(house)
    await log.decide(DecisionKind.STARTED, STARTED, sync=False)
    house.faults.refuse("short", "control.jsonl")
    with pytest.raises(errors.StorageFault):
        await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    with pytest.raises(errors.StorageFault):
        await log.decide(DecisionKind.STARTED, STARTED | {"attempt": 2}, sync=False)
    requested = log.loaded.decisions.cancel_requested_at
    house.faults.lift()
    await log.heal()
    written = await log.decide(DecisionKind.CANCEL_REQUESTED, {})
    await log.close()
    kinds = [json.loads(line)["kind"] for line in house.content("control.jsonl").splitlines()]

    assert requested is None
    assert written
    assert kinds == ["taken", "started", "cancel_requested"]


async def test_a_failed_blob_is_no_blob(house: House) -> None:
    """A blob that could not be written leaves nothing behind, and can be kept later."""
    log = await houses.begun(house)
    house.faults.refuse("write")
    with pytest.raises(errors.StorageFault):
        await log.put_blob(b"x" * 70_000, text=True)
    house.faults.lift()
    blob = await log.put_blob(b"x" * 70_000, text=True)

    assert await log.get_blob(blob) == "x" * 70_000


# -- what is found at opening


async def test_a_torn_end_is_cut_off_and_told(house: House) -> None:
    """A last line that is incomplete is cut off, an event tells it, and the run goes on behind the line before."""
    log = await houses.begun(house)
    await log.append_step(houses.step("a"))
    await log.append_step(houses.step("b"))
    await log.rest()
    await house.crash()
    house.change("steps.jsonl", lambda content: content[:-10])
    kept = house.content("steps.jsonl").index(b"\n") + 1
    log = await house.store.open(RUN)
    event = next(event for event in await house.store.read_events(RUN) if event.type == "recovery.tail_cut")
    record = await log.append_step(houses.step("b"))
    await log.close()
    loaded = await house.store.read(RUN)

    assert [record.key for record in log.loaded.records] == ["a"]
    assert (event.data["file"], event.data["at_byte"]) == ("steps.jsonl", kept)
    assert record.position == 1
    assert [record.key for record in loaded.records] == ["a", "b"]


async def test_reading_changes_nothing(house: House) -> None:
    """A run that is only looked at is shown without its torn end, which stays where it is."""
    log = await houses.begun(house)
    await log.append_step(houses.step("a"))
    await house.crash()
    house.change("steps.jsonl", lambda content: content + b'{"torn')
    loaded = await house.store.read(RUN)

    assert [record.key for record in loaded.records] == ["a"]
    assert house.content("steps.jsonl").endswith(b'{"torn')


@pytest.mark.parametrize("name", ["steps.jsonl", "control.jsonl"])
async def test_damage_before_the_end_is_told_with_its_place(house: House, name: str) -> None:
    """A damaged line before the last batch parks the run as failed, names file and line, and deletes nothing."""
    log = await houses.begun(house)
    for key in "abc":
        await log.append_step(houses.step(key))
        await log.decide(DecisionKind.STARTED, STARTED | {"key": key})
    await log.rest()
    await house.settle()
    await house.crash()
    house.change(name, lambda content: _damaged(content, line=1))
    damaged = house.content(name)
    with pytest.raises(errors.JournalCorrupt) as caught:
        await house.store.open(RUN)
    with pytest.raises(errors.JournalCorrupt):
        await house.store.read(RUN)
    summary = await house.store.summary(RUN)
    manifest = (await house.store.read_snapshots(RUN))["run.json"]

    assert caught.value.detail == {"run_id": RUN, "file": name, "line": 2, "reason": caught.value.detail["reason"]}
    assert (summary.status, summary.error_code) == ("failed", "journal_corrupt")
    assert (manifest["status"], manifest["error"]["code"]) == ("failed", "journal_corrupt")
    assert houses.types(await house.store.read_events(RUN))[-1] == "recovery.corrupt"
    assert house.content(name) == damaged
    assert await house.store.list_unfinished() == []


@pytest.mark.parametrize("name", ["steps.jsonl", "control.jsonl"])
async def test_a_missing_journal_is_damage(house: House, name: str) -> None:
    """A journal that is gone is not taken for an empty one."""
    log = await houses.begun(house)
    await log.append_step(houses.step("a"))
    await house.crash()
    house.remove(name)
    with pytest.raises(errors.JournalCorrupt) as caught:
        await house.store.open(RUN)

    assert (caught.value.detail["file"], caught.value.detail["reason"]) == (name, "is missing")


async def test_an_ending_vouches_for_its_lines(house: House) -> None:
    """A journal shorter or longer than its ending says is damaged, though each line is sound."""
    await houses.ended(house, "a", "b")
    whole = house.content("steps.jsonl")
    await house.crash()
    for content in (whole[: whole.index(b"\n") + 1], b"", whole[:-5]):
        house.put("steps.jsonl", content)
        with pytest.raises(errors.JournalCorrupt) as caught:
            await house.store.open(RUN)
        assert caught.value.detail["file"] == "steps.jsonl"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"run_id": 1}', b"\xff"])
async def test_an_unreadable_start_is_told(house: House, content: bytes) -> None:
    """A start.json that cannot be read is named, and the run is listed as failed."""
    await houses.begun(house)
    await house.crash()
    house.put("start.json", content)
    with pytest.raises(errors.JournalCorrupt) as caught:
        await house.store.open(RUN)

    assert caught.value.detail["file"] == "start.json"
    assert (await house.store.summary(RUN)).error_code == "journal_corrupt"


async def test_a_changed_start_is_told(house: House) -> None:
    """A start.json that was changed after the first line no longer belongs to its journals."""
    await houses.begun(house)
    await house.crash()
    house.change("start.json", lambda content: content.replace(b"draft", b"drift"))
    with pytest.raises(errors.JournalCorrupt) as caught:
        await house.store.open(RUN)

    assert "start.json" in caught.value.detail["reason"]


async def test_a_line_whose_output_does_not_fit_runs_again(house: House) -> None:
    """The last line's output is checked against its hash; one that does not fit is cut off like a torn one."""
    log = await houses.begun(house)
    await log.append_step(houses.step("a"))
    await log.append_step(houses.step("b") | {"output": "something else"})
    store = await house.crash()
    log = await store.open(RUN)

    assert [record.key for record in log.loaded.records] == ["a"]


async def test_a_run_has_one_writer(house: House) -> None:
    """A run that is open cannot be opened, deleted or repaired; it can be read, and after closing opened again."""
    log = await houses.begun(house)
    for asked in (house.store.open(RUN), house.store.delete(RUN), house.store.care.repair(RUN)):
        with pytest.raises(errors.Conflict) as caught:
            await asked
        assert caught.value.code == "run_busy"
    await house.store.read(RUN)
    await log.close()
    await log.close()
    again = await house.store.open(RUN)

    assert again.loaded.decisions.taken == 1


async def test_an_opening_that_nobody_waits_for_is_undone(house: House) -> None:
    """A caller that is cut off while a run is opened leaves it closed."""
    log = await houses.begun(house)
    await log.close()
    opening = asyncio.ensure_future(house.store.open(RUN))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    again = await house.store.open(RUN)

    assert again.run_id == RUN


def _damaged(content: bytes, line: int) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[line] = lines[line].replace(b"a", b"b", 1)
    return b"".join(lines)
