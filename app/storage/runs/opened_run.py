"""An opened run: the content of its files, and their ends."""

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
    """End of a run's files: if they still end there, no other process has written, and no repair is needed."""

    steps: int  # Lines of steps.jsonl.
    control: int  # Lines of control.jsonl.
    event: int  # Number of the last event.


Released: TypeAlias = Callable[[str, JournalPosition | None], None]
"""Called when a run is closed, with its end if it was set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """Result of opening a folder for writing."""

    authority: Authority  # The run, without its torn ends.
    lock: Lock  # The lock of the folder.
    written: Written  # Content of events.jsonl.
    receipt_ids: frozenset[str]  # Receipts that are in their session's file.
    missing: missing_lines.MissingLines | None = None  # Lines that the journals are known to lack.
    unwritten: tuple[events.Event, ...] = ()  # Events that are not in the file yet.
