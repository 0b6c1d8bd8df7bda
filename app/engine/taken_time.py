"""Taken time: computes how long a run has taken, and which of its time limits it has reached."""

# Wall time counts from the first `taken` line of the run. Active time is the time during which at least one of its
# steps was at work. Work that a stop or a kill of the service cut off is counted by the next `taken` line.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app import clock, errors, printable
from app.domain import decisions, plain
from app.domain.limits import RunLimits
from app.engine import active_time, run_equipment

NAMES = ("wall_seconds", "active_seconds")  # The limits on time.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A time limit that a run has reached."""

    limit: str  # Name of the limit.
    limit_seconds: float  # Seconds that the limit allows.
    used_seconds: float  # Seconds that the run has used.
    cut_seconds: float  # Seconds of them that no journal line records.

    def parked(self, run_id: str) -> run_equipment.Parked:
        """Return the exception that parks the run, or a run for which it waits."""
        name = {"wall_seconds": "wall-clock", "active_seconds": "active"}[self.limit]
        limit = printable.amount(self.limit_seconds)
        message = f"the run {run_id} has reached its limit of {limit} s of {name} time; raise it to continue"
        detail: dict[str, plain.Json] = {
            "run_id": run_id,
            "limit": self.limit,
            "limit_seconds": self.limit_seconds,
            "used_seconds": round(self.used_seconds, 3),
        }
        error = errors.StepError(message, code=decisions.TIME_LIMIT, detail=detail)
        return run_equipment.Parked(decisions.TIME_LIMIT, error, {"cut_seconds": round(self.cut_seconds, 3)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTime:
    """The time that a run has taken until an instant."""

    wall_seconds: float  # Since a process first took it up.
    active_seconds: float  # Time during which at least one of its steps was at work.
    cut_seconds: float  # Part of the active time that no line records yet.

    @classmethod
    def of(
        cls,
        now: datetime,
        begun: float | None,
        active: active_time.ActiveTime,
        first_taken_at: str | None,
        cut_seconds: float,
    ) -> TakenTime:
        """Add up what a run has taken.

        Args:
            begun: When the oldest step that is at work now began; None: no step is at work.
            cut_seconds: Seconds that control lines record for attempts without a line.
        """
        until = active.until(now.timestamp(), begun)
        return cls(
            wall_seconds=0.0 if first_taken_at is None else (now - clock.instant(first_taken_at)).total_seconds(),
            active_seconds=cut_seconds + until,
            # A wall clock that was set back could make this negative.
            cut_seconds=max(until - active.recorded, 0.0),
        )

    def reached(self, limits: RunLimits) -> Reached | None:
        """Return the first limit that the run has reached; None if it has reached none."""
        for name, left in self.left(limits).items():
            if left <= 0:
                limit, used = getattr(limits, name), getattr(self, name)
                return Reached(limit=name, limit_seconds=limit, used_seconds=used, cut_seconds=self.cut_seconds)
        return None

    def left(self, limits: RunLimits) -> dict[str, float]:
        """Return, for each time limit that is set, the seconds that are left."""
        found = ((name, getattr(limits, name), getattr(self, name)) for name in NAMES)
        return {name: limit - used for name, limit, used in found if limit is not None}


def is_limited(limits: RunLimits) -> bool:
    """Return whether a run has a time limit."""
    return any(getattr(limits, name) is not None for name in NAMES)
