"""The commit log: what many runs have written becomes durable with one sync.

A journal's lines are first written to their own file, unsynced, and then to the log, which is synced: from that moment
they count. After a power cut the files are completed from the log before anybody reads them (`commit_recovery`). A
segment of the log is dropped only when every file that it mentions was synced itself.
"""

# Why: docs/decisions/0070.

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

SEGMENT_BYTES = 8 * 1024 * 1024  # Length from which a segment is followed by the next.

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

    shares = True

    def __init__(self, disk: Disk, commits: Workers, others: Workers, probes: probes.Probes) -> None:
        self._disk = disk
        self._commits = commits
        self._others = others
        self._reach = probes.reach
        self._syncer = disk.syncer(layout.FOLDERS)
        self._waiting: deque[tuple[Commit, Done]] = deque()
        self._launches: list[Callable[[], None]] = []
        self._gathering = False
        self._jobs = 0
        # Guards the segments, which the loop and two kinds of workers read; no holder of it waits for a disk.
        self._guard = threading.RLock()
        self._writing = threading.Lock()
        self._dropping = threading.Lock()
        self._naming = threading.Lock()  # One thread cuts a segment while another may give it its other name.
        self._number = max((commit_records.number(name) for name in disk.names(layout.COMMITS)), default=0)
        self._segment: _Segment | None = None
        self._mentioned: _Mentions = {}
        # The files of most runs have the same names, and there may be thousands of runs.
        self._groups: dict[frozenset[str], frozenset[str]] = {}
        self._full: list[_Segment] = []
        self._due = self._closed = self._distrusted = False

    # -- on the loop

    def gather(self, launch: Callable[[], None]) -> None:
        """Call back in the loop's next turn, after which a sync begins with everything that came of it."""
        if not self._launches:
            asyncio.get_running_loop().call_soon(self._launch)
        self._launches.append(launch)

    def begin(self, commit: Commit, done: Done) -> None:
        """Start a commit; it shares its sync with all that come in while another is under way."""
        if self._closed:
            asyncio.get_running_loop().call_soon(done, _closed())
            return
        self._waiting.append((commit, done))
        if not self._gathering:
            self._call()

    def mention(self, *paths: str) -> None:
        """Note files to be synced before the present segment is dropped."""
        with self._guard:
            for path in paths:
                folder, _, name = path.rpartition("/")
                names = self._mentioned.get(folder, _NONE)
                if name not in names:
                    names = names | {name}
                    self._mentioned[folder] = self._groups.setdefault(names, names)

    def holds(self, run_id: str) -> bool:
        """Return whether the present segment mentions the run: whatever was written before is synced before it is
        dropped.
        """
        with self._guard:
            return self._segment is not None and run_id in self._segment.runs

    async def settle(self, run_id: str | None = None) -> None:
        """Drop the log, if it mentions the run.

        Raises:
            OSError: files could not be synced, now or before, so that what mentions them is kept until the next start.
        """
        if self._mentioning(run_id):
            await self._commits.run(self._turn_over)
            await self._others.run(self._drop_full)
        if kept := self._mentioning(run_id):
            raise OSError(errno.EIO, "the commit log is still needed", kept[0].path)

    async def mend(self) -> None:
        """Cut off what could not be made durable.

        Raises:
            OSError: it cannot be cut off.
        """
        await self._commits.run(self._cut_torn)

    def close(self) -> None:
        """Let go of the files; what is still in the log is completed from it at the next start."""
        self._closed = True
        with self._guard:
            if self._segment is not None:
                self._segment.file.close()
                self._segment = None
        self._syncer.close()

    def _mentioning(self, run_id: str | None) -> list[_Segment]:
        with self._guard:
            return [segment for segment in self._segments() if run_id is None or run_id in segment.runs]

    def _call(self) -> None:
        if self._jobs < _MOST_JOBS:
            # One more than is at work, so that the thread continues without waiting for the loop.
            self._jobs += 1
            self._commits.begin(self._commit, self._committed)

    def _committed(self, outcomes: _Outcomes, _: BaseException | None) -> None:
        self._jobs -= 1
        if self._waiting:
            # Jobs that are over but not noted yet may have kept one from being called.
            self._call()
        if self._due:
            self._due = False
            self._others.begin(self._drop_full, _noted)
        self._share(outcomes)

    def _launch(self) -> None:
        launches, self._launches = self._launches, []
        self._share(zip(launches))

    def _share(self, jobs: Iterable[tuple[Any, ...]]) -> None:
        # Commits that begin here share a sync, in place of the first having one for itself.
        self._gathering = True
        for job, *given in jobs:
            try:
                job(*given)
            except (Exception, errors.Fault):  # noqa: BLE001 - told, and the trouble of one run alone
                _log.exception("a commit could not be answered, or the next one could not begin")
        self._gathering = False
        if self._waiting:
            self._call()

    # -- on the thread that commits

    def _commit(self) -> _Outcomes:
        outcomes: _Outcomes = []
        batch, small = [], []
        with self._writing:
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
                    alone = not written or commit.content is None
                    outcomes.append((done, self._alone(commit) if alone else None))
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
        with self._guard:
            # Before the write: a segment that was dropped without syncing these files would take their lines along.
            for commit in commits:
                if commit.path not in segment.paths:
                    segment.paths.add(commit.path)
                    segment.runs.add(commit.run_id)
                    self.mention(commit.path)
        self._reach("storage.commit.before_write")
        segment.file.write(content)
        self._reach("storage.commit.before_sync")
        segment.file.sync()
        # Only after the sync: a torn segment is cut back to this size, and so to what was confirmed.
        segment.size += len(content)
        return segment.size

    def _alone(self, commit: Commit) -> BaseException | None:
        try:
            self._reach(f"{commit.points}.before_sync")
            commit.file.sync()
            # The names may be no more durable than the log.
            folder = commit.path.rpartition("/")[0]
            for place in (folder, folder.rpartition("/")[0]):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync_folder(place)
            self._reach(f"{commit.points}.after_sync")
        except OSError as error:
            return error
        return None

    def _give_up(self) -> None:
        # What was not confirmed must not come back after its run went on in another way.
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
        # Its name, too, must be durable before the first line in it counts.
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
            self._reach("storage.commit.before_settle")
            try:
                self._syncer.sync(lambda: _names(full))
            except OSError as error:
                _log.error("files cannot be synced together, and are synced one by one until the next start: %s", error)
                self._keep()
                raise
            # Every file is durable by itself now. A log that a crash leaves is applied again without effect.
            for segment in full:
                self._reach("storage.commit.before_drop")
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(segment.path)
            self._disk.sync_folder(layout.COMMITS)
            with self._guard:
                self._full = [segment for segment in self._full if segment not in full]

    def _keep(self) -> None:
        # The kernel may have forgotten what it could not write, in any file, so that files lack it though the machine
        # is up, and though the next sync succeeds. Only a sync of the file itself reports its failure.
        self._distrusted = True
        with self._guard:
            segments = [segment for segment in self._segments() if not segment.kept]
        for segment in segments:
            segment.kept = True
            with self._naming, contextlib.suppress(OSError):
                self._disk.rename(segment.path, commit_records.kept(segment.path))
                segment.path = commit_records.kept(segment.path)


def encoded(commit: Commit) -> bytes:
    """Write a commit as a record, in the form that `commit_records` reads."""
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
