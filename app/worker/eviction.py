"""Eviction: unloads runs that only wait, if many runs are loaded."""

# Why: docs/decisions/0077.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app import clock
from app.domain import operations
from app.engine import aio
from app.worker.active_run import ActiveRun

PAUSE_SECONDS = 1.0  # Pause between two rounds, and the shortest time that a run must be quiet.

BUSY_PAUSE_SECONDS = 0.1
"""The same while several times more runs are loaded than may stay. A command gets the longer pause: it ends soon, and
loading its run again costs more than most commands. A run that only awaits inputs gets no pause.
"""

KEPT_LOADED = 32  # Runs that stay loaded however quiet they are, so that a small service never reloads a run.

_CROWD = 4
_AT_A_TIME = 32
_SECONDS_A_LINE = 0.05


class IdleEvictor:
    """Evicts the runs that have been quiet for longest; one with a long journal later, since loading it costs more."""

    def __init__(
        self,
        time: clock.Clock,
        loaded: Mapping[str, ActiveRun],
        most_loaded: int,
        evict: Callable[[ActiveRun], Awaitable[None]],
        died: Callable[[BaseException], None],
    ) -> None:
        self._clock = time
        self._loaded = loaded
        self._kept = most_loaded
        self._evict = evict
        self._background_tasks = aio.BackgroundTasks(died)
        self._running = self._over = False

    def begin(self) -> None:
        """Begin to evict, if more runs are loaded than may stay loaded."""
        if not (self._running or self._over) and len(self._loaded) > self._kept:
            self._running = True
            self._background_tasks.begin(self._evict_quiet(), "evict")

    def give_up(self) -> None:
        """Stop evicting."""
        self._over = True
        self._background_tasks.give_up()

    async def wait_idle(self) -> None:
        """Wait until no round is under way."""
        await self._background_tasks.wait_idle()

    async def _evict_quiet(self) -> None:
        try:
            # The runs that waited shortest stay: a run that moves soon would have to be loaded again at once.
            while len(self._loaded) > self._kept:
                await self._clock.sleep(self._pause_seconds)
                quiet = self._quiet()[: max(0, len(self._loaded) - self._kept)]
                for first in range(0, len(quiet), _AT_A_TIME):
                    await asyncio.gather(*map(self._evict, quiet[first : first + _AT_A_TIME]))
        finally:
            self._running = False

    @property
    def _pause_seconds(self) -> float:
        return BUSY_PAUSE_SECONDS if self._is_crowded else PAUSE_SECONDS

    @property
    def _is_crowded(self) -> bool:
        return len(self._loaded) > _CROWD * self._kept

    def _quiet(self) -> list[ActiveRun]:
        now = self._clock.monotonic()
        quiet = [active_run for active_run in list(self._loaded.values()) if self._is_quiet(active_run, now)]
        return sorted(quiet, key=lambda active_run: active_run.quiet_since)

    def _is_quiet(self, active_run: ActiveRun, now: float) -> bool:
        if active_run.runner is None or active_run.log is None or not active_run.runner.may_be_evicted():
            # No number of turns equals this, so its quiet time begins anew once it may be evicted.
            active_run.turns = -1
            return False
        if active_run.turns != active_run.runner.turns:
            active_run.turns = active_run.runner.turns
            active_run.quiet_since = now
        lines = len(active_run.log.loaded.records) + active_run.runner.turns
        quiet_seconds = now - active_run.quiet_since
        # Questions to people stay open for hours; when the pool is crowded, they need no quiet time.
        waits = active_run.runner.waits() if quiet_seconds < PAUSE_SECONDS else ()
        if self._is_crowded and waits and all(isinstance(wait.operation, operations.Input) for wait in waits):
            return True
        # The longer the journal, the more it costs to load, and the longer the run stays.
        if quiet_seconds < max(self._pause_seconds, lines * _SECONDS_A_LINE):
            return False
        # If the run were evicted, the output of its command would have no reader.
        return not any(isinstance(wait.operation, operations.Command) for wait in waits)
