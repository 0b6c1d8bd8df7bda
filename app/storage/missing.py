"""
Missing lines: what else than the journals tells of lines that they do not have.

A journal that lost its end at a line's end is sound in itself. What counts its lines elsewhere are the control lines
that were written later, the events of lines, and run.json; each of them is written only when the lines are durable.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from app import errors
from app.engine import decisions, events, missing_lines, plain
from app.storage import layout
from app.storage.authority import Authority
from app.storage.disk import Disk
from app.storage.events_book import Written

COUNTED = "journal_lines"
"""Field of run.json: lines of steps.jsonl when it was written."""

_DECIDED = {
    decisions.DecisionKind.TAKEN: events.EventType.RUN_STARTED,
    decisions.DecisionKind.CANCEL_REQUESTED: events.EventType.RUN_CANCEL_REQUESTED,
    decisions.DecisionKind.UNPAUSED: events.EventType.RUN_UNPAUSED,
    decisions.DecisionKind.RESUMED: events.EventType.RUN_RESUMED,
    decisions.DecisionKind.ENDED: events.EventType.RUN_ENDED,
}
"""Events that are never told without a control line."""


def find(files: Disk, found: Authority, written: Written) -> missing_lines.Missing | None:
    """
    Return what a run's journals are known to lack, unless a person has been told of it and let the run continue.
    """
    manifest = _manifest(files, found.run_id)
    have = len(found.steps.lines)
    for known, told_by in _counts(found, written, manifest):
        if known > have:
            return missing_lines.Missing(file=layout.STEPS, lines=have, known_lines=known, told_by=told_by)
    have = len(found.control.lines)
    for more, told_by in _undecided(found, written, manifest):
        return missing_lines.Missing(file=layout.CONTROL, lines=have, known_lines=have + more, told_by=told_by)
    return None


def counted(files: Mapping[str, plain.Json], lines: int) -> Mapping[str, plain.Json]:
    """
    Return snapshots whose run.json has the number of lines that it was made from.
    """
    manifest = files.get(layout.MANIFEST)
    if not isinstance(manifest, dict) or "run_id" not in manifest:
        return files
    return {**files, layout.MANIFEST: {**manifest, COUNTED: lines}}


def _counts(found: Authority, written: Written, manifest: dict[str, Any]) -> Iterator[tuple[int, str]]:
    yield found.decisions.known_lines, layout.CONTROL
    if found.decisions.given_up:
        return
    # A folder that was adopted has the events of who made it, and not all of its lines were taken over.
    if not found.start.adopted:
        yield 1 + max(written.positions, default=-1), layout.EVENTS
    if isinstance(told := manifest.get(COUNTED), int):
        yield told, layout.MANIFEST


def _undecided(found: Authority, written: Written, manifest: dict[str, Any]) -> Iterator[tuple[int, str]]:
    if found.start.adopted or found.decisions.given_up:
        return
    kinds = Counter(line.fields["kind"] for line in found.control.lines)
    more = sum(max(0, written.counts.get(type, 0) - kinds[kind]) for kind, type in _DECIDED.items())
    if more:
        yield more, layout.EVENTS
    at, error = manifest.get("completed_at"), manifest.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(at, str) or code == errors.JournalCorrupt.default_code:
        return
    # An ending that a resume took back stands in its journal all the same.
    if all(str(line.fields.get("at")) < at for line in found.control.lines):
        yield 1, f"{layout.MANIFEST} (completed at {at:.40})"


def _manifest(files: Disk, run_id: str) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        manifest = json.loads(files.read(f"{layout.run_folder(run_id)}/{layout.MANIFEST}"))
        return manifest if isinstance(manifest, dict) else {}
    return {}
