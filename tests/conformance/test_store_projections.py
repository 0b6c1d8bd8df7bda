"""Projections: events, receipts and snapshots are written in the background, and made again from the journals."""

from __future__ import annotations

import asyncio
import functools
import json

import pytest

from app import errors
from app.domain import events
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.domain.records import BlobRef
from app.storage import layout
from app.storage.runs.events_file import BLOCK
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, SESSION, StoreHarness

RECEIPTS = layout.receipts_file(SESSION)


def receipts(harness: StoreHarness) -> list[dict[str, object]]:
    """Return the readable receipts of the session's file."""
    if not harness.files().has_file(RECEIPTS):
        return []
    lines = harness.files().read(RECEIPTS).splitlines()
    return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]


# -- events


async def test_events_are_numbered_and_read_from_anywhere(harness: StoreHarness) -> None:
    """Event numbers rise, each event occurs once, and a reader continues after the last number that it has seen."""
    log = await store_harness.begun(harness)
    told = [log.add_event(EventType.STEP_STARTED, f"s{n}", {"attempt": 1}) for n in range(300)]
    everything = await harness.store.read_events(RUN)
    behind = await harness.store.read_events(RUN, told[200].seq)

    assert [event.seq for event in everything] == sorted({event.seq for event in everything})
    assert store_harness.types(everything[:2]) == ["run.created", "run.started"]
    assert everything[2:] == told
    assert behind == told[201:]
    assert await harness.store.read_events(RUN, told[200].seq, 7) == told[201:208]
    assert await harness.store.read_events(RUN, told[-1].seq) == []


async def test_a_taken_run_numbers_from_a_new_block(harness: StoreHarness) -> None:
    """Each `taken` line opens its own block of event numbers."""
    log = await store_harness.begun(harness)
    await log.flush()
    store = await harness.crash()
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    started = [event.seq for event in await store.read_events(RUN) if event.type == "run.started"]

    assert started == [BLOCK + 1, 2 * BLOCK + 1]


async def test_no_number_is_given_twice(harness: StoreHarness) -> None:
    """An event that a reader has seen keeps its number, even after a crash and an opening without `taken`."""
    log = await store_harness.begun(harness)
    seen: list[events.Event] = []
    for _ in range(6):
        log.add_event(EventType.RUN_PAUSED, None, {"reason": "x"})
        seen += await harness.store.read_events(RUN, seen[-1].seq if seen else 0)
        store = await harness.crash()
        log = await store.open(RUN)
    numbers = [event.seq for event in seen]

    assert len(numbers) == len(set(numbers))
    assert numbers == sorted(numbers)


