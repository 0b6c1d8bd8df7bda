"""
The commit log: many commits share a sync, and none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.engine import probes
from app.storage import layout
from app.storage.commit_log import CommitLog
from app.storage.committer import Commit
from app.storage.memory_disk import MemoryDisk
from app.storage.workers import Done


class Steered:
    """
    Workers whose jobs are done, and told as done, when a test says so.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Done]] = []
        self.over: list[tuple[Done, Any]] = []

    def begin(self, job: Callable[[], Any], done: Done) -> None:
        """Queue a job."""
        self.waiting.append((job, done))

    def work(self) -> None:
        """Do every job; nobody is told yet."""
        waiting, self.waiting = self.waiting, []
        self.over += [(done, job()) for job, done in waiting]

    def tell(self) -> None:
        """Tell of every job that is done."""
        over, self.over = self.over, []
        for done, result in over:
            done(result, None)

    async def run(self, job: Callable[[], Any]) -> Any:
        """Do a job at once."""
        return job()

    def close(self) -> None:
        """Do nothing."""


class Nothing:
    """
    A file that needs no sync.
    """

    def sync(self) -> None:
        """Do nothing."""


def log_over(workers: Steered) -> CommitLog:
    """Return a log over a disk in memory."""
    disk = MemoryDisk()
    disk.add_folder(layout.COMMITS)
    return CommitLog(disk, workers, workers, probes.NoProbes())


def commit(run_id: str) -> Commit:
    """Return a line of a run."""
    path = f"{layout.run_folder(run_id)}/{layout.STEPS}"
    return Commit(run_id=run_id, path=path, file=Nothing(), offset=0, content=b"{}\n", points="storage.append")


def test_a_commit_that_comes_while_ended_jobs_are_not_told_yet_is_made_too() -> None:
    """Whatever the order of jobs, and of the news about them, every commit is answered."""
    workers, told = Steered(), []
    log = log_over(workers)
    log.begin(commit("a"), lambda error: told.append("a"))
    log.begin(commit("b"), lambda error: told.append("b"))
    workers.work()
    log.begin(commit("c"), lambda error: told.append("c"))
    workers.tell()
    workers.work()
    workers.tell()

    assert told == ["a", "b", "c"]
