"""Recovery from the commit log: it restores every confirmed line, but no line that a person or process removed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import clock, errors
from app.domain import plain
from app.domain.decisions import DecisionKind
from app.engine import probes
from app.storage import layout
from app.storage.committer import Commit
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.journal import chain, commit_log, commit_records
from app.storage.memory_store import MemoryStore
from app.storage.runs import commit_recovery
from app.storage.runs.folder_log import FolderLog
from tests import smoke
from tests.conformance import store_harness
from tests.examples import examples
from tests.unit.storage import power_cuts
from tests.unit.storage.committing import UnwillingDisk

FOLDER = layout.run_folder("a")
STEPS = f"{FOLDER}/{layout.STEPS}"
REACH = probes.NoProbes().reach
NOW = "2026-02-10T14:30:00.000Z"


def sealed(count: int) -> list[bytes]:
    """Return the first lines of the journal of run a."""
    lines, prev = [], plain.labelled_sha256(start_of("a"))
    for number in range(count):
        line = chain.seal(plain.encode({"n": number}), batch=number, prev=prev)
        lines.append(line.content)
        prev = line.digest
    return lines


def start_of(run_id: str) -> bytes:
    """Return the start.json of a run."""
    return plain.encode(store_harness.start(run_id).to_json()) + b"\n"


def commit(path: str, offset: int, content: bytes, run_id: str = "a") -> Commit:
    """Return the commit of content to a file."""
    file: Any = None
    return Commit(run_id=run_id, path=path, file=file, offset=offset, content=content, points="storage.append")


def segment(disk: MemoryDisk, *commits: Commit, name: str = "1.log", boot_id: str = "earlier") -> None:
    """Write a segment of the log."""
    content = commit_records.head(boot_id) + b"".join(map(commit_log.encoded, commits))
    disk.write(f"{layout.COMMITS}/{name}", content, sync=True)
    disk.sync_folder(layout.COMMITS)


def lines_of(lines: list[bytes], first: int, last: int) -> Commit:
    """Return the commit of some lines of run a."""
    return commit(STEPS, len(b"".join(lines[:first])), b"".join(lines[first:last]))


def with_run(*lines: bytes) -> UnwillingDisk:
    """Return a disk with run a, whose journal contains some lines."""
    disk = UnwillingDisk()
    disk.add_folder(FOLDER)
    files = {layout.START: start_of("a"), layout.STEPS: b"".join(lines), layout.CONTROL: b""}
    for name, content in files.items():
        disk.write(f"{FOLDER}/{name}", content, sync=True)
    disk.sync_folder(FOLDER)
    disk.sync_folder(layout.RUNS)
    return disk


# -- what is restored


@pytest.mark.parametrize("kept", range(4))
def test_lines_that_a_file_lost_are_put_back(kept: int) -> None:
    """A file ends with every line of the log, however many of them it already had."""
    lines = sealed(4)
    disk = with_run(*lines[:kept])
    segment(disk, lines_of(lines, 0, 1), lines_of(lines, 1, 3), lines_of(lines, 3, 4))
    recovered = commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == b"".join(lines)
    assert disk.crashed(lose_unsynced=True).read(STEPS) == b"".join(lines)
    assert recovered == commit_recovery.Recovered(segments=("commits/1.log",), suspects=frozenset({"a"}))


@pytest.mark.parametrize("rest", [b'{"half', b"\0" * 40, b""])
def test_a_torn_line_of_a_file_is_completed_from_the_log(rest: bytes) -> None:
    """A torn end, be it half a line or zeros, is replaced by the line of the log."""
    lines = sealed(3)
    disk = with_run(*lines[:2], rest)
    segment(disk, lines_of(lines, 2, 3))
    commit_recovery.recover(disk, REACH, NOW)

    assert chain.read(disk.read(STEPS), plain.labelled_sha256(start_of("a"))).end == len(b"".join(lines))


def test_a_run_that_was_lost_with_its_folder_is_made_again() -> None:
    """A lost run of which only the start was committed is made again as accepted, with empty journals."""
    disk = UnwillingDisk()
    segment(disk, commit(f"{FOLDER}/{layout.START}", 0, start_of("a")))
    commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(f"{FOLDER}/{layout.START}") == start_of("a")
    assert disk.read(STEPS) == disk.read(f"{FOLDER}/{layout.CONTROL}") == b""


def test_lines_behind_a_gap_are_not_put_back(caplog: pytest.LogCaptureFixture) -> None:
    """If both lack an earlier line, the lines behind it are not restored, since they could not be replayed."""
    lines = sealed(4)
    disk = with_run(*lines[:1])
    segment(disk, lines_of(lines, 2, 4))
    commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == lines[0]


def test_lines_that_are_not_sealed_to_the_file_are_not_put_back(caplog: pytest.LogCaptureFixture) -> None:
    """A line that does not fit the file is reported, and the file stays unchanged."""
    lines = sealed(2)
    disk = with_run(lines[0])
    foreign = lines[1].replace(b'"n":1', b'"n":7')
    segment(disk, commit(STEPS, len(lines[0]), foreign))
    commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == lines[0]
    assert f"the commit log does not continue from the end of {STEPS}" in caplog.text


def test_lines_behind_a_damaged_one_are_not_cut_off() -> None:
    """Lines of the log replace damaged ones; the lines behind them are left for the run's opening to judge."""
    lines = sealed(5)
    damaged = lines[1].replace(b'"n":1', b'"n":9')
    disk = with_run(lines[0], damaged, *lines[2:])
    segment(disk, lines_of(lines, 1, 3))
    commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == b"".join(lines)


