"""The authority of a run: reads start.json and the two journals, and checks them against each other."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from app import errors
from app.domain import decisions, events, plain, records, runs
from app.engine import missing_lines, stores
from app.storage import layout
from app.storage.disk.disk_port import Disk, Lock, SyncRefused
from app.storage.journal import chain, damage
from app.storage.journal.chain import Integrity, Reading
from app.storage.runs import blobs, events_file

_MOST_READS = 10
_UNMOVED = (decisions.DecisionKind.LABELLED, decisions.DecisionKind.LATE)

_KINDS: Mapping[Any, tuple[str, ...]] = {
    str: ("run_id", "recipe_id", "dialect", "created_at", "description", "session_id", "working_dir", "owner"),
    dict: ("recipe", "frozen", "args", "options", "labels"),
    int: ("driver_version", "priority", "depth", "exclusive_workspace", "adopted"),
    (str, NoneType): ("idempotency_key", "request_sha256", "parent_run_id", "data_directory_id", "folder"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damaged place."""

    file: str  # File within the run's folder.
    line: int | None  # Number of the line, from 1; None: the file as a whole.
    reason: str  # The flaw, worded to continue a sentence after the position.


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The sound content of the three files."""

    run_id: str  # Name of the folder.
    start: runs.RunStart  # start.json as written.
    steps: Reading  # steps.jsonl.
    control: Reading  # control.jsonl.
    records: list[records.Record]  # Sound lines of steps.jsonl as values.
    decisions: decisions.Decisions  # The state after the sound lines of control.jsonl.
    damages: tuple[Damage, ...]  # Damage found; torn ends are not damage.

    def loaded(
        self, emitted: frozenset[str] = frozenset(), missing: missing_lines.MissingLines | None = None
    ) -> stores.Loaded:
        """Return the run as the engine reads it.

        Args:
            emitted: Keys of notes whose event exists.
            missing: Lines that the journals are known to lack.

        Raises:
            errors.JournalCorrupt: a file is damaged.
        """
        for found in self.damages:
            raise damage.corrupt(self.run_id, found.file, found.reason, found.line)
        try:
            start = self.start.overridden(self.decisions.overrides)
        except TypeError as error:
            raise damage.corrupt(self.run_id, layout.CONTROL, f"overrides unknown facts ({error})") from error
        return stores.Loaded(
            start=start, records=self.records, decisions=self.decisions, emitted=emitted, missing=missing
        )

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the lengths of the two journals."""
        return self.steps.size, self.control.size

    @property
    def anchor(self) -> str:
        """Return the hash that the first line of each journal contains."""
        return self.steps.anchor


def lock_run(files: Disk, run_id: str) -> Lock:
    """Lock a run's folder against other writers.

    Raises:
        errors.NotFound: the folder does not exist.
        errors.Conflict: `run_busy`, another process holds it.
    """
    try:
        lock = files.lock(layout.run_folder(run_id))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.no_run(run_id) from error
    if lock is None:
        message = f"run {run_id} is being written by another process"
        raise errors.Conflict(message, code="run_busy", detail={"run_id": run_id})
    return lock


def read(disk: Disk, run_id: str, *, synced: bool = False, deep: bool = False) -> Authority:
    """Read a run's authority; damage counts only if a second read finds the same.

    Args:
        synced: Whether the journals are synced and read from the disk itself, before further lines are written.
        deep: Whether blobs are hashed too.

    Raises:
        errors.NotFound: the folder or start.json does not exist.
        errors.JournalCorrupt: start.json cannot be read.
        SyncRefused: the journals could not be synced.
    """
    found = _read_once(disk, run_id, synced=synced, deep=deep)
    for _ in range(_MOST_READS):
        if not found.damages:
            break
        # A reader does not exclude writers, so it may see the two journals at different moments.
        before, found = found, _read_once(disk, run_id, synced=synced, deep=deep)
        if before.sizes == found.sizes:
            break
    return found


def _read_once(disk: Disk, run_id: str, *, synced: bool, deep: bool) -> Authority:
    folder = layout.run_folder(run_id)
    start, content = read_start(disk, run_id)
    anchor = plain.labelled_sha256(content)
    get = disk.read_synced if synced else disk.read
    found = judge(
        run_id,
        start,
        _journal(get, f"{folder}/{layout.STEPS}", anchor),
        _journal(get, f"{folder}/{layout.CONTROL}", anchor),
    )
    if not deep:
        return found
    return dataclasses.replace(found, damages=(*found.damages, *missing_blobs(disk, found)))


