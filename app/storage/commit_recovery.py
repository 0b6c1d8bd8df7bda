"""
Recovery from the commit log: what a power cut took from runs' own files is put back before anybody reads them.

As long as the machine was up all the time, every file holds what was written to it, and nothing is put back: whatever a
person has changed or deleted meanwhile stays so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from app.engine import plain
from app.storage import chain, commit_records, layout
from app.storage.chain import Verdict
from app.storage.commit_records import Record
from app.storage.disk import Disk

_JOURNALS = (layout.STEPS, layout.CONTROL)

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Told:
    start: bytes | None = None
    journals: dict[str, list[Record]] = field(default_factory=dict)


def recover(disk: Disk, reach: Callable[[str], None]) -> frozenset[str]:
    """
    Complete the files of every run that the log mentions, sync them, and drop the log.

    Returns:
        Runs that may have lost more than their journals, if the power was cut: what is shown of them must be made anew.

    Raises:
        OSError: the log or a file could not be read, written or synced; the log stays.
    """
    names = sorted(filter(commit_records.number, disk.names(layout.COMMITS)), key=commit_records.number)
    if not names:
        return frozenset()
    segments = [f"{layout.COMMITS}/{name}" for name in names]
    told: dict[str, _Told] = {}
    mentioned: set[str] = set()
    for segment in segments:
        boot_id, records = commit_records.read(disk.read(segment))
        mentioned.update(record.run_id for record in records)
        if boot_id != disk.boot_id() or not boot_id or commit_records.is_kept(segment):
            _sort(records, told)
    for run_id, found in told.items():
        reach("storage.commit.before_restore")
        _restore(disk, run_id, found)
    _drop(disk, segments, mentioned, reach)
    return frozenset(told)


def _sort(records: list[Record], told: dict[str, _Told]) -> None:
    for record in records:
        run = told.setdefault(record.run_id, _Told())
        folder = layout.run_folder(record.run_id)
        if record.path == f"{folder}/{layout.START}":
            run.start = record.content
        for name in _JOURNALS:
            if record.path == f"{folder}/{name}":
                run.journals.setdefault(name, []).append(record)


def _restore(disk: Disk, run_id: str, told: _Told) -> None:
    folder = layout.run_folder(run_id)
    if told.start is not None:
        _restore_start(disk, folder, told.start)
    if not disk.has_file(f"{folder}/{layout.START}"):
        _log.error("a run's folder is gone, and cannot be made again", extra={"run_id": run_id})
        return
    anchor = plain.labelled_sha256(disk.read(f"{folder}/{layout.START}"))
    for name in _JOURNALS:
        _restore_journal(disk, f"{folder}/{name}", anchor, told.journals.get(name, []))


def _restore_start(disk: Disk, folder: str, content: bytes) -> None:
    disk.add_folder(folder)
    path = f"{folder}/{layout.START}"
    if not disk.has_file(path) or disk.read(path) != content:
        disk.write(path, content, sync=True)
    for name in _JOURNALS:
        if not disk.has_file(f"{folder}/{name}"):
            disk.write(f"{folder}/{name}", b"", sync=True)


def _restore_journal(disk: Disk, path: str, anchor: str, records: list[Record]) -> None:
    content = b""
    with contextlib.suppress(FileNotFoundError):
        content = disk.read(path)
    end = chain.read(content, anchor).end
    whole = content[:end]
    for record in records:
        # Only what goes on from the file's own good end; what is there already counts as it is.
        if record.offset <= len(whole) < record.offset + len(record.content):
            kept = len(whole) - record.offset
            if whole[record.offset :] == record.content[:kept]:
                whole += record.content[kept:]
    if len(whole) == end:
        return
    if chain.read(whole, anchor).verdict is not Verdict.WHOLE:
        _log.error("the commit log does not go on from the end of %s", path)
        return
    disk.cut(path, end)
    file = disk.append_to(path)
    try:
        file.write(whole[end:])
        file.sync()
    finally:
        file.close()
    _log.warning("%s was completed from the commit log: %d bytes", path, len(whole) - end)


def _drop(disk: Disk, segments: list[str], mentioned: set[str], reach: Callable[[str], None]) -> None:
    folders = [folder for folder in map(layout.run_folder, sorted(mentioned)) if disk.has_folder(folder)]
    names = [f"{folder}/{name}" for folder in folders for name in disk.names(folder)]
    reach("storage.commit.before_settle")
    syncer = disk.syncer()
    try:
        syncer.sync(lambda: [*names, *folders, layout.RUNS])
    finally:
        syncer.close()
    for segment in segments:
        reach("storage.commit.before_drop")
        disk.remove(segment)
    disk.sync_folder(layout.COMMITS)
