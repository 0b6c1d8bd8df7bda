"""An opened run: what its log is made from."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain import events
from app.engine import missing_lines
from app.storage.disk.disk_port import Lock
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """What opening a folder for writing brought."""

    authority: Authority
    """The run, its torn ends cut off."""
    lock: Lock
    """The folder, held."""
    written: Written
    """What events.jsonl holds."""
    proven: frozenset[str]
    """Receipts that are in their session's file."""
    missing: missing_lines.MissingLines | None = None
    """Lines that the journals are known to lack."""
    unwritten: tuple[events.Event, ...] = ()
    """Events that are not in the file yet."""
