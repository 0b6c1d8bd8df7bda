"""An opened run: the content of its files, and where they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from app.domain import events
from app.engine import missing_lines
from app.storage.disk.disk_port import Lock
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """The end of a run's files. If they still end there, no other process has written, and nothing
    needs to be repaired.
    """

    steps: int  # Lines of steps.jsonl.
    control: int  # Lines of control.jsonl.
    event: int  # Number of the last event.


Released: TypeAlias = Callable[[str, JournalPosition | None], None]
"""Told that a run is closed, and where it ends if it was set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """Result of opening a folder for writing."""

    authority: Authority  # The run, its torn ends cut off.
    lock: Lock  # The lock of the folder.
    written: Written  # What events.jsonl holds.
    proven: frozenset[str]  # Receipts that are in their session's file.
    missing: missing_lines.MissingLines | None = None  # Lines that the journals are known to lack.
    unwritten: tuple[events.Event, ...] = ()  # Events that are not in the file yet.
