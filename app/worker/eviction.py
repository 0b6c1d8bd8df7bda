"""Walks through the house, again and again, that let quiet runs fall asleep while many are loaded."""

# Why: docs/decisions/0077.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app import clock
from app.engine.aio import BackgroundTasks
from app.worker.active_run import ActiveRun

WALK_SECONDS = 1.0
"""Pause between two walks, and the shortest time that a run must be quiet."""

HURRIED_SECONDS = 0.1
"""The same while several times as many runs are loaded as are kept so."""

KEPT_LOADED = 32
"""Runs that stay loaded however quiet they are, so that a small service never pays for a reload."""

_CROWD = 4
_AT_A_TIME = 32
_SECONDS_A_LINE = 0.05


class IdleEvictor:
    """Find the runs that have been quiet for longest. A long run must be quiet for longer, since
    waking it costs more.
    """

    def __init__(
        self,
        time: clock.Clock,
        loaded: Mapping[str, ActiveRun],
        kept: int,
        put_to_sleep: Callable[[ActiveRun], Awaitable[None]],
        died: Callable[[BaseException], None],
    ) -> None:
        self._clock = time
        self._loaded = loaded
        self._kept = kept
        self._put_to_sleep = put_to_sleep
        self._background_tasks = BackgroundTasks(died)
        self._walking = self._over = False

    def begin(self) -> None:
        """Walk for as long as more runs are loaded than are kept so."""
        if not (self._walking or self._over) and len(self._loaded) > self._kept:
            self._walking = True
            self._background_tasks.begin(self._walk(), "walk")

    def give_up(self) -> None:
        """Walk no more."""
        self._over = True
        self._background_tasks.give_up()

    async def settled(self) -> None:
        """Wait until nobody walks."""
        await self._background_tasks.settled()

    async def _walk(self) -> None:
        try:
            while len(self._loaded) > self._kept:
                await self._clock.sleep(self._pause_seconds)
                quiet = self._quiet()[: max(0, len(self._loaded) - self._kept)]
                for first in range(0, len(quiet), _AT_A_TIME):
                    await asyncio.gather(*map(self._put_to_sleep, quiet[first : first + _AT_A_TIME]))
        finally:
            self._walking = False

    @property
    def _pause_seconds(self) -> float:
        return HURRIED_SECONDS if len(self._loaded) > _CROWD * self._kept else WALK_SECONDS

    def _quiet(self) -> list[ActiveRun]:
        now = self._clock.monotonic()
        quiet = [active_run for active_run in list(self._loaded.values()) if self._is_quiet(active_run, now)]
        return sorted(quiet, key=lambda active_run: active_run.quiet_since)

    def _is_quiet(self, active_run: ActiveRun, now: float) -> bool:
        if active_run.runner is None or active_run.log is None or not active_run.runner.may_be_evicted():
            active_run.turns = -1
            return False
        if active_run.turns != active_run.runner.turns:
            active_run.turns = active_run.runner.turns
            active_run.quiet_since = now
        lines = len(active_run.log.loaded.records) + active_run.runner.turns
        return now - active_run.quiet_since >= max(self._pause_seconds, lines * _SECONDS_A_LINE)
