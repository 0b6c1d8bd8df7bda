"""Recovery from the commit log: restores data that a power cut took from runs' own files, before any other read.

If the machine was up all the time, every file contains all that was written to it, and nothing is restored: changes and
deletions by a person remain. An unfinished run whose journal still lacks known lines is parked.
"""

# Why: docs/decisions/0074.

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app import errors
from app.domain import decisions, plain
from app.engine import missing_lines
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.journal import chain, commit_records
from app.storage.journal.chain import Integrity
from app.storage.journal.commit_records import Record
from app.storage.runs import authority, deletion

_Read: TypeAlias = Callable[[str], bytes]
_JOURNALS = (layout.STEPS, layout.CONTROL)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Result of a recovery."""

    segments: tuple[str, ...] = ()  # Segments that are not needed any more.
    suspects: frozenset[str] = frozenset()
    """Runs that may have lost more than their journals: their projections must be rebuilt."""
    parked: frozenset[str] = frozenset()
    """Runs that wait for a person, since the log knows of lines that cannot be restored."""
    unread: Mapping[str, errors.Unreadable] = field(default_factory=dict)
    """Runs with a file that cannot be read now, so that they are incomplete; the log is kept for them."""


@dataclass(slots=True, eq=False)
class _LoggedRun:
    is_needed: bool = False  # Whether its files may lack what the log has: the machine was restarted, or a sync failed.
    unread: errors.Unreadable | None = None  # Why a file of it cannot be read now.
    kept: bool = False  # Whether a sync failed, so that content in the kernel's memory does not count.
    start: bytes | None = None  # Its start.json in the log.
    journals: dict[str, list[Record]] = field(default_factory=dict)  # Parts of its journals in the log, by file.


def recover(files: Disk, reach: Callable[[str], None], now: str) -> Recovered:
    """Complete the files of every run that the log mentions, and sync them.

    Args:
        now: The time for new lines.

    Raises:
        OSError: the log or a file could not be read, written or synced.
    """
    segments = segments_of(files)
    if not segments:
        return Recovered()
    try:
        logged = _restored(files, segments, reach)
        _sync(files, segments, reach)
    except OSError:
        segments = _keep(files, segments)
        # The kernel may have dropped data that it could not write: from here on only the log is trusted.
        logged = _restored(files, segments, reach)
        _sync(files, segments, reach)
    parked = frozenset(run_id for run_id, found in logged.items() if _parks(files, run_id, found, now))
    unread = any(found.unread for found in logged.values())
    return Recovered(
        segments=() if unread else tuple(segments),
        suspects=frozenset(run_id for run_id, found in logged.items() if found.is_needed),
        parked=parked,
        unread={run_id: found.unread for run_id, found in logged.items() if found.unread and found.is_needed},
    )


def restore(files: Disk, run_id: str, now: str) -> None:
    """Complete the files of a run that could not be read at the start, and that no one has read or written since.

    Raises:
        errors.Unreadable: a file of the run or of the log cannot be read yet.
    """
    found = _logged_in(files, segments_of(files)).get(run_id)
    if found is None:
        return
    _restore(files, run_id, found, deleted=run_id in deletion.put_away_ids(files))
    if files.has_folder(layout.run_folder(run_id)):
        files.sync_folder(layout.run_folder(run_id))
        files.sync_folder(layout.RUNS)
        _parks(files, run_id, found, now)


def drop(files: Disk, segments: Iterable[str], reach: Callable[[str], None]) -> None:
    """Remove segments that are not needed any more.

    Raises:
        OSError: they could not be removed.
    """
    for segment in segments:
        reach("storage.commit.before_drop")
        files.remove(segment)
    files.sync_folder(layout.COMMITS)


def segments_of(files: Disk) -> list[str]:
    """Return the segments of the log, the oldest first."""
    names = sorted(filter(commit_records.number, files.names(layout.COMMITS)), key=commit_records.number)
    return [f"{layout.COMMITS}/{name}" for name in names]


def _keep(files: Disk, segments: list[str]) -> list[str]:
    for segment in segments:
        if not commit_records.is_kept(segment):
            files.rename(segment, commit_records.kept(segment))
    files.sync_folder(layout.COMMITS)
    return segments_of(files)


def _restored(files: Disk, segments: list[str], reach: Callable[[str], None]) -> dict[str, _LoggedRun]:
    logged = _logged_in(files, segments)
    needed = {run_id: found for run_id, found in logged.items() if found.is_needed}
    deleted = deletion.put_away_ids(files) if needed else frozenset()
    for run_id, found in needed.items():
        reach("storage.commit.before_restore")
        try:
            _restore(files, run_id, found, deleted=run_id in deleted)
        except errors.Unreadable as fault:
            found.unread = fault
    return logged


def _logged_in(files: Disk, segments: list[str]) -> dict[str, _LoggedRun]:
    logged: dict[str, _LoggedRun] = {}
    # If the sync of one file failed, any other may have failed, including files of later segments.
    kept = any(map(commit_records.is_kept, segments))
    for segment in list(segments):
        content = files.read(segment)
        boot_id, records = commit_records.read(content)
        if boot_id is None and content:
            _put_aside(files, segment)
            segments.remove(segment)
        is_needed = kept or not boot_id or boot_id != files.boot_id()
        _sort(records, logged, kept=kept, is_needed=is_needed)
    return logged


def _put_aside(files: Disk, segment: str) -> None:
    files.rename(segment, commit_records.unread(segment))
    _log.error("a segment of the commit log cannot be read, and is kept as %s", commit_records.unread(segment))


def _sort(records: list[Record], logged: dict[str, _LoggedRun], *, kept: bool, is_needed: bool) -> None:
    for record in records:
        run = logged.setdefault(record.run_id, _LoggedRun())
        run.kept = run.kept or kept
        run.is_needed = run.is_needed or is_needed
        folder = layout.run_folder(record.run_id)
        if record.path == f"{folder}/{layout.START}":
            run.start = record.content
        for name in _JOURNALS:
            if record.path == f"{folder}/{name}":
                run.journals.setdefault(name, []).append(record)


def _restore(files: Disk, run_id: str, logged: _LoggedRun, *, deleted: bool) -> None:
    folder = layout.run_folder(run_id)
    if deleted and not files.has_folder(folder):
        return
    read = files.read_synced if logged.kept else files.read
    if logged.start is not None:
        _restore_start(files, folder, logged.start, read)
    if not files.has_file(f"{folder}/{layout.START}"):
        _log.error("the folder of run %s is gone, and cannot be made again", run_id)
        return
    anchor = plain.labelled_sha256(files.read(f"{folder}/{layout.START}"))
    for name in _JOURNALS:
        _restore_journal(files, f"{folder}/{name}", anchor, logged.journals.get(name, []), read)


def _restore_start(files: Disk, folder: str, content: bytes, read: _Read) -> None:
    files.add_folder(folder)
    path = f"{folder}/{layout.START}"
    if not files.has_file(path) or read(path) != content:
        _log.warning("%s was restored from the commit log", path)
        files.write(path, content, sync=True)
    for name in _JOURNALS:
        if not files.has_file(f"{folder}/{name}"):
            files.write(f"{folder}/{name}", b"", sync=True)


def _restore_journal(files: Disk, path: str, anchor: str, records: list[Record], read: _Read) -> None:
    if not records:
        return
    content = b""
    with contextlib.suppress(FileNotFoundError):
        content = read(path)
    end = chain.read(content, anchor).end
    whole = content[:end]
    for record in records:
        # Only lines that continue from the file's own sound end; existing lines are kept.
        if record.offset <= len(whole) < record.offset + len(record.content):
            there = len(whole) - record.offset
            if whole[record.offset :] == record.content[:there]:
                whole += record.content[there:]
    if len(whole) == end:
        return
    good = chain.read(whole, anchor)
    if good.integrity is not Integrity.WHOLE:
        _log.error("the commit log does not continue from the end of %s: a line there %s", path, good.reason)
    whole = whole[: good.end]
    # The opening of the run judges the lines later.
    disk_port.replace(files, path, whole + content[len(whole) :], sync=True)
    _log.warning("%s was completed from the commit log: %d bytes", path, len(whole) - end)


def _parks(files: Disk, run_id: str, logged: _LoggedRun, now: str) -> bool:
    folder = layout.run_folder(run_id)
    for name, records in logged.journals.items() if logged.unread is None else ():
        path, known = f"{folder}/{name}", max(record.offset + len(record.content) for record in records)
        with contextlib.suppress(FileNotFoundError, errors.NotFound, errors.JournalCorrupt):
            try:
                if files.size(path) < known:
                    return _park(files, run_id, name, records, now)
            except errors.Unreadable as fault:
                logged.unread = fault
    return False


def _park(files: Disk, run_id: str, name: str, records: list[Record], now: str) -> bool:
    found = authority.read(files, run_id)
    journal = found.steps if name == layout.STEPS else found.control
    if found.damages or found.decisions.ended is not None or found.decisions.cancel_requested_at is not None:
        return False
    have = len(journal.lines)
    more = sum(record.content.count(b"\n") for record in records if record.offset >= journal.end)
    missing = missing_lines.MissingLines(
        file=name, lines=have, known_lines=have + more, told_by=f"the commit log in {layout.COMMITS}/"
    )
    error = missing.error(run_id)
    line = {
        "kind": decisions.DecisionKind.PAUSED.value,
        "at": now,
        "lines": len(found.steps.lines),
        "reason": decisions.LINES_MISSING,
        "error": error.to_json(),
    }
    control = f"{layout.run_folder(run_id)}/{layout.CONTROL}"
    sealed = chain.seal(plain.encode(line), batch=len(found.control.lines), prev=found.control.head)
    disk_port.replace(files, control, files.read(control)[: found.control.end] + sealed.content, sync=True)
    _log.error("run parked: %s", error.message, extra={"run_id": run_id, "code": error.code})
    return True


def _sync(files: Disk, segments: list[str], reach: Callable[[str], None]) -> None:
    reach("storage.commit.before_checkpoint")
    syncer = files.syncer(layout.FOLDERS)
    try:
        syncer.sync(lambda: _mentioned(files, segments))
    finally:
        syncer.close()


def _mentioned(files: Disk, segments: list[str]) -> list[str]:
    runs = {record.run_id for segment in segments for record in commit_records.read(files.read(segment))[1]}
    return [layout.RUNS, layout.SESSIONS, *(path for run_id in sorted(runs) for path in _of_run(files, run_id))]


def _of_run(files: Disk, run_id: str) -> Iterator[str]:
    folder = layout.run_folder(run_id)
    yield from (f"{folder}/{name}" for name in files.names(folder))
    yield folder
    with contextlib.suppress(errors.NotFound, errors.JournalCorrupt, errors.Unreadable):
        session_id = authority.read_start(files, run_id)[0].session_id
        yield from (layout.receipts_file(session_id), layout.session_folder(session_id))
