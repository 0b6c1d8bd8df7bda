"""The commit log: makes new lines of many runs durable with one sync.

A journal's lines are first written to their own file, unsynced, and then to the log, which is synced: from that moment
they are accepted. After a power cut, recovery completes the files from the log before any other read
(`commit_recovery`). A segment of the log is dropped only after every file that it mentions was itself synced.
"""

# Why: docs/decisions/0070. The order of events, with the thread of each:
#
# 1. loop: a journal writes a line to its own file and calls `gather`. In the loop's next turn `_launch` calls every
#    journal back, and each calls `begin` with one commit of all its new lines.
# 2. loop: `_start_job` passes a job to the thread: one executes, and at most one more waits behind it.
# 3. commits: `_commit` empties the queue. `_append` writes all contents to the segment and syncs it once. A commit
#    without content, or one that the log refused, syncs its own file (`_sync_alone`).
# 4. loop: `_committed` starts the next job first and then answers the callers. Commits that they begin meanwhile are
#    queued (`_collecting`) and share the sync of that job or of the next.
# 5. commits: a segment that is full, torn or distrusted is closed by `_turn_over`.
# 6. others: `_drop_full` syncs every file that closed segments mention, and then removes these segments.

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app import errors
from app.engine import probes
from app.storage import layout
from app.storage.committer import Commit, Done
from app.storage.disk.disk_port import AppendFile, Disk
from app.storage.disk.worker_threads import Workers
from app.storage.journal import commit_records

SEGMENT_BYTES = 8 * 1024 * 1024  # Length at which a segment is closed and the next one begins.

_MOST_JOBS = 2

_log = logging.getLogger(__name__)

_Outcomes: TypeAlias = list[tuple[Done, BaseException | None]]
_Mentions: TypeAlias = dict[str, frozenset[str]]
_NONE: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class _Segment:
    path: str
    file: AppendFile
    size: int
    runs: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    mentions: _Mentions = field(default_factory=dict)
    torn: bool = False
    kept: bool = False


