"""Kept runs: caches the content of runs that were set aside, so that only later lines are read again.

Journals only grow, so a run that is locked again still has its earlier lines, and each further line is sealed to the
one before. A run that does not match is read as a whole, as after a crash.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from app.domain import decisions
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk, Lock
from app.storage.journal import chain
from app.storage.journal.chain import Integrity, Reading
from app.storage.runs import authority, events_file, opening, receipts
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written
from app.storage.runs.opened_run import JournalPosition, OpenedRun
from app.storage.runs.opening import FoundRun
from app.storage.storage_context import StorageContext

_REJUDGED = (decisions.DecisionKind.ENDED, decisions.DecisionKind.RESUMED)


@dataclass(slots=True, kw_only=True, eq=False)
class KeptRun:
    """A run as it was last opened, with the position up to which this process has written it."""

    authority: Authority
    """Authority at that time; its decisions are those at the end of this process's lines."""
    written: Written  # Events at that time.
    events_end: int  # Length of events.jsonl at that time.
    receipt_ids: frozenset[str]  # Receipts in their session's file at that time.
    position: JournalPosition | None = None  # Position at which this process has set it aside; None while it is open.


class KeptRuns:
    """The runs that were opened last, up to a total number of lines, which is 0 by default."""

    def __init__(self) -> None:
        self.most_lines = 0
        """Most lines of all kept runs together."""
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()

    def begin(self, found: FoundRun, files: Disk) -> None:
        """Keep a run that was just opened."""
        opened, run_id = found.opened, found.opened.authority.run_id
        if not self.most_lines or opened.missing is not None:
            return
        path = f"{layout.run_folder(run_id)}/{layout.EVENTS}"
        self._runs[run_id] = KeptRun(
            authority=opened.authority,
            written=opened.written,
            events_end=files.size(path) if files.has_file(path) else 0,
            receipt_ids=opened.receipt_ids,
        )
        self._runs.move_to_end(run_id)
        while sum(_lines(run) for run in self._runs.values()) > self.most_lines:
            self._runs.popitem(last=False)

    def set_aside(self, run_id: str, position: JournalPosition | None) -> None:
        """Record the position up to which an open run was written; None: unknown."""
        kept = self._runs.get(run_id)
        if kept is not None and position is None:
            del self._runs[run_id]
        elif kept is not None:
            kept.position = position

    def pop(self, run_id: str) -> KeptRun | None:
        """Remove and return a run that was set aside."""
        kept = self._runs.pop(run_id, None)
        return kept if kept is not None and kept.position is not None else None


def reopen(context: StorageContext, kept: KeptRun, lock: Lock) -> FoundRun | None:
    """Return the content of a run that is locked again; None if it must be read completely."""
    former, position = kept.authority, kept.position
    assert position is not None
    folder = layout.run_folder(former.run_id)
    control = _read_on(context.disk, f"{folder}/{layout.CONTROL}", former.control, position.control)
    steps = _read_on(context.disk, f"{folder}/{layout.STEPS}", former.steps, position.steps)
    if control is None or steps is None:
        return None
    fresh = control.lines[len(former.control.lines) :]
    if any(line.fields["kind"] in _REJUDGED for line in fresh):
        return None
    found = authority.continued(former, steps, control, position.control)
    if found is None or any(authority.missing_blobs(context.disk, found, len(former.records))):
        return None
    return _opening(context, kept, found, lock)


def _lines(run: KeptRun) -> int:
    return len(run.authority.steps.lines) + len(run.authority.control.lines)


def _read_on(files: Disk, path: str, former: Reading, count: int) -> Reading | None:
    try:
        if files.size(path) < former.end:
            return None
        reading = chain.read(files.read(path, former.end), former.anchor, former)
        if len(reading.lines) > count:
            # Another process has written, and may have died before its lines were on the disk.
            reading = chain.read(files.read_synced(path, former.end), former.anchor, former)
    except (FileNotFoundError, NotADirectoryError):
        return None
    whole = reading.integrity is Integrity.WHOLE and len(reading.lines) >= count
    return reading if whole else None


def _opening(context: StorageContext, kept: KeptRun, found: Authority, lock: Lock) -> FoundRun:
    written = _written(context.disk, kept)
    new = found.records[len(kept.authority.records) :]
    executions = [record for record in new if record.receipt_id is not None]
    wanted = {str(record.receipt_id) for record in executions} - kept.receipt_ids
    places = receipts.find(context.disk, found.start.session_id, wanted) if wanted else {}
    return FoundRun(
        opened=OpenedRun(
            authority=found,
            lock=lock,
            written=written,
            receipt_ids=kept.receipt_ids | places.keys() if places else kept.receipt_ids,
        ),
        untold=opening.untold(found, written, len(kept.authority.records), len(kept.authority.control.lines)),
        places=list(places.values()),
        without_receipt=[record for record in executions if record.receipt_id not in places],
    )


def _written(files: Disk, kept: KeptRun) -> Written:
    path = f"{layout.run_folder(kept.authority.run_id)}/{layout.EVENTS}"
    if disk_port.mend(files, path) < kept.events_end:
        return events_file.read_written(files, kept.authority.run_id)
    return kept.written.followed_by(events_file.written(files.read(path, kept.events_end)))
