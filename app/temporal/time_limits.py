"""Time limits by the journals: bring runs that have used up their time to rest, after the runs below them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from app import clock, errors
from app.domain import decisions, plain, runs, states
from app.engine import active_time, run_equipment, stores, taken_time
from app.temporal import messages
from app.temporal.steps import Steps

SendSignal = Callable[[str, str, list[Any]], Awaitable[None]]
"""Sends a signal to the workflow of a run, and starts the workflow if there is none."""


def facts(loaded: stores.Loaded) -> dict[str, float]:
    """Return the time limits of a run, by name."""
    limits = {name: getattr(loaded.limits, name) for name in taken_time.NAMES}
    return {name: limit for name, limit in limits.items() if limit is not None}


class TimeLimits:
    """Brings runs that have reached a time limit to rest."""

    def __init__(self, store: stores.RunStore, steps: Steps, signal: SendSignal) -> None:
        self._store = store
        self._steps = steps
        self._signal = signal

    async def enforce(self, run_id: str) -> messages.TimeLeft:
        """Return what the time limits of a run leave; pause a run that has reached a limit, and the runs below it."""
        async with self._steps.leases.of(run_id) as log:
            left, parked = await self._judged(log)
        if parked is None:
            return left
        # If the run itself rested first, after a crash nothing would stop the runs for which it waited.
        await self._park_below(run_id, parked)
        async with self._steps.leases.of(run_id) as log:
            # The limit may have been raised meanwhile, when the parked runs below were continued.
            left, parked = await self._judged(log)
            if parked is not None:
                await self._park(log, parked)
        return left

    async def park_below(self, loaded: stores.Loaded) -> None:
        """Pause the runs that a run started while it was being paused at its time limit."""
        decided = loaded.decisions
        error = decided.pause_error or {}
        detail, run_id = error.get("detail"), loaded.start.run_id
        if decided.paused == decisions.TIME_LIMIT and isinstance(detail, dict) and detail.get("run_id") == run_id:
            fault = errors.StepError(str(error.get("message")), code=decisions.TIME_LIMIT, detail=detail)
            await self._park_below(run_id, run_equipment.Parked(decisions.TIME_LIMIT, fault))

    async def taken_facts(self, log: stores.RunLog) -> dict[str, plain.Json]:
        """Return the fields of the `taken` line of a run."""
        if not log.loaded.decisions.taken:
            return {}
        try:
            replayed = await self._steps.replayed_runs.of(log, self._steps.driver(log))
        except errors.StorageFault:
            raise
        except (errors.Fault, errors.JournalCorrupt):
            # The run comes to rest for this reason when it is replayed.
            return {}
        return active_time.taken_facts(log.loaded, replayed.scheduler.asks, clock.stamp(self._steps.clock.now()))

    async def _judged(self, log: stores.RunLog) -> tuple[messages.TimeLeft, run_equipment.Parked | None]:
        loaded, decided = log.loaded, log.loaded.decisions
        if decided.is_halted:
            return messages.TimeLeft(is_reached=decided.paused == decisions.TIME_LIMIT), None
        replayed = await self._steps.replayed_runs.of(log, self._steps.driver(log))
        open_tries = active_time.WithoutLine(loaded, decided.attempts, replayed.scheduler.asks)
        active = active_time.ActiveTime()
        active.read(loaded.records)
        active.add(open_tries.cut_off)
        now = self._steps.clock.now()
        taken = taken_time.TakenTime.of(now, open_tries.begun, active, decided.first_taken_at, decided.cut_seconds)
        if (reached := taken.reached(loaded.limits)) is not None:
            return messages.TimeLeft(is_reached=True), reached.parked(loaded.start.run_id)
        left = taken.left(loaded.limits)
        return messages.TimeLeft(
            wall_seconds=left.get("wall_seconds"),
            active_seconds=left.get("active_seconds"),
            is_at_work=open_tries.begun is not None,
        ), None

    async def _park_below(self, run_id: str, parked: run_equipment.Parked) -> None:
        async for row in self._below(run_id, {run_id}):
            async with self._steps.leases.of(row.run_id) as log:
                # The cut-off time belongs to the limiting run, as far as known; here it counts by the pause.
                is_parked = await self._park(log, run_equipment.Parked(parked.reason, parked.error))
            if is_parked:
                await self._signal(row.run_id, messages.PAUSE_SIGNAL, [True])

    async def _below(self, run_id: str, known: set[str]) -> AsyncIterator[stores.RunSummary]:
        rows = [row async for row in stores.every_run(self._store, stores.RunQuery(parent_run_id=run_id))]
        for row in rows:
            # A damaged index may name a run among its own descendants.
            if row.run_id in known:
                continue
            known.add(row.run_id)
            async for lower in self._below(row.run_id, known):
                yield lower
            if not states.RunState(row.status).finished:
                yield row

    async def _park(self, log: stores.RunLog, parked: run_equipment.Parked) -> bool:
        decided, start = log.loaded.decisions, log.loaded.start
        if decided.is_halted:
            return False
        error = self._masked(start, parked.error)
        written = {**parked.facts, "reason": parked.reason, "error": error}
        return await log.decide(decisions.DecisionKind.PAUSED, written)

    def _masked(self, start: runs.RunStart, error: errors.StepError) -> dict[str, plain.Json]:
        masked: dict[str, plain.Json] = self._steps.hiding(start).masker.mask_cut(plain.plain(error.to_json()))
        return masked
