"""Missing lines: detects lines that the journals lack, from evidence outside of them.

A journal that was cut off between two lines is sound by itself. Later control lines, the events of lines, and run.json
record its number of lines; each of them is written only when the lines are durable.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from app import errors
from app.domain import decisions, events, plain
from app.engine import missing_lines, stores
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.journal.chain import Integrity
from app.storage.runs import authority, events_file
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written

COUNTED = "journal_lines"  # Field of run.json with the number of lines of steps.jsonl at the time of writing.

_MOST_READS = 10

_DECIDED = {
    decisions.DecisionKind.TAKEN: events.EventType.RUN_STARTED,
    decisions.DecisionKind.CANCEL_REQUESTED: events.EventType.RUN_CANCEL_REQUESTED,
    decisions.DecisionKind.UNPAUSED: events.EventType.RUN_UNPAUSED,
    decisions.DecisionKind.LIMITED: events.EventType.RUN_LIMITED,
    decisions.DecisionKind.RESUMED: events.EventType.RUN_RESUMED,
    decisions.DecisionKind.ENDED: events.EventType.RUN_ENDED,
    decisions.DecisionKind.LABELLED: events.EventType.RUN_LABELLED,
    decisions.DecisionKind.VOTED: events.EventType.GATE_VOTED,
}
"""Events that always have a control line."""


def find(files: Disk, found: Authority, written: Written) -> missing_lines.MissingLines | None:
    """Return the lines that a run's journals are known to lack, unless a person has accepted the loss."""
    return _find(found, written, _manifest(files, found.run_id))


def _find(found: Authority, written: Written, manifest: dict[str, Any]) -> missing_lines.MissingLines | None:
    have = len(found.steps.lines)
    for known, told_by in _counts(found, written, manifest):
        if known > have:
            return missing_lines.MissingLines(file=layout.STEPS, lines=have, known_lines=known, told_by=told_by)
    have = len(found.control.lines)
    for more, told_by in _undecided(found, written, manifest):
        return missing_lines.MissingLines(file=layout.CONTROL, lines=have, known_lines=have + more, told_by=told_by)
    return None


def read(files: Disk, run_id: str, *, deep: bool = False) -> Authority:
    """Read a run's authority; if lines are known to be missing, apply the pause that the next opening writes.

    Raises:
        errors.NotFound, errors.JournalCorrupt: as `authority.read`.
    """
    found, lost = read_with_missing(files, run_id, deep=deep)
    if lost is not None and found.decisions.paused is None:
        found.decisions.apply(pause(lost, run_id, found.decisions.last_at or found.start.created_at))
    return found


def sound(files: Disk, run_id: str) -> stores.Loaded | None:
    """Return a run with complete files, without missing lines and with an event for each gate; otherwise None."""
    try:
        found = authority.read(files, run_id)
        content = files.read(f"{layout.run_folder(run_id)}/{layout.EVENTS}")
        whole = found.steps.integrity is found.control.integrity is Integrity.WHOLE and content.endswith(b"\n")
        if not whole or found.damages or find(files, found, events_file.written(content)) is not None:
            return None
        gates = [str(line.fields["gate_id"]) for line in found.control.lines if "gate_id" in line.fields]
        return found.loaded() if all(gate.encode() in content for gate in gates) else None
    except (OSError, errors.ControlRoomError, errors.StorageFault):
        return None


def read_with_missing(
    files: Disk, run_id: str, *, deep: bool = False
) -> tuple[Authority, missing_lines.MissingLines | None]:
    """Read a run's authority, and return the lines that an unfinished run's journals are known to lack.

    Raises:
        errors.NotFound, errors.JournalCorrupt: as `authority.read`.
    """
    found, lost = authority.read(files, run_id, deep=deep), None
    evidence: tuple[Written, dict[str, Any]] | None = None
    for _ in range(_MOST_READS):
        if found.damages or found.decisions.ended is not None:
            return found, None
        evidence = evidence or (_written(files, run_id), _manifest(files, run_id))
        lost = _find(found, *evidence)
        if lost is None:
            break
        # A reader does not exclude writers. Lines are durable before their evidence, so journals that are read after
        # the evidence contain them. Newer evidence would be ahead of each reading of a run that grows.
        before, found = found, authority.read(files, run_id, deep=deep)
        if before.sizes == found.sizes:
            break
    return found, lost


def parks(decided: decisions.Decisions) -> bool:
    """Return whether a run would execute, so that its next opening parks it."""
    return not decided.is_halted


def pause(lost: missing_lines.MissingLines, run_id: str, at: str) -> dict[str, plain.Json]:
    """Return the control line that pauses a run for a person because it lacks lines."""
    error = lost.error(run_id).to_json()
    return {"kind": decisions.DecisionKind.PAUSED.value, "at": at, "reason": decisions.LINES_MISSING, "error": error}


def counted(files: Mapping[str, plain.Json], lines: int) -> Mapping[str, plain.Json]:
    """Return snapshots with the number of journal lines added to run.json."""
    manifest = files.get(layout.MANIFEST)
    if not isinstance(manifest, dict) or "run_id" not in manifest:
        return files
    return {**files, layout.MANIFEST: {**manifest, COUNTED: lines}}


def _counts(found: Authority, written: Written, manifest: dict[str, Any]) -> Iterator[tuple[int, str]]:
    yield found.decisions.known_lines, layout.CONTROL
    if found.decisions.given_up:
        return
    # An adopted folder has the events of the program that created it, and not all of its lines were adopted.
    if not found.start.adopted:
        yield 1 + max(written.positions, default=-1), layout.EVENTS
    if isinstance(counted := manifest.get(COUNTED), int):
        yield counted, layout.MANIFEST


def _undecided(found: Authority, written: Written, manifest: dict[str, Any]) -> Iterator[tuple[int, str]]:
    if found.start.adopted or found.decisions.given_up:
        return
    kinds = Counter(line.fields["kind"] for line in found.control.lines)
    more = sum(max(0, written.counts.get(type, 0) - kinds[kind]) for kind, type in _DECIDED.items())
    by_person = sum(line.fields.get("reason") == decisions.PAUSED_BY_PERSON for line in found.control.lines)
    more += max(0, written.ordered_pauses - by_person)
    if more:
        yield more, layout.EVENTS
    at, error = manifest.get("completed_at"), manifest.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(at, str) or code == errors.JournalCorrupt.default_code:
        return
    # An ending that a resume revoked is still in the journal.
    if all(str(line.fields.get("at")) < at for line in found.control.lines):
        yield 1, f"{layout.MANIFEST} (completed at {at:.40})"


def _manifest(files: Disk, run_id: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        manifest = json.loads(files.read(f"{layout.run_folder(run_id)}/{layout.MANIFEST}"))
        return manifest if isinstance(manifest, dict) else {}
    return {}


def _written(files: Disk, run_id: str) -> Written:
    try:
        content = files.read(f"{layout.run_folder(run_id)}/{layout.EVENTS}")
    except OSError:
        content = b""
    return events_file.written(content)