def judge(run_id: str, start: runs.RunStart, steps: Reading, control: Reading) -> Authority:
    """Parse two journals and check them against each other."""
    steps, found = _records(steps)
    control, decided, endings = _decisions(control)
    return Authority(
        run_id=run_id,
        start=start,
        steps=steps,
        control=control,
        records=found,
        decisions=decided,
        damages=(
            *_judged(layout.STEPS, steps),
            *_judged(layout.CONTROL, control),
            *_against_endings(steps, decided, endings),
        ),
    )


def continued(former: Authority, steps: Reading, control: Reading, folded: int) -> Authority | None:
    """Return a run whose journals have grown, with its decisions updated in place; None if it must be read as a whole.

    Args:
        folded: Number of control lines that its decisions contain.
    """
    known = former.records
    try:
        new = [records.read(len(known) + count, line.fields) for count, line in enumerate(steps.lines[len(known) :])]
        for line in control.lines[folded:]:
            former.decisions.apply(line.fields)
            check_types(former.decisions)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    if (new and not output_fits(new[-1])) or former.decisions.known_lines > len(steps.lines):
        return None
    return dataclasses.replace(former, steps=steps, control=control, records=[*known, *new])


def read_start(disk: Disk, run_id: str) -> tuple[runs.RunStart, bytes]:
    """Read start.json.

    Raises:
        errors.NotFound: it does not exist.
        errors.JournalCorrupt: it cannot be understood, or is missing in a folder that was a run.
    """
    try:
        content = disk.read(f"{layout.run_folder(run_id)}/{layout.START}")
    except (FileNotFoundError, NotADirectoryError) as error:
        refuse_lost_start(disk, run_id)
        raise errors.no_run(run_id) from error
    except OSError as error:
        raise damage.corrupt(run_id, layout.START, f"cannot be loaded as a file ({error.strerror})") from error
    try:
        return _start(json.loads(content)), content
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damage.corrupt(run_id, layout.START, f"cannot be understood ({type(error).__name__}: {error})") from error


def refuse_lost_start(disk: Disk, run_id: str) -> None:
    """Check that a folder without start.json was never a run of this program, whose steps would run again.

    The rest of an interrupted adoption is not a run yet: lines of adopted steps, and an ending or a pause.

    Raises:
        errors.JournalCorrupt: it was one.
    """
    folder = layout.run_folder(run_id)
    steps, control = (chain.sound_fields(_content(disk, f"{folder}/{name}")) for name in (layout.STEPS, layout.CONTROL))
    resting = (decisions.DecisionKind.ENDED, decisions.DecisionKind.PAUSED)
    content = _content(disk, f"{folder}/{layout.EVENTS}") if disk.has_file(f"{folder}/{layout.CONTROL}") else b""
    ours = (
        any(fields.get("operation") != {"hash": records.ADOPTED} for fields in steps)
        or any(fields.get("kind") not in resting for fields in control)
        or any(event.type == events.EventType.RUN_CREATED for event in events_file.parse(content))
    )
    if ours:
        reason = "is missing beside journals of this run; put it back from a copy, or delete the run"
        raise damage.corrupt(run_id, layout.START, reason)


def _content(disk: Disk, path: str) -> bytes:
    with contextlib.suppress(OSError):
        return disk.read(path)
    return b""


def _start(value: Any) -> runs.RunStart:
    if not isinstance(value, dict):
        raise TypeError("is not an object")
    start = runs.RunStart.from_json(value)
    for kind, names in _KINDS.items():
        for name in names:
            if not isinstance(getattr(start, name), kind):
                raise TypeError(f"{name} is of the wrong kind")
    if not all(isinstance(label, str) for label in start.labels.values()):
        raise TypeError("labels are of the wrong kind")
    return start


def _journal(get: Any, path: str, anchor: str) -> Reading:
    try:
        return chain.read(get(path), anchor)
    except SyncRefused:
        # The disk fails now, which does not prove damage.
        raise
    except (FileNotFoundError, NotADirectoryError):
        reason = "is missing"
    except OSError as error:
        reason = f"cannot be loaded as a file ({error.strerror})"
    return Reading(lines=[], anchor=anchor, size=0, integrity=Integrity.DAMAGED, reason=reason)


