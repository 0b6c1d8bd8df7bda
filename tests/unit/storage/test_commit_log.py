"""The commit log: many commits share a sync, none is forgotten, and none returns that was reported as failed."""

from __future__ import annotations

import asyncio
import errno
from functools import partial

import pytest

from app.storage import layout
from app.storage.journal import commit_log, commit_records
from tests.unit.storage.committing import Writing

STEPS = f"{layout.run_folder('a')}/{layout.STEPS}"


def segment_lines(writing: Writing) -> dict[str, list[str]]:
    """Return the content of each segment on the disk, line by line."""
    found = {}
    for name in writing.segments:
        _, records = commit_records.read(writing.disk.read(f"{layout.COMMITS}/{name}"))
        found[name] = [record.content.decode().rstrip("\n") for record in records]
    return found


# -- batches


def test_a_commit_between_a_jobs_end_and_its_report_is_made() -> None:
    """A commit that comes between the end of a job and its report is answered like the others."""
    writing = Writing()
    writing.begin("one", "a")
    writing.begin("two", "b")
    writing.workers.work()
    writing.begin("three", "c")
    writing.workers.tell()
    writing.workers.work()
    writing.workers.tell()

    assert writing.answers == {"one": None, "two": None, "three": None}


def test_commits_during_a_sync_share_the_next_one() -> None:
    """A hundred commits of as many runs cost two syncs of the log, and none of the runs' own files."""
    writing = Writing()
    for number in range(100):
        writing.begin(f"line {number}", f"r{number}")
    writing.workers.finish()

    assert set(writing.answers.values()) == {None}
    assert len(writing.answers) == 100
    assert writing.disk.syncs == ["1.log"]
    assert segment_lines(writing) == {"1.log": [f"line {number}" for number in range(100)]}


async def test_commits_of_the_same_turn_share_a_sync(caplog: pytest.LogCaptureFixture) -> None:
    """Runs that commit in the same turn share one sync, and one that fails does not disturb the others."""
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


def test_a_failed_answer_does_not_affect_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    """If one answer of a batch fails, the others are still given, and the failure is logged."""
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


def test_a_commit_without_content_is_synced_by_itself() -> None:
    """A commit without content syncs its own file and its names, and leaves no line in the log."""
    writing = Writing()
    answer = writing.commit("large", large=True)

    assert answer is None
    assert writing.disk.syncs == [layout.STEPS]
    assert writing.segments == []
    assert writing.disk.crashed(lose_unsynced=True).read(STEPS) == b"large\n"


# -- failures


@pytest.mark.parametrize("refused", ["append 1.log", "sync 1.log"])
def test_where_the_log_fails_each_file_is_synced_by_itself(refused: str) -> None:
    """A failing log costs no commit; what the log may contain of it is cut off, and the next goes to a new segment."""
    writing = Writing()
    first = writing.commit("first")
    writing.disk.refused = {refused}
    second = writing.commit("second")
    third = writing.commit("third")

    assert (first, second, third) == (None, None, None)
    assert writing.disk.syncs == ["1.log", layout.STEPS, "2.log"]
    assert segment_lines(writing) == {"2.log": ["third"]}


def test_a_commit_that_can_be_made_durable_nowhere_fails_and_leaves_nothing() -> None:
    """If neither the log nor the file can be synced, the caller gets an error, and a power cut restores no line."""
    writing = Writing()
    writing.commit("first")
    writing.disk.refused = {"sync", "settle"}
    failed = writing.commit("second")

    assert isinstance(failed, OSError)
    assert segment_lines(writing) == {"1.kept.log": ["first"]}


async def test_a_failed_line_is_removed_before_its_file_is_mended() -> None:
    """While a failed line may be in the log, `mend` refuses; later it removes the line."""
    writing = Writing()
    writing.commit("first")
    writing.disk.refused = {"sync", "settle", "cut"}
    writing.commit("second")
    before = segment_lines(writing)
    with pytest.raises(OSError, match="Input/output error"):
        await writing.log.mend()
    writing.disk.refused = {"settle"}
    await writing.log.mend()

    assert before == {"1.kept.log": ["first", "second"]}
    assert segment_lines(writing) == {"1.kept.log": ["first"]}


def test_without_a_segment_files_are_synced_one_by_one() -> None:
    """While no segment can be begun, files are synced one by one."""
    writing = Writing()
    writing.disk.remove_tree(layout.COMMITS)
    first = writing.commit("first")
    writing.disk.add_folder(layout.COMMITS)
    second = writing.commit("second")

    assert (first, second) == (None, None)
    assert list(segment_lines(writing).values()) == [["second"]]


# -- segments


def test_a_full_segment_is_dropped_when_all_that_it_mentions_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next segment begins at once; a full one is dropped after its files, folders and other entries are synced."""
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
    """While the present segment mentions a run, the run's other files need no sync."""
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
    """A checkpoint for a run that the log does not mention syncs no file; any other one drops the log."""
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
    """A segment whose files failed to sync is kept, as the kernel may have forgotten data that a later sync omits."""
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
    assert segment_lines(writing) == {"1.kept.log": ["one"]}


async def test_a_segment_that_could_not_be_removed_is_removed_later() -> None:
    """A segment that could not be removed is dropped at the next checkpoint."""
    writing = Writing()
    writing.commit("one")
    writing.disk.refused = {"remove"}
    with pytest.raises(OSError, match="Input/output error"):
        await writing.log.checkpoint()
    writing.disk.refused = set()
    writing.disk.remove(f"{layout.COMMITS}/1.log")
    await writing.log.checkpoint()

    assert writing.segments == []


def test_a_new_segment_takes_no_existing_number() -> None:
    """A new segment never takes the name of one that another process left."""
    disk = Writing().disk
    for name in ("7.log", "12.kept.log", "40.txt"):
        disk.write(f"{layout.COMMITS}/{name}", b"", sync=True)
    writing = Writing(disk)
    writing.commit("one")

    assert segment_lines(writing)["13.log"] == ["one"]


async def test_a_closed_log_takes_nothing_more() -> None:
    """A commit after the close gets an error and is not written, whether it was queued before or after."""
    writing = Writing()
    writing.begin("queued")
    writing.log.close()
    writing.workers.finish()
    writing.begin("late")
    await asyncio.sleep(0)

    assert {line: type(answer) for line, answer in writing.answers.items()} == {"queued": OSError, "late": OSError}
    assert writing.segments == []