class CommitLog:
    """`Committer` over one log for all runs; for the one process that is the service."""

    has_commit_log = True

    def __init__(self, disk: Disk, commits: Workers, others: Workers, probes: probes.Probes) -> None:
        self._disk = disk
        self._commits = commits
        self._others = others
        self._reach = probes.reach
        self._syncer = disk.syncer(layout.FOLDERS)
        self._waiting: deque[tuple[Commit, Done]] = deque()
        self._launches: list[Callable[[], None]] = []
        self._collecting = False
        self._jobs = 0
        # Guards the segments, which the loop and two kinds of workers read; no holder of this lock waits for a disk.
        self._guard = threading.RLock()
        self._writing = threading.Lock()
        self._dropping = threading.Lock()
        self._naming = threading.Lock()  # One thread may cut a segment while another renames it.
        self._number = max((commit_records.number(name) for name in disk.names(layout.COMMITS)), default=0)
        self._segment: _Segment | None = None
        self._mentioned: _Mentions = {}
        # The files of most runs have the same names, and there may be thousands of runs.
        self._groups: dict[frozenset[str], frozenset[str]] = {}
        self._full: list[_Segment] = []
        self._due = self._closed = self._distrusted = False

    # -- on the loop

    def gather(self, launch: Callable[[], None]) -> None:
        """Call `launch` in the loop's next turn, together with all others; the commits begun then share a sync."""
        if not self._launches:
            asyncio.get_running_loop().call_soon(self._launch)
        self._launches.append(launch)

    def begin(self, commit: Commit, done: Done) -> None:
        """Queue a commit; all commits that are queued while a sync is under way share the next one."""
        if self._closed:
            asyncio.get_running_loop().call_soon(done, _closed())
            return
        self._waiting.append((commit, done))
        if not self._collecting:
            self._start_job()

    def mention(self, *paths: str) -> None:
        """Add files that must be synced before the current segment is dropped."""
        with self._guard:
            for path in paths:
                folder, _, name = path.rpartition("/")
                names = self._mentioned.get(folder, _NONE)
                if name not in names:
                    names = names | {name}
                    self._mentioned[folder] = self._groups.setdefault(names, names)

    def holds(self, run_id: str) -> bool:
        """Return whether the current segment mentions the run, whose files are then synced before it is dropped."""
        with self._guard:
            return self._segment is not None and run_id in self._segment.runs

    async def checkpoint(self, run_id: str | None = None) -> None:
        """Sync every file that the log mentions, and drop the log; do nothing if the log does not mention the run.

        Raises:
            OSError: a file could not be synced, now or before; its segments are kept until the next start.
        """
        if self._mentioning(run_id):
            await self._commits.run(self._turn_over)
            await self._others.run(self._drop_full)
        if kept := self._mentioning(run_id):
            raise OSError(errno.EIO, "the commit log is still needed", kept[0].path)

    async def mend(self) -> None:
        """Cut off records that could not be made durable.

        Raises:
            OSError: they cannot be cut off.
        """
        await self._commits.run(self._cut_torn)

    def close(self) -> None:
        """Close the files; the next start completes the journals from the remaining segments."""
        self._closed = True
        with self._guard:
            if self._segment is not None:
                self._segment.file.close()
                self._segment = None
        self._syncer.close()

    def _mentioning(self, run_id: str | None) -> list[_Segment]:
        with self._guard:
            return [segment for segment in self._segments() if run_id is None or run_id in segment.runs]

    def _start_job(self) -> None:
        if self._jobs < _MOST_JOBS:
            # One job waits behind the running one, so that the thread continues without waiting for the loop.
            self._jobs += 1
            self._commits.begin(self._commit, self._committed)

    def _committed(self, outcomes: _Outcomes, _: BaseException | None) -> None:
        self._jobs -= 1
        if self._waiting:
            # A job that was over but still counted may have prevented the start of another.
            self._start_job()
        if self._due:
            self._due = False
            self._others.begin(self._drop_full, _noted)
        self._call_together(outcomes)

    def _launch(self) -> None:
        launches, self._launches = self._launches, []
        self._call_together(zip(launches))

    def _call_together(self, calls: Iterable[tuple[Any, ...]]) -> None:
        # Without this flag, the first commit that begins here would start a job, and so a sync, of its own.
        self._collecting = True
        for callback, *arguments in calls:
            try:
                callback(*arguments)
            except (Exception, errors.Fault):  # noqa: BLE001 - logged; it concerns one run alone
                _log.exception("a commit could not be answered, or the next one could not begin")
        self._collecting = False
        if self._waiting:
            self._start_job()

    # -- on the thread that commits

    def _commit(self) -> _Outcomes:
        outcomes: _Outcomes = []
        batch, small = [], []
        with self._writing:
            # All waiting commits share one sync.
            while self._waiting:
                commit, done = self._waiting.popleft()
                batch.append((commit, done))
                if commit.content is not None:
                    small.append(commit)
            if self._closed:
                return [(done, _closed()) for _, done in batch]
            try:
                written = not small or self._write(small)
                for commit, done in batch:
                    # The file of a commit without content is synced itself.
                    alone = not written or commit.content is None
                    outcomes.append((done, self._sync_alone(commit) if alone else None))
            except BaseException as error:  # noqa: BLE001 - handed to all callers
                return [(done, error) for _, done in batch]
        return outcomes

    def _write(self, commits: list[Commit]) -> bool:
        if self._distrusted:
            self._turn_over()
            return False
        try:
            size = self._append(commits)
        except BaseException as error:
            self._give_up()
            if not isinstance(error, OSError):
                raise
            _log.error("the commit log failed, files are synced one by one: %s", error)
            return False
        self._reach("storage.commit.after_sync")
        if size >= SEGMENT_BYTES:
            self._turn_over()
        return True

    def _append(self, commits: list[Commit]) -> int:
        segment = self._segment or self._new_segment()
        content = b"".join(map(encoded, commits))
        # Other threads add files of their own while this thread writes.
        with self._guard:
            # Before the write: a segment dropped without syncing these files would lose their lines.
            for commit in commits:
                if commit.path not in segment.paths:
                    segment.paths.add(commit.path)
                    segment.runs.add(commit.run_id)
                    self.mention(commit.path)
        self._reach("storage.commit.before_write")
        segment.file.write(content)
        self._reach("storage.commit.before_sync")
        segment.file.sync()
        # Only after the sync: a torn segment is cut back to this size, that is, to the confirmed records.
        segment.size += len(content)
        return segment.size

    def _sync_alone(self, commit: Commit) -> BaseException | None:
        try:
            self._reach(f"{commit.points}.before_sync")
            commit.file.sync()
            # Without the log, the names of file and folder may not be durable.
            folder = commit.path.rpartition("/")[0]
            for place in (folder, folder.rpartition("/")[0]):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync_folder(place)
            self._reach(f"{commit.points}.after_sync")
        except OSError as error:
            return error
        return None

    def _give_up(self) -> None:
        # An unconfirmed line must not reappear after its run has continued differently.
        if self._segment is not None:
            self._segment.torn = True
        self._turn_over()
        with contextlib.suppress(OSError):
            self._cut_torn()

    def _cut_torn(self) -> None:
        with self._guard:
            torn = [segment for segment in self._segments() if segment.torn]
        for segment in torn:
            with self._naming, contextlib.suppress(FileNotFoundError):
                self._disk.cut(segment.path, segment.size)
            segment.torn = False

    def _new_segment(self) -> _Segment:
        self._number += 1
        path = commit_records.segment(self._number)
        self._reach("storage.commit.before_segment")
        head = commit_records.head(self._disk.boot_id())
        self._disk.write(path, head, sync=True)
        # The segment's name must be durable, too, before the first line in it is accepted.
        self._disk.sync_folder(layout.COMMITS)
        segment = _Segment(path, self._disk.append_to(path), len(head))
        with self._guard:
            self._segment = segment
        return segment

    def _turn_over(self) -> None:
        with self._guard:
            if self._segment is None:
                return
            self._segment.file.close()
            self._segment.mentions = self._mentioned
            self._mentioned = {}
            self._full.append(self._segment)
            self._segment = None
            self._due = True

    def _segments(self) -> list[_Segment]:
        return [*self._full, *([self._segment] if self._segment else [])]

    # -- on any other worker

    def _drop_full(self) -> None:
        with self._dropping:
            if self._distrusted:
                self._keep()
            with self._guard:
                full = [segment for segment in self._full if not segment.kept]
            if not full:
                return
            self._reach("storage.commit.before_checkpoint")
            try:
                # First the files, then their segments: in the other order a power cut could lose both.
                self._syncer.sync(lambda: _names(full))
            except OSError as error:
                _log.error("files cannot be synced together, and are synced one by one until the next start: %s", error)
                self._keep()
                raise
            # Every file is durable now. If a crash leaves the segments, applying them again changes no file.
            for segment in full:
                self._reach("storage.commit.before_drop")
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(segment.path)
            self._disk.sync_folder(layout.COMMITS)
            with self._guard:
                self._full = [segment for segment in self._full if segment not in full]

    def _keep(self) -> None:
        # The kernel may have dropped data that it could not write, in any file. Such a file lacks the data although the
        # machine is up and the next sync succeeds. Only a sync of the file itself reports the failure.
        self._distrusted = True
        with self._guard:
            segments = [segment for segment in self._segments() if not segment.kept]
        for segment in segments:
            segment.kept = True
            with self._naming, contextlib.suppress(OSError):
                self._disk.rename(segment.path, commit_records.kept(segment.path))
                segment.path = commit_records.kept(segment.path)


def encoded(commit: Commit) -> bytes:
    """Return a commit as a record, in the form that `commit_records` reads."""
    assert commit.content is not None
    return b'{"run_id":"%b","path":"%b","offset":%d,"bytes":%d,"crc32":"%08x"}\n%b\n' % (
        commit.run_id.encode(),
        commit.path.encode(),
        commit.offset,
        len(commit.content),
        zlib.crc32(commit.content),
        commit.content,
    )


def _names(segments: list[_Segment]) -> list[str]:
    folders = {folder for segment in segments for folder in segment.mentions}
    paths = {f"{folder}/{name}" for segment in segments for folder, names in segment.mentions.items() for name in names}
    parents = {folder.rpartition("/")[0] for folder in folders}
    return [*sorted(paths), *sorted(folders), *sorted(parents)]


def _closed() -> OSError:
    return OSError(errno.EBADF, "the commit log is closed")


def _noted(_: object, error: BaseException | None) -> None:
    if error is not None:
        _log.warning("a segment of the commit log is not dropped: %s", error)