async def test_a_line_without_its_event_gets_one(harness: StoreHarness) -> None:
    """A journal line without an event gets one event when the run is opened."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    failed = {"status": "failed", "error": {"code": "x", "message": "m", "key": "b", "detail": {}}, "output": None}
    await log.append_step(
        store_harness.step("b") | failed | {"output_hash": None, "final": False, "retry_at": "2026-02-10T15:00:00.000Z"}
    )
    await log.append_step(store_harness.step("b", attempt=2) | failed | {"output_hash": None})
    await log.decide(DecisionKind.PAUSED, {"reason": "crash_loop", "error": None})
    for _ in range(2):
        store = await harness.crash()
        log = await store.open(RUN)
        await log.flush()
    told = await store.read_events(RUN)
    steps = [event for event in told if event.type.startswith("step.")]

    assert [event.type for event in steps] == ["step.finished", "step.retrying", "step.failed"]
    assert [(event.key, event.data["position"]) for event in steps] == [("a", 0), ("b", 1), ("b", 2)]
    assert sorted(store_harness.types(told)) == sorted(
        ["run.created", "step.finished", "step.retrying", "step.failed", "run.started", "run.paused"]
    )


async def test_a_note_is_known_after_a_restart(harness: StoreHarness) -> None:
    """Opening a run returns the keys of its written notes, so that each note is written once."""
    log = await store_harness.begun(harness)
    log.add_event(EventType.RECIPE_NOTE, "halfway", {"x": 1})
    await log.close()
    log = await harness.store.open(RUN)

    assert log.loaded.emitted == {"halfway"}


async def test_a_torn_events_file_is_mended(harness: StoreHarness) -> None:
    """An incomplete last event is cut off, and lines that are not events are skipped."""
    log = await store_harness.begun(harness)
    await log.close()
    harness.change("events.jsonl", lambda content: b'nonsense\n{"seq":1}\n' + content + b'{"seq": 99')
    log = await harness.store.open(RUN)
    log.add_event(EventType.RUN_PAUSED)
    told = store_harness.types(await harness.store.read_events(RUN))

    assert told == ["run.created", "run.started", "run.paused"]


async def test_a_run_that_is_not_opened_yet_is_shown(harness: StoreHarness) -> None:
    """A new run has its manifest and its first event before it is opened, and has the event once."""
    store = await harness.open()
    await store.create(store_harness.start())
    snapshots, first = await store.read_snapshots(RUN), await store.read_events(RUN)
    log = await store.open(RUN)
    await log.flush()

    assert snapshots["run.json"]["status"] == "pending"
    assert [(event.seq, event.type) for event in first] == [(1, "run.created")]
    assert await store.read_events(RUN) == first


async def test_a_run_that_is_opened_at_once_has_its_first_event_once(harness: StoreHarness) -> None:
    """The first event keeps its number if the run is opened at once."""
    store = await harness.open()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    await log.flush()

    assert [(event.seq, event.type) for event in await store.read_events(RUN)] == [
        (1, "run.created"),
        (BLOCK + 1, "run.started"),
    ]
    assert harness.files().has_file(f"runs/{RUN}/run.json")


async def test_a_closed_store_has_shown_its_new_runs(harness: StoreHarness) -> None:
    """Closing the store writes the projections of a run that was never opened."""
    store = await harness.open()
    await store.create(store_harness.start())
    await store.close()

    assert json.loads(harness.files().read(f"runs/{RUN}/run.json"))["status"] == "pending"


async def test_events_that_cannot_be_written_wait(harness: StoreHarness) -> None:
    """On a full disk events wait in memory, and reading returns only the written ones."""
    log = await store_harness.begun(harness)
    await log.flush()
    harness.faults.refuse("short", "events.jsonl")
    told = log.add_event(EventType.RUN_WAITING)
    with pytest.raises(errors.StorageFault):
        await log.flush()
    while_full = await harness.store.read_events(RUN)
    harness.faults.lift()
    await log.flush()

    assert store_harness.types(while_full) == ["run.created", "run.started"]
    assert (await harness.store.read_events(RUN))[-1] == told


# -- receipts


async def test_a_receipt_proves_a_tool_execution(harness: StoreHarness) -> None:
    """A receipt contains the arguments and the payload of a tool execution, and is found by its id at once."""
    log = await store_harness.begun(harness)
    record = await log.append_step(store_harness.proven("a", {"found": ["x"]}))
    await log.add_receipt(record)
    await log.add_receipt(record)

    assert await harness.store.find_receipt("rcpt_a") == {
        "receipt_id": "rcpt_a",
        "session_id": SESSION,
        "run_id": RUN,
        "key": "a",
        "tool": "file_locator",
        "args": {"q": "a"},
        "payload": {"found": ["x"]},
        "sha256": record.output_sha256,
        "started_at": record.started_at,
        "completed_at": record.completed_at,
    }
    assert len(receipts(harness)) == 1


async def test_missing_receipts_are_completed(harness: StoreHarness) -> None:
    """Receipts that a crash left out are written when the run is opened, each once."""
    log = await store_harness.begun(harness)
    for key in "abc":
        await log.append_step(store_harness.proven(key))
    await log.add_receipt(log_record := (await harness.store.read(RUN)).records[1])
    await log.flush()
    for _ in range(2):
        store = await harness.crash()
        log = await store.open(RUN)
        await log.flush()

    assert log_record.receipt_id == "rcpt_b"
    assert sorted(str(receipt["receipt_id"]) for receipt in receipts(harness)) == ["rcpt_a", "rcpt_b", "rcpt_c"]
    assert (await store.find_receipt("rcpt_c"))["payload"] == {"found": "c"}


@pytest.mark.blobs
async def test_a_receipt_is_completed_from_blobs(harness: StoreHarness) -> None:
    """The receipt contains the full payload and arguments, even if they are too large for a line."""
    log = await store_harness.begun(harness)
    payload, body = {"rows": ["x" * 100] * 1000}, {"kind": "tool_call", "tool": "t", "args": {"q": "y" * 5000}}
    kept = await log.put_blob(json.dumps(payload).encode(), text=False)
    asked = await log.put_blob(json.dumps(body).encode(), text=False)
    line = store_harness.proven("a") | {"output": None, "blob": kept.to_json(), "output_hash": f"sha256:{kept.sha256}"}
    await log.append_step(line | {"operation": {"hash": "sha256:x", "blob": asked.to_json()}})
    store = await harness.crash()
    log = await store.open(RUN)
    await log.flush()
    receipt = await store.find_receipt("rcpt_a")

    assert receipt["payload"] == payload
    assert receipt["args"] == body["args"]
    assert BlobRef.from_json(kept.to_json()) == kept


async def test_a_torn_receipts_file_is_mended(harness: StoreHarness) -> None:
    """An incomplete receipt at the end is cut off, and written again when the run is opened."""
    log = await store_harness.begun(harness)
    for key in "ab":
        await log.add_receipt(await log.append_step(store_harness.proven(key)))
    await log.close()
    content = harness.files().read(RECEIPTS)
    harness.files().write(RECEIPTS, content[:-20], sync=True)
    log = await harness.store.open(RUN)
    await log.flush()

    assert harness.files().read(RECEIPTS).endswith(b"}\n")
    assert [receipt["receipt_id"] for receipt in receipts(harness)] == ["rcpt_a", "rcpt_b"]


async def test_runs_of_a_session_share_a_file(harness: StoreHarness) -> None:
    """Receipts that several runs of a session write at once are all whole."""
    store = await harness.open()
    logs = []
    for name in ("one", "two", "three"):
        await store.create(store_harness.start(name))
        logs.append(await store.open(name))

    async def work(log: object, name: str) -> None:
        for key in (f"{name}-{n}" for n in range(5)):
            record = await logs[int(name)].append_step(store_harness.proven(key))
            await logs[int(name)].add_receipt(record)
            await logs[int(name)].flush()

    await asyncio.gather(*(work(log, str(number)) for number, log in enumerate(logs)))
    found = [str(receipt["receipt_id"]) for receipt in receipts(harness)]

    assert sorted(found) == sorted(f"rcpt_{n}-{m}" for n in range(3) for m in range(5))
    for receipt_id in found:
        assert (await store.find_receipt(receipt_id))["receipt_id"] == receipt_id


async def test_a_session_stays_in_its_folder(harness: StoreHarness) -> None:
    """The receipts of a session are below `audit/sessions`, even with a hostile session id."""
    for name in ("../../evil", ".", "a/b", "ü" * 300):
        run_id = f"run{len(name)}"
        log = await store_harness.begun(harness, run_id=run_id, session_id=name)
        await log.add_receipt(await log.append_step(store_harness.step("a", receipt_id=f"rcpt_{run_id}")))
        await log.close()
        assert (await harness.store.find_receipt(f"rcpt_{run_id}"))["session_id"] == name

    assert len(harness.files().names("audit/sessions")) == 4


async def test_an_unknown_receipt_is_not_found(harness: StoreHarness) -> None:
    """An unknown receipt is not found."""
    store = await harness.open()
    for receipt_id in ("rcpt_x", "", "../x", "x" * 1000):
        with pytest.raises(errors.NotFound):
            await store.find_receipt(receipt_id)


# -- snapshots


async def test_snapshots_are_current_at_rest(harness: StoreHarness) -> None:
    """After a flush, snapshots show the last state, however often they were out of date."""
    log = await store_harness.begun(harness)
    for count in range(50):
        log.refresh(functools.partial(dict, {"run.json": {"count": count}, "cache.json": {"a": count}}))
        await log.append_step(store_harness.step(f"s{count}"))
    await log.flush()

    assert await harness.store.read_snapshots(RUN) == {"run.json": {"count": 49}, "cache.json": {"a": 49}}


async def test_snapshots_are_written_when_asked_for(harness: StoreHarness) -> None:
    """Showing an open run writes its snapshots; showing an unknown run raises no error."""
    log = await store_harness.begun(harness)
    await log.flush()
    log.refresh(lambda: {"state.json": {"x": 1}})
    await harness.store.maintenance.show(RUN)
    await harness.store.maintenance.show("another")

    assert json.loads(harness.content("state.json")) == {"x": 1}


async def test_closing_a_run_writes_its_remaining_files(harness: StoreHarness) -> None:
    """Closing a run writes its snapshots, events and receipts."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    log.add_event(EventType.RUN_WAITING)
    log.refresh(lambda: {"run.json": {"x": 1}})
    await log.close()

    assert (await harness.store.read_snapshots(RUN))["run.json"] == {"x": 1}
    assert store_harness.types(await harness.store.read_events(RUN))[-1] == "run.waiting"
    assert len(receipts(harness)) == 1


