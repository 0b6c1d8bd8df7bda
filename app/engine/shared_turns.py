"""Shared turns: the port by which several processes that share a store decide one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Lock(Protocol):
    """A lock that keeps other processes from deciding."""

    def release(self) -> None:
        """Release the lock."""


class SharedTurns(Protocol):
    """Coordinates processes whose decisions depend on the journals of many runs."""

    async def turn(self) -> Lock:
        """Wait until no other process decides, and return the lock that keeps the others out."""

    async def versions(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        """Return a version of each run, which differs as soon as the run's journals have changed."""
