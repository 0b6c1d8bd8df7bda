"""Opening: reads and repairs a run's folder before it is written to."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from app import errors
from app.domain import decisions, events, gates, plain, records, states
from app.domain.authors import RunOrder
from app.storage import layout
from app.storage.disk.disk_port import Disk, Lock
from app.storage.index.index_port import ReceiptPlace
from app.storage.journal import chain
from app.storage.journal.chain import Reading, Verdict
from app.storage.runs import authority, census, events_file, missing_lines, receipts
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written
from app.storage.runs.opened_run import JournalPosition, OpenedRun
from app.storage.storage_context import StorageContext

_TOLD = {
    decisions.DecisionKind.TAKEN: events.EventType.RUN_STARTED,
    decisions.DecisionKind.CANCEL_REQUESTED: events.EventType.RUN_CANCEL_REQUESTED,
    decisions.DecisionKind.PAUSED: events.EventType.RUN_PAUSED,
    decisions.DecisionKind.UNPAUSED: events.EventType.RUN_UNPAUSED,
    decisions.DecisionKind.LIMITED: events.EventType.RUN_LIMITED,
    decisions.DecisionKind.RESUMED: events.EventType.RUN_RESUMED,
    decisions.DecisionKind.ENDED: events.EventType.RUN_ENDED,
    decisions.DecisionKind.LABELLED: events.EventType.RUN_LABELLED,
    decisions.DecisionKind.VOTED: events.EventType.GATE_VOTED,
}
_FIELDS = {
    events.EventType.RUN_CANCEL_REQUESTED: ("author",),
    events.EventType.RUN_PAUSED: ("reason", "error", "author"),
    events.EventType.RUN_UNPAUSED: ("author",),
    events.EventType.RUN_LIMITED: ("limits", "author"),
    events.EventType.RUN_RESUMED: ("dead", "author"),
    events.EventType.RUN_ENDED: ("status", "error", "ending"),
    events.EventType.RUN_LABELLED: ("labels", "pinned", "author"),
    events.EventType.GATE_VOTED: ("gate_id", "decision", "author"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """An event that is missing."""

    type: events.EventType
    """What happened."""
    key: str | None
    """Step it belongs to."""
    data: Mapping[str, plain.Json]
    """Fields of its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A folder made ready for writing."""

    opened: OpenedRun
    """What its log is made from."""
    untold: list[Untold]
    """Events to add, repairs first."""
    places: list[ReceiptPlace]
    """Receipts found in their session's file."""
    unproven: list[records.Record]
    """Records whose receipt is missing there."""
    orders: tuple[RunOrder, ...] = ()
    """Orders that the index may lack, since the process that took them may have died."""
    journal_position: JournalPosition | None = None
    """Where this process continues; None: the folder was read and judged as after a crash."""


def is_as_made(files: Disk, made: Authority) -> bool:
    """Return whether a run's authority is still what it was when the run was made, so that it need not be read and
    judged.
    """
    folder = layout.run_folder(made.run_id)
    try:
        if files.size(f"{folder}/{layout.STEPS}") or files.size(f"{folder}/{layout.CONTROL}"):
            return False
        return plain.labelled_sha256(files.read(f"{folder}/{layout.START}")) == made.anchor
    except (OSError, errors.Unreadable):
        return False


def prepare(context: StorageContext, run_id: str, lock: Lock, *, durable: bool = False) -> FoundRun:
    """Read a run that is held, cut torn ends off, and find out what its projections lack.

    Args:
        durable: Whether the disk is known to hold what can be read.

    Raises:
        errors.NotFound: there is no start.json.
        errors.JournalCorrupt: it is damaged.
    """
    found = authority.read(context.disk, run_id, settled=not durable, deep=True)
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
    """Read a run that is held and was set aside; where it ends otherwise than then, it is prepared like any other.

    Raises:
        errors.NotFound, errors.JournalCorrupt: as `prepare`.
    """
    found = authority.read(context.disk, run_id)
    whole = found.steps.verdict is found.control.verdict is Verdict.WHOLE
    if not whole or (len(found.steps.lines), len(found.control.lines)) != (
        journal_position.steps,
        journal_position.control,
    ):
        return prepare(context, run_id, lock)
    return dataclasses.replace(_opening(context, found, lock, []), journal_position=journal_position)


def _opening(context: StorageContext, found: Authority, lock: Lock, cuts: list[Untold]) -> FoundRun:
    written = events_file.read_written(context.disk, found.run_id)
    proven = [record for record in found.records if record.receipt_id is not None]
    wanted = {str(record.receipt_id) for record in proven}
    places = receipts.find(context.disk, found.start.session_id, wanted) if wanted else {}
    return FoundRun(
        opened=OpenedRun(authority=found, lock=lock, written=written, proven=frozenset(places)),
        untold=[
            *cuts,
            *_created(found, written),
            *untold_steps(found.records, written),
            *untold_decisions(found.control.lines, written),
        ],
        places=list(places.values()),
        unproven=[record for record in proven if record.receipt_id not in places],
    )


def _cut(context: StorageContext, run_id: str, file: str, reading: Reading) -> Iterator[Untold]:
    if reading.verdict is Verdict.TORN:
        context.probes.reach("storage.cut.before_cut")
        context.disk.cut(f"{layout.run_folder(run_id)}/{file}", reading.end)
        context.probes.reach("storage.cut.after_cut")
        told = {"file": file, "at_byte": reading.end, "bytes": reading.size - reading.end}
        yield Untold(type=events.EventType.RECOVERY_TAIL_CUT, key=None, data=told)


def _created(found: Authority, written: Written) -> Iterator[Untold]:
    if not written.counts.get(events.EventType.RUN_CREATED):
        yield Untold(type=events.EventType.RUN_CREATED, key=None, data={"recipe_id": found.start.recipe_id})


def untold_steps(lines: Iterable[records.Record], written: Written) -> Iterator[Untold]:
    """Return the events of lines that are missing."""
    for record in lines:
        if record.position not in written.positions:
            if (answer := gates.answer_in(record)) is not None:
                yield Untold(type=events.EventType.GATE_DECIDED, key=record.key, data=gates.told(answer))
            yield _step(record)


def _step(record: records.Record) -> Untold:
    line = record.line
    told: dict[str, plain.Json] = {"position": record.position, "step_id": line.get("step_id")}
    told |= {"duration_ms": line.get("duration_ms"), "attempt": record.attempt}
    if not record.final:
        told |= {"error": line.get("error"), "retry_at": record.retry_at}
        return Untold(type=events.EventType.STEP_RETRYING, key=record.key, data=told)
    if record.status is states.StepState.FAILED:
        return Untold(type=events.EventType.STEP_FAILED, key=record.key, data=told | {"error": line.get("error")})
    told |= {"status": record.status.value, "preview": record.summary}
    return Untold(type=events.EventType.STEP_FINISHED, key=record.key, data=told)


def untold_decisions(lines: Iterable[chain.Line], written: Written) -> Iterator[Untold]:
    """Return the events of control lines that are missing."""
    # Decisions have no number that events could name: of each kind, the newest are the missing ones.
    seen: Counter[events.EventType] = Counter()
    for line in lines:
        type = _TOLD.get(decisions.DecisionKind(line.fields["kind"]))
        if type is None:
            continue
        seen[type] += 1
        if seen[type] > written.counts.get(type, 0):
            data = {"taken": seen[type]} if type is events.EventType.RUN_STARTED else {}
            yield Untold(
                type=type, key=None, data=data | {name: line.fields.get(name) for name in _FIELDS.get(type, ())}
            )
