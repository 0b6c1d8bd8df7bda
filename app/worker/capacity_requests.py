"""Capacity requests: what a run asks of the pool before it executes, and its order among others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from app.engine import stores
from app.worker.concurrency_keys import Age

KEY = "\0key "
"""Beginning of the name of a place that is a concurrency key, and not a folder."""


def nobody(*_: object) -> None:
    """Ignore a call: the default of callbacks."""


@dataclass(slots=True, kw_only=True, eq=False)
class CapacityRequest:
    """A run's request for capacity."""

    run_id: str
    """Run that asks."""
    priority: int
    """Higher goes first."""
    arrival: int
    """Number of the request; lower goes first within a priority."""
    workspace: str | None
    """Folder that it must hold alone; None if it shares."""
    ancestors: frozenset[str]
    """Runs above it, whose workspace it may hold too, and whose key does not keep it out."""
    key: str | None = None
    """Concurrency key that it must hold; None: it shares none."""
    key_limit: int = 1
    """Runs of the key that may be under way, itself included."""
    age: Age = ("", "")
    """When it was created, and its id."""
    label: str | None = None
    """Value of the label between which turns are fair; None: all take turns by arrival."""
    round: int = 0
    """Number of its turn among those of its label, set when it joins."""
    granted: Callable[[], None]
    """Called when it is granted."""

    def __lt__(self, other: CapacityRequest) -> bool:
        return (-self.priority, self.round, self.arrival) < (-other.priority, other.round, other.arrival)

    @property
    def places(self) -> tuple[str, ...]:
        """Return what it must hold, for which it may stand aside."""
        key = None if self.key is None else KEY + self.key
        return tuple(place for place in (self.workspace, key) if place is not None)

    @classmethod
    def of(
        cls, summary: stores.RunSummary, arrival: int, ancestors: frozenset[str], fair_label: str | None
    ) -> CapacityRequest:
        """Return the request of a run."""
        return cls(
            run_id=summary.run_id,
            priority=summary.priority,
            arrival=arrival,
            workspace=workspace_of(summary),
            ancestors=ancestors,
            key=summary.concurrency_key,
            key_limit=summary.concurrency_limit or 1,
            age=age(summary),
            label=None if fair_label is None else summary.labels.get(fair_label, ""),
            granted=nobody,
        )


def age(summary: stores.RunSummary) -> Age:
    """Return what orders runs by their creation."""
    return summary.created_at, summary.run_id


def workspace_of(summary: stores.RunSummary) -> str | None:
    """Return the folder that a run must hold alone; None if it shares."""
    return os.path.normpath(summary.working_dir) if summary.exclusive_workspace else None
