"""The stall watch: reports, once per silence, that a working agent, program or tool produces no output."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from app import clock, errors
from app.domain import events, operations, plain, views
from app.engine import evicted_runs, open_steps, runner_link
from app.worker.active_run import ActiveRun
from app.worker.active_runs import ActiveRuns

_WATCHED = (operations.AgentCall, operations.Command, operations.ToolCall)
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    # Silence is measured by a clock that stops while the machine is suspended, because the agents stop, too. The wall
    # clock, which dates the output, only places a sign of life between two checks.
    now: datetime
    at: float
    since_last: float
    seen: Mapping[tuple[str, str], tuple[str, float]]

    def seen_at(self, step: tuple[str, str], since: str) -> float:
        """Return when a step's newest sign of life arrived, on the clock of `at`."""
        known = self.seen.get(step)
        if known is not None and known[0] == since:
            return known[1]
        ago = (self.now - clock.instant(since)).total_seconds()
        return self.at - min(max(ago, 0.0), self.since_last)


class StallWatch:
    """Watches the executing runs, whose number is bounded by the capacity.

    Args:
        begin: Starts a background task under a name; the pool ends it when it stops.
    """

    def __init__(
        self, active: ActiveRuns, time: clock.Clock, after_seconds: float, begin: Callable[..., object]
    ) -> None:
        self._begin = begin
        self._active = active
        self._clock = time
        self._after_seconds = after_seconds
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        self.count = 0
        """Number of steps that are silent now."""

    async def watch(self) -> None:
        """Poll until the pool stops."""
        pause = min(max(self._after_seconds / 4, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        checked_at = self._clock.monotonic()
        while not self._active.stopping:
            await self._clock.sleep(pause)
            before, checked_at, seen, self._seen = checked_at, self._clock.monotonic(), self._seen, {}
            check = _Check(now=self._clock.now(), at=checked_at, since_last=checked_at - before, seen=seen)
            self.count = sum(self._count_stalled(run_id, check) for run_id in tuple(self._active.capacity.holding))

    def _count_stalled(self, run_id: str, check: _Check) -> int:
        active_run = self._active.active_runs.get(run_id)
        holder = None if active_run is None else active_run.runner or active_run.evicted
        if active_run is None or holder is None:
            return 0
        waits = [wait for wait in holder.waits() if wait.performing and isinstance(wait.operation, _WATCHED)]
        return sum(self._judge(active_run, wait, check) for wait in waits)

    def _judge(self, active_run: ActiveRun, wait: open_steps.StepWait, check: _Check) -> bool:
        step, since = wait.step, wait.output_at or wait.since
        if step is None or since is None:
            return False
        seen_at = check.seen_at((active_run.run_id, wait.key), since)
        self._seen[active_run.run_id, wait.key] = since, seen_at
        silent = check.at - seen_at
        # A step in a queue is not silent: its prompt has not been sent yet.
        if wait.queued is not None or silent < self._after_seconds:
            if step.stalled is not None:
                step.stalled = None
                self._active.changes.note(active_run.run_id)
            return False
        if step.stalled is None:
            self._mark_stalled(active_run, wait, since, silent)
        return True

    def _mark_stalled(
        self, active_run: ActiveRun, wait: open_steps.StepWait, since: str, silent_seconds: float
    ) -> None:
        assert wait.step is not None
        agent_id = wait.operation.agent_id if isinstance(wait.operation, operations.AgentCall) else None
        seconds = round(silent_seconds)
        wait.step.stalled = views.Stalled(key=wait.key, agent_id=agent_id, since=since, silent_seconds=seconds)
        facts = {"agent_id": agent_id, "silent_seconds": seconds}
        # The event is for people who look later; an evicted run is loaded for it.
        if active_run.log is not None:
            active_run.log.add_event(events.EventType.RUN_STALLED, wait.key, facts)
        elif isinstance(active_run.evicted, evicted_runs.EvictedRun):
            self._begin(self._write(active_run.evicted.executor.link, wait.key, facts), "stalled")
        self._active.changes.note(active_run.run_id)

    async def _write(self, link: runner_link.RunnerLink, key: str, facts: Mapping[str, plain.Json]) -> None:
        """Write the event of an evicted run, which is loaded for it."""
        with contextlib.suppress(errors.InterruptionFault):
            async with link.use() as owner:
                owner.log.add_event(events.EventType.RUN_STALLED, key, facts)


def begun(
    active: ActiveRuns, time: clock.Clock, after_seconds: float | None, begin: Callable[..., object]
) -> StallWatch | None:
    """Begin to watch, unless no time is configured."""
    if not after_seconds:
        return None
    watch = StallWatch(active, time, after_seconds, begin)
    begin(watch.watch(), "stall watch")
    return watch
