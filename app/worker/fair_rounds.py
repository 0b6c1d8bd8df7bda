"""Fair rounds: turns between the values of a label, however many runs each of them has."""

# A run's round is one more than that of the run before it with the same label, but never earlier than the present
# one. Runs go by rounds, so that each label has one run in each.

from __future__ import annotations


class FairRounds:
    """Give each request the round in which it has its turn."""

    def __init__(self) -> None:
        self._present = 0
        self._newest: dict[str, int] = {}

    def join(self, label: str) -> int:
        """Return the round of a new request."""
        turn = max(self._present, self._newest.get(label, -1) + 1)
        self._newest[label] = turn
        return turn

    def grant(self, turn: int, more: bool) -> None:
        """Note that a request of a round was granted.

        Args:
            more: Whether others wait.
        """
        self._present = max(self._present, turn)
        if not more:
            self._present, self._newest = 0, {}
