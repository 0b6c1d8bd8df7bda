"""Probes: named points that do nothing in production; a test can await or hold them, or kill the process there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Probes(Protocol):
    """Receive the names of the points passed."""

    def reach(self, point: str) -> None:
        """Note that a point was passed, e.g. `step.before_append`; runs on the thread that passes it."""


class NoProbes:
    """Ignore every point."""

    reach: Callable[[str], None] = staticmethod(bool)  # type: ignore[assignment]
    """A built-in, which costs a fraction of a function: each step passes a dozen points."""
