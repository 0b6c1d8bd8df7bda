"""Lineage: which unfinished run was started by which."""

from __future__ import annotations

from app.engine import stores

NOBODY: frozenset[str] = frozenset()  # Runs above one that no other has started.


class Lineage:
    """Remember who started a run, for as long as it is unfinished."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def note(self, summary: stores.RunSummary) -> None:
        """Take a run in."""
        if summary.parent_run_id is not None:
            self._parents[summary.run_id] = summary.parent_run_id

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""
        self._parents.pop(run_id, None)

    def ancestors(self, run_id: str) -> frozenset[str]:
        """Return the runs above one."""
        if run_id not in self._parents:
            return NOBODY
        above: set[str] = set()
        while (parent := self._parents.get(run_id)) is not None and parent not in above:
            above.add(parent)
            run_id = parent
        return frozenset(above)
