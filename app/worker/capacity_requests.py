"""Capacity requests: what a run asks of the pool before it executes, and its order among others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from app.worker.concurrency_keys import Age

KEY = "\0key "
"""In front of a concurrency key, to tell it from a folder."""


def ignored(*_: object) -> None:
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
    places: tuple[str, ...] = field(init=False, default=())
    """What it must hold beside capacity: its folder and its key."""

    def __post_init__(self) -> None:
        if self.workspace is not None or self.key is not None:
            key = None if self.key is None else KEY + self.key
            self.places = tuple(place for place in (self.workspace, key) if place is not None)

    def __lt__(self, other: CapacityRequest) -> bool:
        return (-self.priority, self.round, self.arrival) < (-other.priority, other.round, other.arrival)
