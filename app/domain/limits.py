"""Limits: what a run and the runs that it starts may spend, and how long it may take."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app import errors
from app.domain import shapes

RANGES: Mapping[str, tuple[float, float]] = {
    "cost_usd": (0, 1_000_000),
    "tokens": (0, 10**15),
    "calls": (0, 10**9),
    "wall_seconds": (1, 10 * 366 * 86_400),
    "active_seconds": (1, 10 * 366 * 86_400),
}
"""Least and greatest value of each limit."""

_WHOLE = ("tokens", "calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits(shapes.Shape):
    """The limits of a run and of the runs below it; an absent limit is not set."""

    cost_usd: float | None = shapes.omitted()
    """Price of agent calls in US dollars, reported or estimated."""
    tokens: int | None = shapes.omitted()  # Tokens that agents read and write.
    calls: int | None = shapes.omitted()  # Calls of agents, including repeated ones.
    wall_seconds: float | None = shapes.omitted()  # Time since the run began.
    active_seconds: float | None = shapes.omitted()  # Time in which at least one of its own steps is at work.

    @classmethod
    def from_json(cls, value: Any) -> RunLimits:
        """Read stored limits; unknown fields of a later version are ignored.

        Raises:
            TypeError: the value is not an object, or a limit is not a number in its range.
        """
        if not isinstance(value, dict):
            raise TypeError("limits are not an object")
        limits = cls(**{name: value[name] for name in RANGES if name in value})
        for flaw in flaws(limits):
            raise TypeError(flaw.message)
        return limits

    def changed(self, given: Mapping[str, float | None]) -> RunLimits:
        """Return the limits with some of them replaced; None removes a limit."""
        return dataclasses.replace(self, **given)  # type: ignore[arg-type]


NO_LIMITS = RunLimits()  # No limit is set.


def flaws(limits: RunLimits, path: str = "$.limits") -> list[errors.Flaw]:
    """Return a flaw for each limit that is not a number in its range."""
    found = []
    for name, (least, most) in RANGES.items():
        value = getattr(limits, name)
        if value is not None and not _is_within(name, value, least, most):
            kind = "a whole number" if name in _WHOLE else "a number"
            message = f"{name} must be {kind} from {least} to {most}"
            found.append(errors.Flaw(path=f"{path}.{name}", code="out_of_range", message=message))
    return found


def _is_within(name: str, value: Any, least: float, most: float) -> bool:
    is_number = type(value) is int or (type(value) is float and math.isfinite(value) and name not in _WHOLE)
    return is_number and least <= value <= most


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimit:
    """The worst case of a run."""

    most: int | None  # Most calls of agents, including repeated ones; None: no bound is known.
    note: str | None = None  # Why no bound is known.

    def less(self, calls: int) -> CallLimit:
        """Return the limit without calls that a run has made, or cannot make any more."""
        return self if self.most is None else dataclasses.replace(self, most=max(self.most - calls, 0))
