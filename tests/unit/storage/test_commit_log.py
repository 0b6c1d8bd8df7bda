"""The commit log: many commits share a sync, none is forgotten, and none comes back that was told to have failed."""

from __future__ import annotations

import asyncio
import errno
from functools import partial

import pytest

from app.storage import layout
from app.storage.journal import commit_log, commit_records
from tests.unit.storage.committing import Writing

STEPS = f"{layout.run_folder('a')}/{layout.STEPS}"


def told(writing: Writing) -> dict[str, list[str]]:
    """Return what each segment on the disk tells, line by line."""
    found = {}
    for name in writing.segments:
        _, records = commit_records.read(writing.disk.read(f"{layout.COMMITS}/{name}"))
        found[name] = [record.content.decode().rstrip("\n") for record in records]
    return found


# -- batches


def test_a_commit_that_comes_while_ended_jobs_are_not_told_yet_is_made_too() -> None:
    """Whatever the order of jobs, and of the news about them, every commit is answered."""
    writing = Writing()
    writing.begin("one", "a")
    writing.begin("two", "b")
    writing.workers.work()
    writing.begin("three", "c")
    writing.workers.tell()
    writing.workers.work()
    writing.workers.tell()

    assert writing.answers == {"one": None, "two": None, "three": None}


def test_what_comes_in_while_a_sync_is_under_way_shares_the_next() -> None:
    """A hundred commits of as many runs cost two syncs of the log, and none of the runs' own files."""
    writing = Writing()
    for number in range(100):
        writing.begin(f"line {number}", f"r{number}")
    writing.workers.finish()

    assert set(writing.answers.values()) == {None}
    assert len(writing.answers) == 100
    assert writing.disk.syncs == ["1.log"]
    assert told(writing) == {"1.log": [f"line {number}" for number in range(100)]}


async def test_what_is_begun_in_one_turn_shares_its_first_sync(caplog: pytest.LogCaptureFixture) -> None:
    """Runs that go on in the same turn wait for one sync, and one that fails is in nobody's way."""
    writing = Writing()

    def fail() -> None:
        raise RuntimeError("no")

    writing.log.gather(partial(writing.begin, "one", "a"))
    writing.log.gather(fail)
    writing.log.gather(partial(writing.begin, "two", "b"))
    begun = len(writing.workers.waiting)
    await asyncio.sleep(0)
    jobs = len(writing.workers.waiting)
    writing.workers.finish()

    assert (begun, jobs) == (0, 1)
    assert writing.answers == {"one": None, "two": None}
    assert writing.disk.syncs == ["1.log"]
    assert "RuntimeError: no" in caplog.text


def test_a_run_that_cannot_take_its_answer_is_in_nobodys_way(caplog: pytest.LogCaptureFixture) -> None:
    """Where one answer fails, the others of the batch are given all the same, and it is told."""
    writing = Writing()
    writing.commit("first")

    def fail(_: BaseException | None) -> None:
        raise RuntimeError("no")

    writing.begin("before")
    writing.log._waiting[0] = (writing.log._waiting[0][0], fail)
    writing.begin("behind", "b")
    writing.workers.finish()

    assert "behind" in writing.answers
    assert "a commit could not be answered" in caplog.text


def test_what_is_too_large_to_be_written_twice_is_synced_by_itself() -> None:
    """A commit without content syncs its own file and its names, and leaves nothing in the log."""
    writing = Writing()
    answer = writing.commit("large", large=True)

    assert answer is None
    assert writing.disk.syncs == [layout.STEPS]
    assert writing.segments == []
    assert writing.disk.crashed(lose_unsynced=True).read(STEPS) == b"large\n"


# -- failures


@pytest.mark.parametrize("refused", ["append 1.log", "sync 1.log"])
def test_where_the_log_fails_each_file_is_synced_by_itself(refused: str) -> None:
    """A failing log costs no commit; what it may hold of it is cut off, and the next goes to a new segment."""
    writing = Writing()
    first = writing.commit("first")
    writing.disk.refused = {refused}
    second = writing.commit("second")
    third = writing.commit("third")

    assert (first, second, third) == (None, None, None)
    assert writing.disk.syncs == ["1.log", layout.STEPS, "2.log"]
    assert told(writing) == {"2.log": ["third"]}


def test_a_commit_that_can_be_made_durable_nowhere_fails_and_leaves_nothing() -> None:
    """Where neither the log nor the file can be synced the caller is told so, and a power cut brings no line back."""
    writing = Writing()
    writing.commit("first")
    writing.disk.refused = {"sync", "settle"}
    failed = writing.commit("second")

    assert isinstance(failed, OSError)
    assert told(writing) == {"1.kept.log": ["first"]}


