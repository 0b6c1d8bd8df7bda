"""Workflow runs: load runs for workflows, send workflows the new lines of the journals, and complete runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app import clock, errors
from app.domain import decisions, events, runs
from app.domain.records import BlobRef
from app.domain.states import RunState
from app.engine import stores
from app.temporal import attributes, messages, priorities, time_limits
from app.temporal.obstacles import Obstacle, Obstacles
from app.temporal.registration import Registration
from app.temporal.replayed_runs import ReplayedRun, replay_run
from app.temporal.run_placement import RunPlacement
from app.temporal.slices import Contents, Slice
from app.temporal.steps import Steps, on_this_machine

Rested = Callable[[runs.RunStart, RunState], Awaitable[None]]
"""Called when a run has come to rest, or waits for an input."""


class WorkflowRuns:
    """Loads, follows and completes runs for their workflows."""

    def __init__(
        self,
        *,
        steps: Steps,
        placement: RunPlacement,
        obstacles: Obstacles,
        contents: Contents,
        registration: Registration,
        times: time_limits.TimeLimits,
        rested: Rested,
    ) -> None:
        self.times = times
        """Watches the time limits of the runs."""
        self._registration = registration
        self._services = sorted(steps.equipment.services)
        self._obstacles = obstacles
        self._steps = steps
        self._placement = placement
        self._equipment = steps.equipment
        self._contents = contents
        self._rested = rested

    async def load(self, run_id: str, *, again: bool) -> Slice:
        """Load a run for its workflow and return its journal.

        Of a run at rest, only that fact is returned; of a run whose workspace or concurrency key is busy, the holder.

        Args:
            again: Whether its workflow continues as new, so that no process takes the run up.
        """
        # Before the run is leased, since placing the run writes to its journal.
        obstacle = None if again else await self._obstacles.workspace(run_id)
        async with self._steps.leases.of(run_id) as log, self._obstacles.key(log.loaded, obstacle) as obstacle:
            if obstacle is None:
                return await self._load(log, again=again)
            start, answer = log.loaded.start, await self._aside(log, obstacle)
        await self._obstacles.stood_aside(start, obstacle)
        return answer

    async def read_lines(self, run_id: str, after: int) -> Slice:
        """Return the journal lines from a position on, with the present decisions."""
        async with self._steps.leases.of(run_id) as log:
            count = max(0, len(log.loaded.records) - after)
            facts = {**_facts(log.loaded), **await self._shown(log.loaded)}
            wanted = Slice(run_id=run_id, first=after, count=count, facts=facts)
            return self._contents.of(log.loaded, wanted)

    async def read_blob(self, run_id: str, blob: dict[str, Any]) -> Slice:
        """Return the content behind a handle."""
        return await self._contents.blob(run_id, BlobRef.from_json(blob))

    async def show_waiting(self, run_id: str, keys: Sequence[str]) -> None:
        """Show that a run waits for inputs, and otherwise only for time and children."""
        async with self._steps.leases.of(run_id) as log:
            decided = log.loaded.decisions
            if not decided.is_halted:
                log.add_event(events.EventType.RUN_WAITING, None, {"keys": list(keys)})
                await log.move(runs.Transition.wait(run_id, clock.stamp(self._equipment.clock.now())))
            start = log.loaded.start
        await self._rested(start, RunState.WAITING)

    async def complete(self, order: messages.CompletionOrder) -> str:
        """End, pause or release a run as its journal requires, and return its new state."""
        async with self._steps.leases.of(order.run_id) as log:
            state = await self._complete(log, order)
            start = log.loaded.start
            rests = log.loaded
        # After the lease, since the runs below are leased as well.
        if state is RunState.PAUSED:
            await self.times.park_below(rests)
        if state is not RunState.RUNNING:
            await self._rested(start, state)
        return state.value

    async def _aside(self, log: stores.RunLog, obstacle: Obstacle) -> Slice:
        run_id = log.loaded.start.run_id
        await self._obstacles.stand_aside(log, obstacle, clock.stamp(self._equipment.clock.now()))
        facts = {"busy": obstacle.holder, "look_seconds": obstacle.retry_seconds, **await self._shown(log.loaded)}
        return self._contents.of(log.loaded, Slice(run_id=run_id, facts=facts))

    async def _load(self, log: stores.RunLog, *, again: bool) -> Slice:
        run_id = log.loaded.start.run_id
        decided = log.loaded.decisions
        rests = decided.ended is not None or (decided.paused is not None and decided.cancel_requested_at is None)
        if rests or log.loaded.missing is not None:
            return self._contents.of(
                log.loaded, Slice(run_id=run_id, facts={"rests": True, **await self._shown(log.loaded)})
            )
        # A run that continued while its workflow completed a pause or an ending is taken up anew, too.
        anew = not again or decided.released is not None or not decided.taken_since_resume
        if decided.cancel_requested_at is None and anew:
            await self._begin(log)
        dead = decisions.ranges(decided.dead)
        facts = {**_facts(log.loaded), **self._placement.facts(decided), "dead": dead}
        facts |= {"services": self._services} if self._services else {}
        facts |= priorities.facts(log.loaded.start, self._equipment.fair_label)
        facts |= await self._shown(log.loaded)
        wanted = Slice(run_id=run_id, count=len(log.loaded.records), facts=facts, whole=True)
        return self._contents.of(log.loaded, wanted)

    async def _shown(self, loaded: stores.Loaded) -> dict[str, Any]:
        return {"attributes": attributes.of(loaded.start)} if await self._registration.are_known() else {}

    async def _begin(self, log: stores.RunLog) -> None:
        start = log.loaded.start
        await log.decide(decisions.DecisionKind.TAKEN, await self.times.taken_facts(log))
        if log.loaded.decisions.taken > 1:
            log.add_event(events.EventType.RECOVERY_CONTINUED, None, {"lines": len(log.loaded.records)})
        at = clock.stamp(self._equipment.clock.now())
        await log.move(runs.Transition.begin(start.run_id, at))

    async def _complete(self, log: stores.RunLog, order: messages.CompletionOrder) -> RunState:
        strict = log.loaded.decisions.cancel_requested_at is None and log.loaded.decisions.ended is None
        try:
            if strict:
                replayed = await self._steps.replayed_runs.of(log, self._steps.driver(log))
            else:
                replayed = await self._replayed_leniently(log)
            state = await replayed.complete(RunPlacement.named(order.parking, log.loaded.decisions))
            if state is not RunState.RUNNING:
                replayed.scheduler.close()
                self._steps.replayed_runs.forget(order.run_id)
            return state
        except errors.StorageFault:
            raise
        except errors.Fault as fault:
            return await self._park(log, fault)

    async def _replayed_leniently(self, log: stores.RunLog) -> ReplayedRun:
        """Return a run that comes to rest whatever its driver says, even if this version does not know the driver."""
        try:
            driver = self._steps.driver(log)
        except errors.DriverFault:
            return await self._silent(log)
        return await replay_run(log, driver, self._equipment, strict=False)

    async def _park(self, log: stores.RunLog, fault: errors.Fault) -> RunState:
        if isinstance(fault, errors.DriverFault):
            # Machines may have different versions.
            fault = errors.DriverFault(on_this_machine(fault.message), code=fault.code, detail=fault.detail)
        return await (await self._silent(log)).completion.park(fault)

    async def _silent(self, log: stores.RunLog) -> ReplayedRun:
        return await replay_run(log, _Silent(), self._steps.hiding(log.loaded.start), strict=False)


class _Silent:
    """A driver without requests, which replaces one that does not fit."""

    name = "none"
    driver_version = 0

    async def drive(self, ctx: Any) -> runs.Ending:
        return runs.Ending()

    def check(self, recipe: Any, library: Any) -> list[errors.Flaw]:
        return []

    def freeze(self, recipe: Any, library: Any) -> dict[str, Any]:
        return {}


def _facts(loaded: stores.Loaded) -> dict[str, Any]:
    decided = loaded.decisions
    return {
        "cancelled": decided.cancel_requested_at is not None,
        "paused": decided.paused is not None,
        "ended": decided.ended is not None,
        **({"time_limits": limits} if (limits := time_limits.facts(loaded)) else {}),
    }
