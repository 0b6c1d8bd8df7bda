"""Time limit watch: determines when a run may have reached a time limit; the run's journal decides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from app.temporal import messages
    from app.temporal.step_dispatch import ask, is_cut

_SHORTEST_SECONDS = 0.05

# A step that waits for a worker takes no active time, so its run is checked less and less often.
_SOON_SECONDS, _LATEST_SECONDS = 1.0, 60.0


class TimeLimitWatch:
    """Checks the journal of a run whenever the run may have reached a time limit; part of its workflow."""

    def __init__(self) -> None:
        self._limits: tuple[Mapping[str, float], bool] = ({}, False)
        # The last answer of the journal, and its time; None: the journal has to be asked.
        self._known: messages.TimeLeft | None = None
        self._known_at: datetime | None = None
        # Steps that workers perform or will get, since when there are any, and for how long there were some before.
        self._steps: set[str] = set()
        self._since: datetime | None = None
        self._worked_seconds = 0.0
        self._interval_seconds = _SOON_SECONDS
        self._notes = self._begun = 0

    @property
    def is_limited(self) -> bool:
        """Return whether the run has a time limit."""
        return bool(self._limits[0])

    @property
    def is_unknown(self) -> bool:
        """Return whether the run may have reached a limit about which the journal has not been asked yet."""
        return self.is_limited and self._known is None

    def note(self, facts: Mapping[str, Any]) -> None:
        """Keep the limits in force, and whether the run is paused."""
        limits = (facts.get("time_limits") or {}, bool(facts["paused"]))
        if limits != self._limits:
            self._limits, self._known = limits, None
            self._notes += 1

    def begin(self, key: str) -> None:
        """Note that a step is given to a worker."""
        if not self._steps:
            self._since = workflow.now()
            self._begun += 1
        self._steps.add(key)

    def end(self, key: str) -> None:
        """Note that a step is not given to a worker any more."""
        if key in self._steps:
            self._steps.discard(key)
            self._interval_seconds = _SOON_SECONDS
            if not self._steps and self._since is not None:
                self._worked_seconds += (workflow.now() - self._since).total_seconds()
                self._since = None

    async def watch(self, run_id: str, refreshed: Callable[[], None]) -> bool:
        """Return True once the run has reached a limit; False if that cannot be determined, or the watch is to end.

        Args:
            refreshed: Called when the remaining time is known again.
        """
        while not is_cut():
            notes, begun, works = self._notes, self._begun, bool(self._steps)
            left = self._left()
            if left is None or left > 0:
                # While some steps are at work, further steps do not bring the limit nearer.
                with contextlib.suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda notes=notes, begun=begun, works=works: (  # type: ignore[misc]
                            self._notes != notes or (self._begun != begun and not works)
                        ),
                        timeout=None if left is None else max(left, _SHORTEST_SECONDS),
                    )
                continue
            try:
                is_reached = await self._ask_journal(run_id)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                # A run whose journal cannot be judged comes to rest for that reason by itself.
                self._known, self._known_at = messages.TimeLeft(), workflow.now()
                refreshed()
                return False
            refreshed()
            if is_reached:
                return True
        return False

    def _left(self) -> float | None:
        """Return the seconds until a limit can be reached; None: only after a change."""
        if not self.is_limited:
            return None
        if self._known is None or self._known_at is None:
            return 0.0
        now, found = workflow.now(), []
        if self._known.wall_seconds is not None:
            found.append(self._known.wall_seconds - (now - self._known_at).total_seconds())
        if self._known.active_seconds is not None and self._since is not None:
            working = (now - self._since).total_seconds()
            left = self._known.active_seconds - self._worked_seconds - working
            found.append(left if self._known.is_at_work else max(left, self._interval_seconds - working))
        return min(found, default=None)

    async def _ask_journal(self, run_id: str) -> bool:
        limits, before = self._limits, self._known
        known: messages.TimeLeft = await ask(messages.ENFORCE_TIME_LIMITS, run_id, result_type=messages.TimeLeft)
        # If the limits were changed meanwhile, the journal is asked again.
        self._known = known if limits == self._limits else None
        self._known_at, self._worked_seconds = workflow.now(), 0.0
        self._since = self._known_at if self._steps else None
        # The interval doubles each time that no step was at work.
        if before is not None and not (before.is_at_work or known.is_at_work):
            self._interval_seconds = min(2 * self._interval_seconds, _LATEST_SECONDS)
        return known.is_reached