async def test_what_cannot_be_cut_off_at_once_is_cut_off_before_its_file_is_healed() -> None:
    """As long as a failed line may stand in the log, `mend` refuses; then it takes it out."""
    writing = Writing()
    writing.commit("first")
    writing.disk.refused = {"sync", "settle", "cut"}
    writing.commit("second")
    before = told(writing)
    with pytest.raises(OSError, match="Input/output error"):
        await writing.log.mend()
    writing.disk.refused = {"settle"}
    await writing.log.mend()

    assert before == {"1.kept.log": ["first", "second"]}
    assert told(writing) == {"1.kept.log": ["first"]}


def test_a_segment_that_cannot_be_begun_is_no_reason_to_fail() -> None:
    """Where no segment can be made, files are synced one by one until one can."""
    writing = Writing()
    writing.disk.remove_tree(layout.COMMITS)
    first = writing.commit("first")
    writing.disk.add_folder(layout.COMMITS)
    second = writing.commit("second")

    assert (first, second) == (None, None)
    assert list(told(writing).values()) == [["second"]]


# -- segments


def test_a_full_segment_is_dropped_when_all_that_it_mentions_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next segment begins at once, and the full one goes after its files, folders and what was noted are synced."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 100)
    writing = Writing()
    writing.log.mention("runs/a/events.jsonl")
    writing.begin("first")
    writing.workers.work()
    full = writing.segments
    writing.workers.finish()
    dropped = writing.segments
    writing.commit("second", "b")

    assert full == ["1.log"]
    assert dropped == []
    assert writing.disk.settled[0] == ["runs/a/events.jsonl", STEPS, "runs/a", "runs"]
    assert writing.disk.crashed(lose_unsynced=True).read(STEPS) == b"first\n"


def test_a_segment_holds_a_run_until_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only while the present segment mentions a run do its other files need no sync."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 400)
    writing = Writing()
    before = writing.log.holds("a")
    writing.commit("x", "a")
    during = writing.log.holds("a"), writing.log.holds("b")
    writing.commit("y" * 400, "b")

    assert not before
    assert during == (True, False)
    assert not writing.log.holds("a")


async def test_settling_drops_the_log_where_it_mentions_the_run() -> None:
    """A run that the log does not mention costs no sync."""
    writing = Writing()
    writing.commit("one")
    await writing.log.checkpoint("b")
    before = writing.segments
    await writing.log.checkpoint("a")

    assert before == ["1.log"]
    assert writing.segments == []
    assert len(writing.disk.settled) == 1
    assert writing.disk.crashed(lose_unsynced=True).read(STEPS) == b"one\n"


async def test_a_segment_whose_files_failed_once_is_kept_for_the_next_start() -> None:
    """The kernel may have forgotten what it could not write: a later sync proves nothing but for a single file."""
    writing = Writing()
    writing.commit("one")
    writing.disk.refused = {"settle"}
    with pytest.raises(OSError, match="Input/output error"):
        await writing.log.checkpoint()
    writing.disk.refused = set()
    with pytest.raises(OSError, match="the commit log is still needed") as caught:
        await writing.log.checkpoint("a")
    second = writing.commit("two", "b")
    await writing.log.checkpoint("b")

    assert second is None
    assert writing.disk.syncs[-1] == layout.STEPS
    assert not writing.log.holds("b")
    assert caught.value.errno == errno.EIO
    assert told(writing) == {"1.kept.log": ["one"]}


async def test_a_segment_that_could_not_be_removed_is_removed_later() -> None:
    """What is left of a drop that was cut off is in nobody's way."""
    writing = Writing()
    writing.commit("one")
    writing.disk.refused = {"remove"}
    with pytest.raises(OSError, match="Input/output error"):
        await writing.log.checkpoint()
    writing.disk.refused = set()
    writing.disk.remove(f"{layout.COMMITS}/1.log")
    await writing.log.checkpoint()

    assert writing.segments == []


def test_numbers_of_segments_go_on_where_others_are_left() -> None:
    """A segment never takes the name of one that another process left behind."""
    disk = Writing().disk
    for name in ("7.log", "12.kept.log", "40.txt"):
        disk.write(f"{layout.COMMITS}/{name}", b"", sync=True)
    writing = Writing(disk)
    writing.commit("one")

    assert told(writing)["13.log"] == ["one"]


async def test_a_closed_log_takes_nothing_more() -> None:
    """Whoever commits after the end is told so, and nothing is written, be it queued before or after."""
    writing = Writing()
    writing.begin("queued")
    writing.log.close()
    writing.workers.finish()
    writing.begin("late")
    await asyncio.sleep(0)

    assert {line: type(answer) for line, answer in writing.answers.items()} == {"queued": OSError, "late": OSError}
    assert writing.segments == []
