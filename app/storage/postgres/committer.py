"""The committer: commits new lines of many runs in one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from app.engine import probes
from app.storage.committer import Commit, Done
from app.storage.disk.worker_threads import Workers
from app.storage.postgres.disk import PostgresDisk

_Outcomes: TypeAlias = list[tuple[Done, BaseException | None]]


class PostgresCommitter:
    """`Committer` whose commits share a transaction with all others that arrive while one is under way."""

    has_commit_log = False

    def __init__(self, disk: PostgresDisk, workers: Workers, probes: probes.Probes) -> None:
        self._disk = disk
        self._workers = workers
        self._reach = probes.reach
        self._waiting: deque[tuple[Commit, Done]] = deque()
        self._launches: list[Callable[[], None]] = []
        self._busy = False

    def gather(self, launch: Callable[[], None]) -> None:
        if not self._launches:
            asyncio.get_running_loop().call_soon(self._launch)
        self._launches.append(launch)

    def begin(self, commit: Commit, done: Done) -> None:
        """Start a commit, or let it wait for the one that is under way."""
        if not self._waiting and not self._busy:
            asyncio.get_running_loop().call_soon(self._call)
        self._waiting.append((commit, done))

    def mention(self, *paths: str) -> None:
        """Do nothing; only lines of journals wait for a commit, any other file is committed when it is written."""

    def holds(self, run_id: str) -> bool:
        """Return False: this committer keeps no record of runs."""
        return False

    async def checkpoint(self, run_id: str | None = None) -> None:
        """Commit lines that needed no commit before.

        Raises:
            OSError: they were not committed.
        """
        await self._workers.run(self._disk.commit_all)

    async def mend(self) -> None:
        """Do nothing; a failed commit cannot reappear."""

    def close(self) -> None:
        """Do nothing; this committer has no open files."""

    def _launch(self) -> None:
        launches, self._launches = self._launches, []
        for launch in launches:
            launch()

    def _call(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            batch = list(self._waiting)
            self._waiting.clear()
            self._workers.begin(lambda: self._commit(batch), self._committed)

    def _commit(self, batch: list[tuple[Commit, Done]]) -> _Outcomes:
        try:
            for commit, _ in batch:
                self._reach(f"{commit.points}.before_sync")
            self._reach("storage.commit.before_sync")
            refused = self._disk.commit([commit.path for commit, _ in batch])
            self._reach("storage.commit.after_sync")
            for commit, _ in batch:
                self._reach(f"{commit.points}.after_sync")
        except BaseException as error:  # noqa: BLE001 - handed to all callers
            return [(done, error) for _, done in batch]
        return [(done, refused.get(commit.path)) for commit, done in batch]

    def _committed(self, outcomes: _Outcomes, _: BaseException | None) -> None:
        self._busy = False
        self._call()
        for done, error in outcomes:
            done(error)
        self._call()