def test_a_torn_record_hides_no_other() -> None:
    """Each record has its own checksum, so that a lost one costs no other."""
    lines = sealed(3)
    disk = with_run(*lines[:2])
    broken = commit_log.encoded(commit("runs/b/steps.jsonl", 0, b"lost\n", "b")).replace(b"lost", b"\0\0\0\0")
    content = commit_records.head("earlier") + broken + commit_log.encoded(lines_of(lines, 2, 3))
    disk.write(f"{layout.COMMITS}/1.log", content, sync=True)
    commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == b"".join(lines)


@given(size=st.integers(min_value=0), seed=st.integers(min_value=0))
@settings(max_examples=examples(30))
def test_a_cut_off_log_returns_each_record_before_the_cut(size: int, seed: int) -> None:
    """A log cut off anywhere returns each record before the cut, and no part of another."""
    lines, chance = sealed(12), random.Random(seed)
    disk = with_run(*lines[: chance.randint(0, 3)])
    bounds = sorted({0, 12, *chance.sample(range(1, 12), 4)})
    batches = [lines_of(lines, *pair) for pair in itertools.pairwise(bounds)]
    records = list(map(commit_log.encoded, batches))
    content = commit_records.head("earlier") + b"".join(records)
    size %= len(content) + 1
    disk.write(f"{layout.COMMITS}/1.log", content[:size], sync=True)
    before = disk.read(STEPS)
    commit_recovery.recover(disk, REACH, NOW)
    whole = [bound for number, bound in enumerate(bounds[1:], 1) if size >= _end(content, records, number)]
    expected = b"".join(lines[: max(whole, default=0)])

    assert disk.read(STEPS) == max(before, expected, key=len)


def _end(content: bytes, records: list[bytes], count: int) -> int:
    # The newline behind a record only separates it from the next.
    return len(content) - len(b"".join(records[count:])) - 1


# -- what is not restored


def test_at_the_same_boot_nothing_is_put_back() -> None:
    """If the machine has been up all the time, missing lines were removed on purpose; the log is dropped."""
    lines = sealed(2)
    disk = with_run(lines[0])
    segment(disk, lines_of(lines, 1, 2), boot_id=disk.boot_id())
    recovered = commit_recovery.recover(disk, REACH, NOW)
    commit_recovery.drop(disk, recovered.segments, REACH)

    assert disk.read(STEPS) == lines[0]
    assert recovered.suspects == frozenset()
    assert disk.names(layout.COMMITS) == []
    assert STEPS in disk.settled[0]


def test_a_deleted_run_is_not_made_again() -> None:
    """A run whose folder is in the trash is not made again from the log."""
    disk = UnwillingDisk()
    disk.add_folder(f"{layout.TRASH}/a.0")
    segment(disk, commit(f"{FOLDER}/{layout.START}", 0, start_of("a")))
    commit_recovery.recover(disk, REACH, NOW)

    assert not disk.has_folder(FOLDER)


def test_a_kept_segment_counts_at_the_same_boot_too() -> None:
    """A kept segment is restored in any case, as the kernel may have forgotten what it could not write."""
    lines = sealed(2)
    disk = with_run(lines[0])
    segment(disk, lines_of(lines, 1, 2), boot_id=disk.boot_id(), name="1.kept.log")
    recovered = commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == b"".join(lines)
    assert recovered.suspects == {"a"}


def test_a_sync_that_fails_at_a_start_makes_the_log_count() -> None:
    """If the files cannot be synced, only the log is trusted, at the same boot too, now and at the next start."""
    lines = sealed(2)
    disk = with_run(lines[0])
    segment(disk, lines_of(lines, 1, 2), boot_id=disk.boot_id())
    disk.refused = {"settle"}
    with pytest.raises(OSError, match="Input/output error"):
        commit_recovery.recover(disk, REACH, NOW)

    assert disk.read(STEPS) == b"".join(lines)
    assert disk.names(layout.COMMITS) == ["1.kept.log"]


