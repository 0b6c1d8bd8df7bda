"""Turns: the port by which several processes that share a store decide one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Lock(Protocol):
    """What keeps others out."""

    def release(self) -> None:
        """Let the others in."""


class SharedTurns(Protocol):
    """What several processes need that decide by what is in the journals of many runs."""

    async def turn(self) -> Lock:
        """Wait until no other process decides, and keep the others from it."""

    async def versions(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        """Return what differs for each run as soon as its journals have."""
