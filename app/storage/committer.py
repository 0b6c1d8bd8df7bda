"""
The committer: makes one journal's next lines durable.

This is the seam for grouping syncs over all runs: a shared commit log implements `Committer` with one append and one
sync for whatever was begun meanwhile, and writes each run's own file unsynced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine import probes
from app.storage.disk import AppendFile
from app.storage.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """
    Lines of one journal that share a sync.
    """

    path: str
    """The journal."""
    file: AppendFile
    """The same, open."""
    offset: int
    """Where the lines begin."""
    content: bytes
    """The lines."""
    points: str
    """Beginning of the names of the points passed, e.g. `storage.append`."""


class Committer(Protocol):
    """
    Make lines durable.
    """

    def begin(self, commit: Commit, done: Callable[[BaseException | None], None]) -> None:
        """
        Start a commit; `done` is called on the loop once its lines are durable, or with what went wrong.

        A journal has one commit under way at a time.
        """


class FileCommitter:
    """
    Write each journal's own file and sync it, in one hop to a thread.
    """

    def __init__(self, workers: Workers, probes: probes.Probes) -> None:
        self._workers = workers
        self._reach = probes.reach

    def begin(self, commit: Commit, done: Callable[[BaseException | None], None]) -> None:
        """
        Start a commit on a thread.
        """
        self._workers.begin(lambda: self._write(commit), lambda _, error: done(error))

    def _write(self, commit: Commit) -> None:
        self._reach(f"{commit.points}.before_write")
        commit.file.write(commit.content)
        self._reach(f"{commit.points}.before_sync")
        commit.file.sync()
        self._reach(f"{commit.points}.after_sync")