def _records(reading: Reading) -> tuple[Reading, list[records.Record]]:
    found: list[records.Record] = []
    for line in reading.lines:
        try:
            found.append(records.read(len(found), line.fields))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            reason = f"is not a step ({type(error).__name__}: {error})"
            return reading.first(len(found), Integrity.DAMAGED, reason), found
    if found and not output_fits(found[-1]):
        del found[-1]
        return reading.first(len(found), Integrity.TORN, "has an output that does not match its output_hash"), found
    return reading, found


def output_fits(record: records.Record) -> bool:
    """Return whether the output of a line has the recorded hash."""
    if record.output is None or record.output_sha256 is None:
        return True
    return plain.sha256(plain.content(record.output)) == record.output_sha256


def _decisions(reading: Reading) -> tuple[Reading, decisions.Decisions, list[decisions.Ended]]:
    decided = decisions.Decisions()
    endings: list[decisions.Ended] = []
    for count, line in enumerate(reading.lines):
        try:
            decided.apply(line.fields)
            if decisions.gives_up(line.fields):
                endings.clear()
            # Labels and late results do not move a run, and labels may change before the run begins.
            ended = decided.ended if line.fields["kind"] in _UNMOVED else check_types(decided)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            reason = f"is not a decision ({type(error).__name__}: {error})"
            good = decisions.fold(line.fields for line in reading.lines[:count])
            return reading.first(count, Integrity.DAMAGED, reason), good, endings
        if ended is not None and (not endings or endings[-1] is not ended):
            endings.append(ended)
    return reading, decided, endings


def check_types(decided: decisions.Decisions) -> decisions.Ended | None:
    """Check the types in some decisions, and return the ending of the run, if it has one.

    Raises:
        TypeError: a value is of the wrong type.
    """
    ended, error = decided.ended, decided.ended.error if decided.ended else decided.pause_error
    texts: tuple[object, ...] = (decided.last_at, *((ended.head, ended.at) if ended else ()))
    count: object = ended.lines if ended else 0
    if not (all(isinstance(text, str) for text in texts) and isinstance(count, int)):
        raise TypeError("a fact is of the wrong kind")
    if not isinstance(error, Mapping | NoneType):
        raise TypeError("its error is of the wrong kind")
    return ended


def _judged(file: str, reading: Reading) -> Iterator[Damage]:
    if reading.integrity is Integrity.DAMAGED:
        whole = reading.size == 0
        yield Damage(file=file, line=None if whole else len(reading.lines) + 1, reason=reading.reason)


def _against_endings(steps: Reading, decided: decisions.Decisions, endings: list[decisions.Ended]) -> Iterator[Damage]:
    # After a resume the journal continues, so an older ending proves only its beginning.
    if steps.integrity is Integrity.DAMAGED:
        return
    for ended in endings:
        count, last = len(steps.lines), ended is decided.ended
        if count < ended.lines and not last:
            # The run is to continue, and is parked because its journal is known to lack lines.
            continue
        if count < ended.lines or (last and count > ended.lines):
            reason = f"has {count} good lines, but the run ended with {ended.lines}"
            yield Damage(file=layout.STEPS, line=min(count, ended.lines) + 1, reason=reason)
        elif ended.head != (steps.lines[ended.lines - 1].digest if ended.lines else steps.anchor):
            yield Damage(file=layout.STEPS, line=ended.lines, reason="is not the line that the run ended with")


def missing_blobs(disk: Disk, found: Authority, first: int = 0) -> Iterator[Damage]:
    """Yield the blobs of lines, from a position on, that are missing or have other content."""
    run_id, folder = found.run_id, layout.run_folder(found.run_id)
    for record in found.records[first:]:
        try:
            flaws = [blobs.flaw(disk, run_id, folder, blob) for blob in record.blobs()]
        except (KeyError, TypeError) as error:
            flaws = [f"refers to no blob ({type(error).__name__}: {error})"]
        for reason in filter(None, flaws):
            yield Damage(file=layout.STEPS, line=record.position + 1, reason=reason)
