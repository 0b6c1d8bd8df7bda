"""Kept runs: of a run that was set aside, only newer lines are read, and the result is the same."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain import runs
from app.domain.decisions import DecisionKind
from app.domain.events import EventType
from app.engine import stores
from app.storage.disk.os_disk import OsDisk
from app.storage.folder_store import FolderStore
from app.storage.runs import authority, events_file, opening
from app.storage.runs.folder_log import FolderLog
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN
from tests.unit.counted_list import CountedList
from tests.unit.storage import writer_processes

AT = "2026-02-10T14:31:00.000Z"


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[FolderStore]:
    """Open a store that keeps the runs it has read, with one run."""
    store = writer_processes.store_in(tmp_path)
    await store.start(serve=False)
    store.keep_lines(1000)
    await store.create(store_harness.start())
    await (await store.open(RUN)).set_aside()
    yield store
    await store.close()


@pytest.fixture
async def other(tmp_path: Path, keeper: FolderStore) -> AsyncIterator[FolderStore]:
    """Open a store of another process that keeps no run."""
    store = writer_processes.store_in(tmp_path)
    await store.start(serve=False)
    yield store
    await store.close()


class Reads:
    """Count how many bytes are read of each file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: dict[str, int] = {}
        self.settled: list[str] = []
        read, settled = OsDisk.read, OsDisk.read_synced

        def counted(disk: OsDisk, path: str, offset: int = 0, size: int = -1) -> bytes:
            content = read(disk, path, offset, size)
            name = path.rpartition("/")[2]
            self.bytes[name] = self.bytes.get(name, 0) + len(content)
            return content

        def noted(disk: OsDisk, path: str, offset: int = 0) -> bytes:
            content, name = settled(disk, path, offset), path.rpartition("/")[2]
            self.settled.append(name)
            self.bytes[name] = self.bytes.get(name, 0) + len(content)
            return content

        monkeypatch.setattr(OsDisk, "read", counted)
        monkeypatch.setattr(OsDisk, "read_synced", noted)


async def step(store: FolderStore, key: str, output: Any = None) -> None:
    """Begin and record a step, and set the run aside."""
    log = await store.open(RUN)
    facts = {"key": key, "attempt": 1, "operation": f"sha256:{key}", "step_id": key, "phase": None}
    await log.decide(DecisionKind.STARTED, facts, sync=False)
    await log.append_step(store_harness.step(key, output))
    await log.set_aside()


def same(found: stores.Loaded, wanted: stores.Loaded) -> None:
    """Compare the results of two openings."""
    assert dataclasses.replace(found, decisions=wanted.decisions, emitted=wanted.emitted) == wanted
    assert found.decisions == wanted.decisions


