"""Commits to a log over a disk in memory, step by step, and their answers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import Any

from app.engine import probes
from app.storage import layout
from app.storage.committer import Commit
from app.storage.disk.disk_port import AppendFile
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.disk.worker_threads import Done
from app.storage.journal.commit_log import CommitLog


class Steered:
    """Workers that do their jobs, and report them as done, when a test asks for it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Done]] = []
        self.over: list[tuple[Done, Any, BaseException | None]] = []

    def begin(self, job: Callable[[], Any], done: Done) -> None:
        """Queue a job."""
        self.waiting.append((job, done))

    def work(self) -> None:
        """Do every job, without reporting any."""
        waiting, self.waiting = self.waiting, []
        for job, done in waiting:
            try:
                self.over.append((done, job(), None))
            except OSError as error:
                self.over.append((done, None, error))

    def tell(self) -> None:
        """Report every job that is done."""
        over, self.over = self.over, []
        for done, result, error in over:
            done(result, error)

    def finish(self) -> None:
        """Do and report jobs until none is left."""
        while self.waiting or self.over:
            self.work()
            self.tell()

    async def run(self, job: Callable[[], Any]) -> Any:
        """Do a job at once."""
        return job()

    def close(self) -> None:
        """Do nothing."""


class UnwillingDisk(MemoryDisk):
    """A disk in memory that refuses chosen operations, counts syncs of single files, and records its whole syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.syncs: list[str] = []
        self.settled: list[list[str]] = []
        for folder in layout.FOLDERS:
            self.add_folder(folder)
            self.sync_folder(folder)
        self.sync_folder("")

    def check(self, operation: str, path: str) -> None:
        """Fail if an operation is refused: `append`, `sync`, `cut`, `settle`, `remove`, or one of these with a name."""
        if self.refused & {operation, f"{operation} {path.rpartition('/')[2]}"}:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def append_to(self, path: str) -> AppendFile:
        return UnwillingFile(self, path, super().append_to(path))

    def cut(self, path: str, size: int, *, sync: bool = True) -> None:
        self.check("cut", path)
        super().cut(path, size, sync=sync)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        super().remove(path)

    def sync_paths(self, paths: Iterable[str]) -> None:
        self.check("settle", "")
        self.settled.append(list(paths))
        super().sync_paths(self.settled[-1])


class UnwillingFile:
    """A file of such a disk; a refused append leaves half of its content behind."""

    def __init__(self, disk: UnwillingDisk, path: str, file: AppendFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        try:
            self._disk.check("append", self._path)
        except OSError:
            self._file.write(content[: len(content) // 2])
            raise
        self._file.write(content)

    def sync(self) -> None:
        self._disk.check("sync", self._path)
        self._disk.syncs.append(self._path.rpartition("/")[2])
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class Writing:
    """A log, and files of runs whose lines are committed to the log."""

    def __init__(self, disk: UnwillingDisk | None = None) -> None:
        self.disk = disk or UnwillingDisk()
        self.workers = Steered()
        self.log = CommitLog(self.disk, self.workers, self.workers, probes.NoProbes())
        self.answers: dict[str, BaseException | None] = {}
        self._files: dict[str, AppendFile] = {}

    def begin(self, line: str, run_id: str = "a", *, large: bool = False) -> None:
        """Write a line to a run's journal, unsynced, and begin its commit; record the answer under the line."""
        folder = layout.run_folder(run_id)
        self.disk.add_folder(folder)
        path = f"{folder}/{layout.STEPS}"
        if path not in self._files:
            self._files[path] = self.disk.append_to(path)
        content = f"{line}\n".encode()
        offset = self.disk.size(path) if self.disk.has_file(path) else 0
        self._files[path].write(content)
        commit = Commit(
            run_id=run_id,
            path=path,
            file=self._files[path],
            offset=offset,
            content=None if large else content,
            points="storage.append",
        )
        self.log.begin(commit, lambda error: self.answers.update({line: error}))

    def commit(self, line: str, run_id: str = "a", *, large: bool = False) -> BaseException | None:
        """Commit a line, and return its error."""
        self.begin(line, run_id, large=large)
        self.workers.finish()
        return self.answers[line]

    @property
    def segments(self) -> list[str]:
        """Return the names of all segments."""
        return self.disk.names(layout.COMMITS)