async def test_a_flush_fails_while_snapshots_cannot_be_written(harness: StoreHarness) -> None:
    """A flush fails while the snapshots cannot be written, and later writes the last state."""
    log = await store_harness.begun(harness)
    harness.faults.refuse("write", "run.json")
    log.refresh(lambda: {"run.json": {"x": 1}})
    with pytest.raises(errors.StorageFault):
        await log.flush()
    log.refresh(lambda: {"run.json": {"x": 2}})
    harness.faults.lift()
    await log.heal()
    await log.flush()

    assert (await harness.store.read_snapshots(RUN))["run.json"] == {"x": 2}


async def test_a_snapshot_cannot_be_named_like_an_authority_file(harness: StoreHarness) -> None:
    """A snapshot cannot have the name of an authority file, or a name outside of the folder."""
    log = await store_harness.begun(harness)
    for name in ("start.json", "../run.json", "a/b.json", "steps.jsonl", ".json"):
        log.refresh(functools.partial(dict, {name: {}}))
        with pytest.raises(errors.DriverFault):
            await log.flush()


async def test_unreadable_snapshots_are_left_out(harness: StoreHarness) -> None:
    """A torn snapshot is skipped, because it is only a projection."""
    await store_harness.ended(harness, "a")
    harness.put("cache.json", b'{"a":')
    found = await harness.store.read_snapshots(RUN)

    assert list(found) == ["run.json"]