def test_an_unreadable_segment_is_kept_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A segment whose head is destroyed, or written by a later version, is not removed."""
    disk = with_run()
    disk.write(f"{layout.COMMITS}/3.log", b'{"format":2}\n', sync=True)
    with caplog.at_level(logging.ERROR):
        recovered = commit_recovery.recover(disk, REACH, NOW)

    assert recovered.segments == ()
    assert disk.names(layout.COMMITS) == ["3.log.unread"]
    assert "commits/3.log.unread" in caplog.text


async def test_a_store_with_unrestored_lines_does_not_start() -> None:
    """If lines cannot be restored, the start is refused so that no run is read without them; the next may succeed."""
    lines = sealed(1)
    disk = with_run()
    segment(disk, lines_of(lines, 0, 1))

    disk.write = _full  # type: ignore[method-assign]
    store = MemoryStore(clock=clock.FakeClock(), disk=disk)
    with pytest.raises(errors.ConfigurationError) as caught:
        await store.start()
    del disk.write
    again = MemoryStore(clock=clock.FakeClock(), disk=disk)
    await again.start()
    await again.close()

    assert caught.value.code == "commit_log_unusable"
    assert disk.read(STEPS) == lines[0]
    assert disk.names(layout.COMMITS) == []


def _full(path: str, content: bytes, *, sync: bool) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


# -- any sequence of events, and any power cut


class Story:
    """Runs that are created and written to, by one store after the other, and the answers that were given."""

    def __init__(self, seed: int, often: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.often = often
        self.disk: MemoryDisk = power_cuts.ForgetfulDisk(self.chance, 0.0) if often else MemoryDisk()
        self.store = MemoryStore(clock=clock.FakeClock(), disk=self.disk)
        self.numbers = itertools.count()
        self.asked: dict[str, list[str]] = {}
        self.answered: dict[str, list[str]] = {}
        self.decided: dict[str, int] = {}
        self.refused: set[str] = set()
        self.logs: dict[str, FolderLog] = {}

    async def live(self, actions: int) -> None:
        """Do things in random order, and stop in the middle of them."""
        await self.store.start()
        for run_id in list(self.answered):
            await self.look_at(run_id)
        await self.look_for_others()
        self.fail(self.often)
        doing = [asyncio.create_task(self.act(actions)) for _ in range(5)]
        for _ in range(self.chance.randint(0, 10 * actions)):
            await asyncio.sleep(0)
        self.fail(0.0)
        self.store.abandon()
        if self.chance.random() < 0.7:
            self.disk = power_cuts.cut(self.disk, self.chance)
        self.store = MemoryStore(clock=clock.FakeClock(), disk=self.disk, index=self.store.index.copy())
        self.logs.clear()
        for task in doing:
            task.cancel()
        await asyncio.gather(*doing, return_exceptions=True)

    def fail(self, often: float) -> None:
        """Set how often the disk fails from now on."""
        if isinstance(self.disk, power_cuts.ForgetfulDisk):
            self.disk.often = often

    async def act(self, times: int) -> None:
        """Create runs, write to some, and sometimes let the log be dropped."""
        for _ in range(times):
            kind, logs = self.chance.random(), sorted(self.logs)
            if kind < 0.2 or not logs:
                await self.create(f"r{next(self.numbers)}")
            elif kind < 0.25:
                with contextlib.suppress(OSError):
                    await self.store._parts.context.committer.checkpoint()
            elif kind < 0.5:
                await self.decide(self.chance.choice(logs), sync=kind < 0.35)
            else:
                await self.append(self.chance.choice(logs))

    async def decide(self, run_id: str, *, sync: bool) -> None:
        """Write a decision; an answered one that is to be synced is durable with all lines before it."""
        log, facts = self.logs[run_id], {"key": "k", "attempt": 1, "operation": "x"}
        await healing(log, lambda: log.decide(DecisionKind.STARTED, facts, sync=sync))
        if sync:
            self.decided[run_id] = max(self.decided[run_id], log._control._synced)

    async def create(self, run_id: str) -> None:
        """Create a run and open it."""
        self.asked[run_id] = []
        try:
            await self.store.create(store_harness.start(run_id))
        except errors.WriteFailed:
            del self.asked[run_id]
            self.refused.add(run_id)
            return
        self.answered[run_id], self.decided[run_id] = [], 0
        log = await self.store.open(run_id)
        await healing(log, lambda: log.decide(DecisionKind.TAKEN, {}))
        self.logs[run_id], self.decided[run_id] = log, 1

    async def append(self, run_id: str) -> None:
        """Append a step, small or large."""
        log, key = self.logs[run_id], f"s{next(self.numbers)}"
        self.asked[run_id].append(key)
        line = store_harness.step(key, "x" * self.chance.choice((1, 300, 40_000)))
        await healing(log, lambda: log.append_step(line))
        self.answered[run_id].append(key)

    async def look_at(self, run_id: str) -> None:
        """Check that a run has every answered step in order, and no step that was not requested."""
        log = self.logs[run_id] = await self.store.open(run_id)
        found = [record.key for record in log.loaded.records]

        assert log._control.count >= self.decided[run_id]
        assert found[: len(self.answered[run_id])] == self.answered[run_id]
        assert len(found) == len(set(found))
        assert set(found) <= set(self.asked[run_id])
        assert self.often or found == self.asked[run_id][: len(found)]
        self.asked[run_id], self.answered[run_id], self.decided[run_id] = list(found), found, log._control.count
        assert (await self.store.maintenance.verify(run_id))["ok"]
        assert (await self.store.summary(run_id)).status == "pending"

    async def look_for_others(self) -> None:
        """Check that no refused run exists."""
        there = {run.run_id for run in await self.store.list_unfinished()}

        assert not there & self.refused
        assert set(self.answered) <= there <= set(self.asked)


async def healing(log: FolderLog, write: Callable[[], Awaitable[object]]) -> None:
    """Write; after each failure heal and write again, like the engine."""
    while True:
        try:
            await write()
            return
        except errors.StorageFault:
            with contextlib.suppress(errors.StorageFault):
                await log.heal()


@pytest.mark.parametrize("segment_bytes", smoke.only(4000, [1, 4000, commit_log.SEGMENT_BYTES]))
@given(seed=st.integers(min_value=0), actions=st.integers(min_value=1, max_value=12))
@settings(max_examples=examples(20))
def test_repeated_power_cuts_lose_no_confirmed_step(segment_bytes: int, seed: int, actions: int) -> None:
    """Repeated power cuts may take any unsynced data, but no accepted run and no confirmed step."""

    async def lived() -> None:
        story = Story(seed)
        for _ in range(3):
            await story.live(actions)
        await story.live(0)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(commit_log, "SEGMENT_BYTES", segment_bytes)
        asyncio.run(lived())


@pytest.mark.parametrize("segment_bytes", smoke.only(4000, [1, 4000, commit_log.SEGMENT_BYTES]))
@given(seed=st.integers(min_value=0), actions=st.integers(min_value=1, max_value=8))
@settings(max_examples=examples(20))
def test_a_forgetful_disk_loses_no_confirmed_step(segment_bytes: int, seed: int, actions: int) -> None:
    """On a disk that sometimes fails and forgets unwritten data, kills and power cuts cost no answer."""

    async def lived() -> None:
        story = Story(seed, often=0.05)
        for _ in range(4):
            await story.live(actions)
        await story.live(0)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(commit_log, "SEGMENT_BYTES", segment_bytes)
        asyncio.run(lived())


async def test_runs_that_were_not_answered_are_whole_or_not_there() -> None:
    """A power cut while a run is made leaves either the whole run or no folder."""
    for locks in range(8):
        disk = MemoryDisk()
        store = MemoryStore(clock=clock.FakeClock(), disk=disk)
        await store.start()
        making = asyncio.create_task(store.create(store_harness.start("a")))
        for _ in range(locks):
            await asyncio.sleep(0)
        for seed in range(10):
            left = power_cuts.cut(disk, random.Random(seed))
            found = MemoryStore(clock=clock.FakeClock(), disk=left)
            await found.start()
            statuses = [(run.run_id, run.status) for run in await found.list_unfinished()]
            await found.close()

            assert statuses in ([], [("a", "pending")])
            assert layout.run_ids(left.names(layout.RUNS)) == [run_id for run_id, _ in statuses]
        await making
        await store.close()


def test_record_content_is_not_read_as_a_header() -> None:
    """Content of a record that looks like the start of another one is not read as a record."""
    start = start_of("a")
    inner = commit_log.encoded(commit("runs/evil/steps.jsonl", 0, b"x\n", "evil"))
    disk = MemoryDisk()
    disk.add_folder(layout.COMMITS)
    segment(disk, commit(f"{FOLDER}/{layout.START}", 0, start + inner))
    _, records = commit_records.read(disk.read("commits/1.log"))

    assert [record.run_id for record in records] == ["a"]
