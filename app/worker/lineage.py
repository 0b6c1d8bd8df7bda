"""Lineage: records which run has started which unfinished run."""

from __future__ import annotations

from app.engine import stores

NOBODY: frozenset[str] = frozenset()  # Ancestors of a run that no other run has started.


class Lineage:
    """Keeps the parent of each unfinished run."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def note(self, summary: stores.RunSummary) -> None:
        """Add a run."""
        if summary.parent_run_id is not None:
            self._parents[summary.run_id] = summary.parent_run_id

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""
        self._parents.pop(run_id, None)

    def ancestors(self, run_id: str) -> frozenset[str]:
        """Return the ancestors of a run."""
        if run_id not in self._parents:
            return NOBODY
        above: set[str] = set()
        while (parent := self._parents.get(run_id)) is not None and parent not in above:
            above.add(parent)
            run_id = parent
        return frozenset(above)