# -- logs


@pytest.mark.blobs
async def test_logs_are_kept_by_name(harness: StoreHarness) -> None:
    """A log is found under any name that it was written with."""
    log = await store_harness.begun(harness)
    names = [
        "brief.1.prompt.md",
        "Items[3].Work#2.1.reply.md",
        "../../evil",
        ".hidden",
        "restart1/implement",
        "ü" * 200,
        "",
    ]
    for number, name in enumerate(names):
        await log.write_log(name, f"text {number} ü")
    listed = await harness.store.list_logs(RUN)

    for number, name in enumerate(names):
        assert (await harness.store.read_log(RUN, name)).decode() == f"text {number} ü"
    assert len(listed) == len(names)
    assert "brief.1.prompt.md" in listed
    for name in listed:
        assert await harness.store.read_log(RUN, name)


@pytest.mark.blobs
async def test_an_unknown_log_is_refused_with_the_existing_names(harness: StoreHarness) -> None:
    """The error for an unknown log contains the names of the existing logs."""
    log = await store_harness.begun(harness)
    await log.write_log("a.txt", "x")
    for name in ("b.txt", "../start.json", "a.txt/", "."):
        with pytest.raises(errors.NotFound) as caught:
            await harness.store.read_log(RUN, name)
        assert caught.value.detail["logs"] == ["a.txt"]


async def test_every_call_for_an_unknown_run_raises(harness: StoreHarness) -> None:
    """Every call for an unknown run raises `NotFound`, except that of a blob, which raises `JournalCorrupt`."""
    store = await harness.open()
    blob = BlobRef(sha256="0" * 64, size_bytes=1, text=True)
    for asked in (
        store.read("none"),
        store.open("none"),
        store.read_events("none"),
        store.read_log("none", "x"),
        store.list_logs("none"),
        store.read_snapshots("none"),
        store.summary("none"),
        store.delete("none"),
        store.maintenance.verify("none"),
        store.maintenance.repair("none"),
    ):
        with pytest.raises(errors.NotFound):
            await asked
    with pytest.raises(errors.JournalCorrupt):
        await store.read_blob("none", blob)