async def test_opening_a_kept_run_reads_only_its_new_lines(
    keeper: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a long run reads no more than opening a short one, and syncs no line of its own."""
    for number in range(30):
        await step(keeper, f"s{number}", "x" * 1000)
    reads = Reads(monkeypatch)
    log = await keeper.open(RUN)
    await log.set_aside()

    assert [record.key for record in log.loaded.records] == [f"s{number}" for number in range(30)]
    assert reads.bytes["steps.jsonl"] < 3000
    assert reads.bytes["control.jsonl"] < 3000
    assert reads.settled == []


async def test_lines_of_other_processes_are_settled_and_found(
    keeper: FolderStore, other: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of other processes, which may have died before a sync, are synced and found; earlier ones are not read."""
    mine = [f"mine{number}" for number in range(30)]
    for key in mine:
        await step(keeper, key, "x" * 1000)
    await step(other, "theirs", "x" * 1000)
    reads = Reads(monkeypatch)
    log = await keeper.open(RUN)
    await log.set_aside()

    assert [record.key for record in log.loaded.records] == [*mine, "theirs"]
    assert log.loaded.decisions.highest_attempt == dict.fromkeys([*mine, "theirs"], 1)
    assert sorted(reads.settled) == ["control.jsonl", "steps.jsonl"]
    assert reads.bytes["steps.jsonl"] < 10_000
    assert reads.bytes["events.jsonl"] < 10_000


async def test_missing_events_are_looked_for_among_new_decisions_only(keeper: FolderStore, tmp_path: Path) -> None:
    """Opening a run checks only its new decisions for missing events, however many others it has."""
    for number in range(30):
        await step(keeper, f"s{number}")
    files = OsDisk(tmp_path)
    found = authority.read(files, RUN)
    lines = CountedList(found.control.lines)
    found = dataclasses.replace(found, control=dataclasses.replace(found.control, lines=lines))
    written = events_file.read_written(files, RUN)

    assert opening.untold(found, written, 29, 29) == []
    assert lines.looks <= 5


@pytest.mark.parametrize("seed", range(8))
async def test_a_kept_run_equals_one_read_as_a_whole(keeper: FolderStore, other: FolderStore, seed: int) -> None:
    """A kept run equals one that is read as a whole, whichever process wrote last, and after any decisions."""
    chance, taken = random.Random(seed), 0
    for number in range(25):
        store = chance.choice([keeper, other])
        log = await store.open(RUN)
        await act(log, chance.choice(["step", "step", "take", "pause", "label", "end", "events", "receipt"]), number)
        taken = max(taken, log.loaded.decisions.taken)
        await (log.set_aside() if chance.random() < 0.8 else log.close())
        whole = await other.open(RUN)
        await whole.close()
        kept = await keeper.open(RUN)
        same(kept.loaded, whole.loaded)
        await kept.set_aside()

    events = await other.read_events(RUN)
    assert len({event.seq for event in events}) == len(events)
    finished = [event.data["position"] for event in events if event.type == EventType.STEP_FINISHED]
    assert sorted(finished) == list(range(len((await other.read(RUN)).records)))
    assert (await other.maintenance.verify(RUN))["ok"]


async def act(log: FolderLog, what: str, number: int) -> None:
    """Do one thing to a run, resuming it first if it has ended."""
    key = f"s{number}"
    if log.loaded.decisions.ended is not None:
        await log.decide(DecisionKind.RESUMED, {"dead": [], "overrides": {}})
    match what:
        case "step" | "receipt":
            await log.decide(DecisionKind.STARTED, {"key": key, "attempt": 1, "operation": "sha256:x"}, sync=False)
            line = store_harness.proven(key) if what == "receipt" else store_harness.step(key)
            record = await log.append_step(line)
            if what == "receipt":
                await log.add_receipt(record)
        case "take":
            await log.decide(DecisionKind.TAKEN, {})
        case "pause":
            await log.decide(DecisionKind.PAUSED, {"reason": "paused_by_person"})
            await log.decide(DecisionKind.UNPAUSED, {})
        case "label":
            await log.decide(DecisionKind.LABELLED, {"labels": {"n": str(number)}})
        case "end":
            await log.decide(DecisionKind.ENDED, {"status": "failed", "causes": [], "error": None, "ending": None})
        case "events":
            log.add_event(EventType.RECIPE_NOTE, f"note{number}", {})


async def test_a_line_is_read_without_those_before(
    keeper: FolderStore, other: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process reads each line of another one once, however long the run is."""
    for number in range(30):
        await step(other, f"s{number}", "x" * 1000)
    await keeper.read_lines(RUN, 28, 1)
    await step(other, "last")
    reads = Reads(monkeypatch)

    assert [line.key for line in await keeper.read_lines(RUN, 29, 2)] == ["s29", "last"]
    assert reads.bytes["steps.jsonl"] < 3000


async def test_lists_read_a_run_that_another_process_executes_for_a_share_of_the_time(
    keeper: FolderStore, other: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists seldom read a run that another process executes, since they read its growing journal as a whole."""
    times = itertools.count()
    monkeypatch.setattr(clock.SystemClock, "monotonic", lambda _: float(next(times)))
    log = await other.open(RUN)
    await log.move(runs.Transition.begin(RUN, AT))
    await log.set_aside()
    reads, whole = Reads(monkeypatch), 0
    for number in range(40):
        await step(other, f"s{number}")
        reads.bytes.clear()
        await keeper.list_runs(stores.RunQuery())
        whole += "control.jsonl" in reads.bytes

    assert 1 <= whole <= 20


async def test_lines_that_are_gone_are_not_remembered(keeper: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    """Lines that were read before are not returned once they are gone."""
    for key in ("a", "b"):
        await step(other, key)
    assert [line.key for line in await keeper.read_lines(RUN, 0, 5)] == ["a", "b"]
    file = tmp_path / "runs" / RUN / "steps.jsonl"
    content = file.read_bytes()
    file.write_bytes(content.partition(b"\n")[0] + b"\n")
    assert await keeper.read_lines(RUN, 1, 5) == []
    file.write_bytes(content)

    assert [line.key for line in await keeper.read_lines(RUN, 0, 5)] == ["a", "b"]


async def test_a_changed_line_is_found(keeper: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    """A changed line behind the kept ones is damage, as in a whole reading."""
    await step(keeper, "a")
    await (await keeper.open(RUN)).set_aside()
    await step(other, "b")
    await step(other, "c")
    file = tmp_path / "runs" / RUN / "steps.jsonl"
    file.write_bytes(file.read_bytes().replace(b"output of b", b"output of B"))

    with pytest.raises(errors.JournalCorrupt):
        await keeper.open(RUN)


async def test_a_shorter_journal_is_read_as_a_whole(keeper: FolderStore, tmp_path: Path) -> None:
    """Lines that are gone are missing, and not remembered."""
    await step(keeper, "a")
    await step(keeper, "b")
    log = await keeper.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    await log.set_aside()
    file = tmp_path / "runs" / RUN / "steps.jsonl"
    first, _, _ = file.read_bytes().partition(b"\n")
    file.write_bytes(first + b"\n")

    log = await keeper.open(RUN)
    await log.close()
    assert [record.key for record in log.loaded.records] == ["a"]
    assert log.loaded.missing is not None


async def test_so_many_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many kept runs the one that was opened longest ago is forgotten first."""
    store = writer_processes.store_in(tmp_path)
    await store.start(serve=False)
    store.keep_lines(12)
    runs = [f"20260210T14300{number}Z-abc123" for number in range(3)]
    for run_id in runs:
        await store.create(store_harness.start(run_id))
        log = await store.open(run_id)
        for number in range(5):
            await log.append_step(store_harness.step(f"s{number}", "x" * 1000))
        await log.set_aside()
        await (await store.open(run_id)).set_aside()
    reads = Reads(monkeypatch)
    sizes = []
    for run_id in reversed(runs):
        reads.bytes.clear()
        await (await store.open(run_id)).close()
        sizes.append(reads.bytes["steps.jsonl"])

    await store.close()
    assert [size > 5000 for size in sizes] == [False, False, True]
