"""Opening: reads and repairs a run's folder before the first write."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.domain import decisions, plain, records
from app.domain.authors import RunOrder
from app.domain.events import Event, EventType
from app.engine import journal_lines
from app.storage import layout
from app.storage.disk.disk_port import Disk, Lock
from app.storage.index.index_port import ReceiptPlace
from app.storage.journal.chain import Integrity, Reading
from app.storage.runs import authority, census, creation, events_file, missing_lines, receipts
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written
from app.storage.runs.opened_run import JournalPosition, OpenedRun
from app.storage.storage_context import StorageContext

_ORDERED = "ordered"
_LARGEST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A folder prepared for writing."""

    opened: OpenedRun  # The opened run.
    untold: list[Event]  # Events to add; an event that has no number yet has 0.
    places: list[ReceiptPlace]  # Receipts found in their session's file.
    without_receipt: list[records.Record]  # Records whose receipt is missing there.
    orders: tuple[RunOrder, ...] = ()
    """Orders that the index may lack, since the process that took them may have died."""
    journal_position: JournalPosition | None = None
    """Position at which this process continues; None: the folder was read as after a crash."""


def is_as_made(files: Disk, made: Authority) -> bool:
    """Return whether a new run's authority has not changed since it was made, so that it need not be read."""
    folder = layout.run_folder(made.run_id)
    try:
        if files.size(f"{folder}/{layout.STEPS}") or files.size(f"{folder}/{layout.CONTROL}"):
            return False
        return plain.labelled_sha256(files.read(f"{folder}/{layout.START}")) == made.anchor
    except (OSError, errors.Unreadable):
        return False


def prepare(context: StorageContext, run_id: str, lock: Lock, *, durable: bool = False) -> FoundRun:
    """Read a locked run, cut off torn ends, and find out what its projections lack.

    Args:
        durable: Whether everything that can be read is known to be on the disk.

    Raises:
        errors.NotFound: start.json does not exist.
        errors.JournalCorrupt: the run is damaged.
    """
    found = authority.read(context.disk, run_id, synced=not durable, deep=True)
    found.loaded()
    if not durable and (found.control.lines or found.steps.lines):
        # A process may have died between a rename and the sync of its folder.
        context.disk.sync_folder(layout.run_folder(run_id))
    cuts = [*_cut(context, run_id, layout.STEPS, found.steps), *_cut(context, run_id, layout.CONTROL, found.control)]
    made = _opening(context, found, lock, cuts)
    lost = missing_lines.find(context.disk, found, made.opened.written)
    opened = dataclasses.replace(made.opened, missing=lost)
    return dataclasses.replace(made, opened=opened, orders=census.orders_of(found))


def reopen(context: StorageContext, run_id: str, lock: Lock, journal_position: JournalPosition) -> FoundRun:
    """Read a locked run that was set aside; if its end has changed, prepare it like any other.

    Raises:
        errors.NotFound, errors.JournalCorrupt: as `prepare`.
    """
    found = authority.read(context.disk, run_id)
    whole = found.steps.integrity is found.control.integrity is Integrity.WHOLE
    if not whole or (len(found.steps.lines), len(found.control.lines)) != (
        journal_position.steps,
        journal_position.control,
    ):
        return prepare(context, run_id, lock)
    return dataclasses.replace(_opening(context, found, lock, []), journal_position=journal_position)


def _opening(context: StorageContext, found: Authority, lock: Lock, cuts: list[Event]) -> FoundRun:
    written = events_file.read_written(context.disk, found.run_id)
    executions = [record for record in found.records if record.receipt_id is not None]
    wanted = {str(record.receipt_id) for record in executions}
    places = receipts.find(context.disk, found.start.session_id, wanted) if wanted else {}
    return FoundRun(
        opened=OpenedRun(authority=found, lock=lock, written=written, receipt_ids=frozenset(places)),
        untold=[*_inserted(context, untold(found, written), written), *cuts],
        places=list(places.values()),
        without_receipt=[record for record in executions if record.receipt_id not in places],
    )


