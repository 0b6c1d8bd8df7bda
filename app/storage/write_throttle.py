"""The pace of projections: writing what is shown of runs takes its share of the time, however many runs are open."""

from __future__ import annotations

LARGEST_SHARE = 1 / 20
"""Part of the time that writing projections may take, of one run's and of all together."""

_RUNS_AT_EASE = 8


class WriteThrottle:
    """Say when a run's projections are written next."""

    def __init__(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self.open = 0
        """Runs that are open."""

    def first_seconds(self) -> float:
        """Return how long a run that has just been opened waits; one that is over sooner writes its
        projections once.
        """
        return self._pause_seconds * max(1.0, self.open / _RUNS_AT_EASE)

    def next_seconds(self, took_seconds: float) -> float:
        """Return how long a run waits after a write that took so long."""
        return max(took_seconds * self.open / LARGEST_SHARE - took_seconds, self._pause_seconds)
