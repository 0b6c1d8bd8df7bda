"""Run folders: reads runs without a lock, including folders written by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from app import clock, errors
from app.domain import plain, runs
from app.engine import stores
from app.storage import layout
from app.storage.journal import chain, damage
from app.storage.runs import adoption, authority, census
from app.storage.runs import missing_lines as missing
from app.storage.storage_context import StorageContext

if TYPE_CHECKING:
    from app.storage.runs.growing_runs import GrowingRuns

Adopt: TypeAlias = Callable[[Mapping[str, plain.Json]], Awaitable[runs.RunStart]]
"""Derives the start of a run from the run.json of a folder written by hand: finds its recipe and freezes it."""


class RunFolders:
    """Reads the folders of runs."""

    def __init__(self, context: StorageContext, identity: str, adopt: Adopt | None) -> None:
        self._context = context
        self._identity = identity
        self._adopt = adopt
        self._kept: GrowingRuns | None = None

    async def read(self, run_id: str, *, deep: bool = False) -> stores.Loaded:
        """Read a run without locking or changing it.

        Args:
            deep: Whether blobs are hashed, too.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as `stores.RunStore.read`.
        """
        disk, growing = self._context.disk, self._growing()
        read = partial(missing.read, disk, run_id, deep=True) if deep else partial(growing.read, run_id)
        try:
            return await self._context.workers.run(lambda: read().loaded())
        except errors.NotFound:
            found, start = await self.by_hand(run_id)
        converted = adoption.convert(found, start, clock.stamp(self._context.clock.now()), inline=True)
        anchor = plain.labelled_sha256(converted.start)
        steps, control = chain.read(converted.steps, anchor), chain.read(converted.control, anchor)
        return authority.judge(run_id, start, steps, control).loaded()

    def _growing(self) -> GrowingRuns:
        if self._kept is None:
            # Lists do not need it.
            from app.storage.runs.growing_runs import GrowingRuns

            self._kept = GrowingRuns(self._context.disk)
        return self._kept

    async def by_hand(self, run_id: str) -> tuple[adoption.Found, runs.RunStart]:
        """Return the content of a folder without start.json, and the start that is made from it.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the folder does not exist or cannot be adopted.
            errors.RequestInvalid: its recipe cannot be frozen.
        """
        found = await self._context.workers.run(lambda: adoption.find(self._context.disk, run_id))
        if self._adopt is None:
            raise damage.corrupt(run_id, layout.START, "is missing, and the folder cannot be adopted")
        made, beginning = await self._adopt(found.manifest), census.start_of(found.manifest, run_id)
        start = dataclasses.replace(
            made,
            run_id=run_id,
            created_at=beginning.created_at,
            session_id=beginning.session_id or made.session_id,
            idempotency_key=None,
            request_sha256=None,
            owner="service",
            data_directory_id=self._identity,
            adopted=True,
        )
        return found, start
