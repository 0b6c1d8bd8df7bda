"""The committer: makes the next lines of journals durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine import probes
from app.storage.disk.worker_threads import Workers

Done = Callable[[BaseException | None], None]
"""Called on the loop once a commit is durable, or with the error."""


class Synced(Protocol):
    """What was written and can be synced."""

    def sync(self) -> None:
        """Make what was written durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What was written to one file of a run, and has to be durable."""

    run_id: str  # The run.
    path: str  # The file.
    file: Synced  # The same, so that it can be synced by itself.
    offset: int  # Where the content begins: everything before it is durable, or was committed before.
    content: bytes | None  # The content; None: too large to be written twice.
    points: str  # Beginning of the names of the points passed, e.g. `storage.append`.


class Committer(Protocol):
    """Make writes to the files of runs durable."""

    def gather(self, launch: Callable[[], None]) -> None:
        """Call back in the loop's next turn, when all requests of this one begin a commit."""

    def begin(self, commit: Commit, done: Done) -> None:
        """Start a commit. A file has one commit under way at a time."""

    def mention(self, *paths: str) -> None:
        """Note files that were written unsynced, to be synced at a checkpoint. From any thread."""

    def holds(self, run_id: str) -> bool:
        """Return whether recovery after a power cut examines this run, so that its other files need no sync now."""

    @property
    def shares(self) -> bool:
        """Return whether many commits share a sync, so that a new run's folder is cheaper to commit than to sync."""

    async def checkpoint(self, run_id: str | None = None) -> None:
        """Sync the run's own files, or those of all runs, so that recovery restores nothing of them from elsewhere.

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
    """Sync each file by itself, in one hop to a thread."""

    shares = False

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
        """Return False: only the run's own files know of it."""
        return False

    async def checkpoint(self, run_id: str | None = None) -> None:
        """Do nothing; every file is synced as soon as it is written."""

    async def mend(self) -> None:
        """Do nothing; the failure concerns one file only, which continues from a fresh copy."""

    def close(self) -> None:
        """Do nothing; nothing is held."""

    def _sync(self, commit: Commit) -> None:
        self._reach(f"{commit.points}.before_sync")
        commit.file.sync()
        self._reach(f"{commit.points}.after_sync")