def _inserted(context: StorageContext, missing: list[Event], written: Written) -> list[Event]:
    # A power cut can lose a part of events.jsonl and leave a later part.
    among = [event for event in missing if 0 < event.seq < written.last]
    if among:
        events_file.insert(context.disk, among[0].run_id, among)
    return missing[len(among) :]


def _cut(context: StorageContext, run_id: str, file: str, reading: Reading) -> Iterator[Event]:
    if reading.integrity is Integrity.TORN:
        context.probes.reach("storage.cut.before_cut")
        context.disk.cut(f"{layout.run_folder(run_id)}/{file}", reading.end)
        context.probes.reach("storage.cut.after_cut")
        facts = {"file": file, "at_byte": reading.end, "bytes": reading.size - reading.end}
        at = clock.stamp(context.clock.now())
        yield Event(seq=0, at=at, type=EventType.RECOVERY_TAIL_CUT, run_id=run_id, data=facts)


def _created(found: Authority, written: Written) -> Iterator[Event]:
    if not written.counts.get(EventType.RUN_CREATED):
        event = creation.created(found.start)
        yield dataclasses.replace(event, run_id=found.run_id, seq=0 if event.seq in written.numbers else event.seq)


def untold(found: Authority, written: Written, first: int = 0, first_decision: int = 0) -> list[Event]:
    """Return the missing events of lines: first those with a number, in order, and then the others.

    Args:
        first: Position of the first step whose events may be missing.
        first_decision: Position of the first decision whose event may be missing.
    """
    steps = (event for record in found.records[first:] for event in _untold_step(found.run_id, record, written))
    missing = [*_created(found, written), *steps, *_untold_decisions(found, written, first_decision)]
    return sorted(missing, key=lambda event: event.seq or math.inf)


def _untold_step(run_id: str, record: records.Record, written: Written) -> Iterator[Event]:
    number = _number(record.line, written)
    if number or record.position not in written.positions:
        made = journal_lines.events(run_id, record, number)
        yield from (event for event in made if not event.seq or event.seq not in written.numbers)


def _untold_decisions(found: Authority, written: Written, first: int) -> Iterator[Event]:
    lines = found.control.lines
    # Events of lines without a number are counted, from the first line on.
    if not all(_number(line.fields, written) or not _has_event(line.fields, 0) for line in lines[first:]):
        first = 0
    # Lines of earlier releases and ordered pauses have no number that an event could name: of each kind, the newest
    # events are the missing ones.
    counts = Counter(written.counts)
    counts[_ORDERED] = written.ordered_pauses
    counts[EventType.RUN_PAUSED] -= written.ordered_pauses
    unnumbered: list[tuple[str, Event]] = []
    taken = found.decisions.taken - sum(line.fields["kind"] == decisions.DecisionKind.TAKEN for line in lines[first:])
    for line in lines[first:]:
        fields = line.fields
        taken += fields["kind"] == decisions.DecisionKind.TAKEN
        number = _number(fields, written)
        if not _has_event(fields, number):
            continue
        event = decisions.event(found.run_id, fields, taken, number)
        if not number:
            ordered = fields.get("reason") == decisions.PAUSED_BY_PERSON
            unnumbered.append((_ORDERED if ordered else event.type, event))
        elif number not in written.numbers:
            yield event
        else:
            counts[event.type] -= 1
    seen: Counter[str] = Counter()
    for kind, event in unnumbered:
        seen[kind] += 1
        if seen[kind] > counts[kind]:
            yield event


def _has_event(fields: Mapping[str, Any], number: int) -> bool:
    kind = fields["kind"]
    return kind in decisions.EVENTS and (kind != decisions.DecisionKind.STARTED or number > 0)


def _number(line: Mapping[str, Any], written: Written) -> int:
    """Return the number that a line has reserved for its event; 0 if it is missing or unusable."""
    number = line.get("event")
    if type(number) is not int or not 0 < number < _LARGEST or number in written.refused:
        return 0
    return number
