"""Bookmarks: where this process stopped writing in folders that it set aside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """The end of a run's files. Where they still end there, nobody else has written, and nothing
    needs to be repaired.
    """

    steps: int
    """Lines of steps.jsonl."""
    control: int
    """Lines of control.jsonl."""
    event: int
    """Number of the last event."""


Released: TypeAlias = Callable[[str, JournalPosition | None], None]
"""Told that a run is closed, and where it ends if it was set aside."""
