"""The committer: makes the next lines of journals durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine import probes
from app.storage.disk.worker_threads import Workers

Done = Callable[[BaseException | None], None]
"""Called on the loop when a commit is durable, or with the error of its failure."""


class Synced(Protocol):
    """A written file that can be synced."""

    def sync(self) -> None:
        """Make the written content durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Content that was written to one file of a run and has to become durable."""

    run_id: str  # The run.
    path: str  # The file.
    file: Synced  # The open file, so that it can be synced on its own.
    offset: int  # Start of the content; everything before it is durable or was committed before.
    content: bytes | None  # The content; None: too large to be written twice.
    points: str  # Prefix of the names of the crash points passed, e.g. `storage.append`.


class Committer(Protocol):
    """Makes writes to the files of runs durable."""

    def gather(self, launch: Callable[[], None]) -> None:
        """Call `launch` in the loop's next turn, after all requests of this turn, so that they share a commit."""

    def begin(self, commit: Commit, done: Done) -> None:
        """Start a commit; a file has one commit under way at a time."""

    def mention(self, *paths: str) -> None:
        """Note files that were written unsynced and are synced at a checkpoint; callable from any thread."""

    def holds(self, run_id: str) -> bool:
        """Return whether recovery after a power cut examines this run, so that its other files need no sync now."""

    @property
    def has_commit_log(self) -> bool:
        """Return whether commits go to a commit log, from which recovery restores files that were not synced."""

    async def checkpoint(self, run_id: str | None = None) -> None:
        """Sync the files of one run, or of all runs, so that recovery does not restore them from the commit log.

        Raises:
            OSError: they could not be synced.
        """

    async def mend(self) -> None:
        """Make sure that recovery restores no failed commit.

        Raises:
            OSError: it still could restore one.
        """

    def close(self) -> None:
        """Release all files."""


class FileCommitter:
    """Syncs each file on its own, in one hop to a thread."""

    has_commit_log = False

    def __init__(self, workers: Workers, probes: probes.Probes) -> None:
        self._workers = workers
        self._reach = probes.reach

    def gather(self, launch: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(launch)

    def begin(self, commit: Commit, done: Done) -> None:
        """Start a commit on a thread."""
        self._workers.begin(lambda: self._sync(commit), lambda _, error: done(error))

    def mention(self, *paths: str) -> None:
        """Do nothing; callers that need a durable file sync it."""

    def holds(self, run_id: str) -> bool:
        """Return False: this committer keeps no record of runs."""
        return False

    async def checkpoint(self, run_id: str | None = None) -> None:
        """Do nothing; every file is synced as soon as it is written."""

    async def mend(self) -> None:
        """Do nothing; the failure concerns only one file, which continues from a fresh copy."""

    def close(self) -> None:
        """Do nothing; this committer has no open files."""

    def _sync(self, commit: Commit) -> None:
        self._reach(f"{commit.points}.before_sync")
        commit.file.sync()
        self._reach(f"{commit.points}.after_sync")
