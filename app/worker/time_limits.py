"""Time limits: parks runs that have used up their time, after the runs for which they wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from app import clock
from app.domain import limits
from app.engine import active_time, aio, run_equipment, stores, taken_time
from app.worker.active_run import ActiveRun
from app.worker.active_runs import ActiveRuns

# If a limit is lowered meanwhile, the watch notices after the longest wait.
_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Timed:
    """Facts about a run with a time limit, kept while it is evicted."""

    limits: limits.RunLimits
    first_taken_at: str | None = None
    cut_seconds: float = 0.0
    active: active_time.ActiveTime = field(default_factory=active_time.ActiveTime)

    def read(self, active_run: ActiveRun, now: str) -> None:
        """Read the changes of the run, if it is loaded."""
        log, runner = active_run.log, active_run.runner
        if log is not None and runner is not None:
            self.limits = limits_of(log.loaded)
            # A run that is loaded for the first time has no `taken` line yet.
            self.first_taken_at = log.loaded.decisions.first_taken_at or self.first_taken_at or now
            self.cut_seconds = log.loaded.decisions.cut_seconds
            self.active.read(runner.view().records)


class TimeLimits:
    """Watches the runs that have a time limit; a run that has reached it rests until the limit is raised."""

    def __init__(self, active: ActiveRuns, time: clock.Clock, tasks: aio.BackgroundTasks) -> None:
        self._active = active
        self._clock = time
        self._tasks = tasks
        self._timed: dict[str, _Timed] = {}
        self._stops: dict[str, run_equipment.Parked] = {}

    def note(self, active_run: ActiveRun) -> None:
        """Stop a loaded run that has reached a limit, and watch one that has limits."""
        assert active_run.log is not None
        assert active_run.runner is not None
        run_id, found = active_run.run_id, limits_of(active_run.log.loaded)
        # The limit of an ancestor was reached while this run was not loaded.
        if (stop := self._stops.pop(run_id, None)) is not None and self._holds(stop):
            self._park(active_run, stop)
        if not taken_time.is_limited(found):
            return
        timed = self._timed.setdefault(run_id, _Timed(limits=found))
        timed.read(active_run, clock.stamp(self._clock.now()))
        reached, _ = self._judge(active_run, timed)
        if reached is not None and not self._below(run_id):
            self._park(active_run, reached.parked(run_id))
        if not active_run.is_timed:
            active_run.is_timed = True
            self._tasks.begin(self._watch(active_run, timed), f"time limit of {run_id}")

    async def _watch(self, active_run: ActiveRun, timed: _Timed) -> None:
        run_id = active_run.run_id
        try:
            while not (active_run.left.done() or self._active.stopping):
                number = self._active.changes.number(run_id)
                timed.read(active_run, clock.stamp(self._clock.now()))
                reached, wait = self._judge(active_run, timed)
                if reached is not None:
                    await self._stop(active_run, reached)
                    # The limit is reached: from now on, wait only for a change.
                    wait = None
                await self._pause(active_run, number, wait)
        finally:
            self._timed.pop(run_id, None)

    def _judge(self, active_run: ActiveRun, timed: _Timed) -> tuple[taken_time.Reached | None, float | None]:
        """Return the limit that a run has reached, and the seconds until it can reach one; None: only a change can."""
        oldest_start = _begun(active_run)
        taken = taken_time.TakenTime.of(
            self._clock.now(), oldest_start, timed.active, timed.first_taken_at, timed.cut_seconds
        )
        reached = taken.reached(timed.limits)
        left = taken.left(timed.limits)
        # No step is at work, so active time does not grow.
        if oldest_start is None:
            left.pop("active_seconds", None)
        return reached, None if reached is not None else min(left.values(), default=None)

    async def _stop(self, active_run: ActiveRun, reached: taken_time.Reached) -> None:
        parked, below = reached.parked(active_run.run_id), self._below(active_run.run_id)
        for child in below:
            self._park(child, run_equipment.Parked(parked.reason, parked.error))
        # If the run rested first, after a crash nothing would stop the runs for which it waited.
        if resting := [child.left for child in below if child.task is not None or child.evicted is not None]:
            await asyncio.wait(resting)
        self._park(active_run, parked)

    def _holds(self, stop: run_equipment.Parked) -> bool:
        """Return whether the limit that is to park a run when it is loaded is still reached."""
        # The limiting run may have been continued meanwhile, and then no one would continue a descendant that was only
        # queued. If the limit is still reached, the limiting run stops its descendants once it is loaded.
        run_id = str(stop.error.detail["run_id"])
        limiting, timed = self._active.active_runs.get(run_id), self._timed.get(run_id)
        if limiting is None or limiting.left.done():
            return True
        if timed is None:
            return False
        timed.read(limiting, clock.stamp(self._clock.now()))
        return self._judge(limiting, timed)[0] is not None

    def _below(self, run_id: str) -> list[ActiveRun]:
        lineage, active_runs = self._active.lineage, list(self._active.active_runs.values())
        return [one for one in active_runs if run_id in lineage.ancestors(one.run_id) and not one.left.done()]

    def _park(self, active_run: ActiveRun, parked: run_equipment.Parked) -> None:
        if active_run.runner is not None and active_run.log is not None:
            if active_run.log.loaded.decisions.paused is None:
                active_run.runner.pause(interrupt=True, parked=parked)
        else:
            self._stops[active_run.run_id] = parked
            self._active.wake(active_run.run_id)

    async def _pause(self, active_run: ActiveRun, number: int, seconds: float | None) -> None:
        """Wait until a run has left or changed, or until the time is over."""
        left: asyncio.Future[Any] = asyncio.shield(active_run.left)
        if seconds is None:
            other: asyncio.Future[Any] = asyncio.ensure_future(self._active.changes.differs(active_run.run_id, number))
        else:
            bounded = min(max(seconds, _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
            other = asyncio.ensure_future(self._clock.sleep(bounded))
        try:
            await asyncio.wait((left, other), return_when=asyncio.FIRST_COMPLETED)
        finally:
            other.cancel()


def limits_of(loaded: stores.Loaded) -> limits.RunLimits:
    """Return the present limits of a run."""
    return loaded.limits


def _begun(active_run: ActiveRun) -> float | None:
    holder = active_run.runner or active_run.evicted
    at_work = [] if holder is None else [wait for wait in holder.waits() if wait.performing and not wait.operation.idle]
    starts = [clock.instant(wait.since).timestamp() for wait in at_work if wait.since]
    return min(starts) if starts else None
