"""Probes: named points that do nothing in production; a test can await or hold them, or kill the process there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Probes(Protocol):
    """Receives the names of the points that the code passes."""

    def reach(self, point: str) -> None:
        """Record that the code passed a point, e.g. `step.before_append`; called on the thread that passes it."""


class NoProbes:
    """Ignores all points."""

    reach: Callable[[str], None] = staticmethod(bool)  # type: ignore[assignment]
    """A built-in function, which costs a fraction of a Python function: each step passes a dozen points."""
