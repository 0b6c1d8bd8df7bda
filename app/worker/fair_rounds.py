"""Fair rounds: let the values of a label take turns, however many runs each of them has."""

# A run's round follows that of the previous run with the same label value, and is never before the present round.
# Capacity is granted round by round, so that each value has one run in each round.

from __future__ import annotations


class FairRounds:
    """Assigns each request the round in which it has its turn."""

    def __init__(self) -> None:
        self._present = 0
        self._newest: dict[str, int] = {}

    def join(self, label: str) -> int:
        """Return the round of a new request."""
        turn = max(self._present, self._newest.get(label, -1) + 1)
        self._newest[label] = turn
        return turn

    def grant(self, turn: int, more: bool) -> None:
        """Record that a request of a round was granted.

        Args:
            more: Whether other requests wait.
        """
        self._present = max(self._present, turn)
        # No request waits any more, so no value is owed a turn.
        if not more:
            self._present, self._newest = 0, {}
