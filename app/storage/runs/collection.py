"""Collection: removes objects that no line of a run names, once they are old enough."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import groupby

from app import errors
from app.engine import maintenance_port
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.objects.bucket import Found
from app.storage.runs import authority, deletion
from app.storage.storage_context import StorageContext

_MOST = 1000
_HASH = re.compile(rb"[0-9a-f]{64}")
_JOURNALS = (layout.STEPS, layout.CONTROL, layout.START)


def collect(
    context: StorageContext, opened: Collection[str], before: datetime, *, dry_run: bool
) -> maintenance_port.Collected:
    """Remove, or count, at most 1,000 objects that no run names and that were written before an instant.

    Args:
        opened: Runs that execute in this process; their objects are kept.

    Raises:
        errors.Unavailable: object storage does not answer.
    """
    counts = maintenance_port.Collected(
        dry_run=dry_run, older_than_seconds=0, objects=0, unnamed=0, size_bytes=0, removed=0, more=False
    )
    if context.objects is None:
        return counts
    bucket = context.objects.bucket
    try:
        for run_id, objects in _by_run(bucket.all(f"{layout.RUNS}/")):
            counts["objects"] += len(objects)
            old = [one for one in objects if one.changed_at < before]
            if not old or run_id in opened:
                continue
            unnamed = _swept(context, run_id, old, most=_MOST - counts["unnamed"], dry_run=dry_run)
            counts["unnamed"] += len(unnamed)
            counts["size_bytes"] += sum(one.size_bytes for one in unnamed)
            if counts["unnamed"] >= _MOST:
                counts["more"] = True
                break
    except OSError as error:
        raise errors.Unavailable(str(error.strerror), code="blobs_away") from error
    return {**counts, "removed": 0 if dry_run else counts["unnamed"]}


def _by_run(objects: Iterable[Found]) -> Iterator[tuple[str, list[Found]]]:
    for run_id, group in groupby(objects, key=lambda one: one.name.split("/")[1]):
        yield run_id, list(group)


def _swept(context: StorageContext, run_id: str, objects: list[Found], *, most: int, dry_run: bool) -> list[Found]:
    assert context.objects is not None
    files = context.disk
    try:
        there = any(map(files.has_folder, (f"{layout.RUNS}/{run_id}", layout.new_folder(run_id))))
        # While this process holds the run's lock, no line that names one of the objects is written.
        lock = authority.lock_run(files, run_id) if there else None
        try:
            unnamed = (_unnamed(files, run_id, objects) if there else objects)[:most]
            if not dry_run:
                context.objects.bucket.remove([one.name for one in unnamed])
            return unnamed
        finally:
            if lock is not None:
                lock.release()
    except (errors.NotFound, errors.Conflict, errors.JournalCorrupt, errors.Unreadable):
        # The objects that the run names are unknown now.
        return []


def _unnamed(files: Disk, run_id: str, objects: list[Found]) -> list[Found]:
    if not deletion.status(files, run_id).finished:
        return []
    folder = layout.run_folder(run_id)
    named: set[bytes] = set()
    # Journals that a repair has set aside count, too.
    for name in files.names(folder):
        if name.startswith(_JOURNALS):
            named |= set(_HASH.findall(files.read(f"{folder}/{name}")))
    prefix = f"{layout.RUNS}/{run_id}/{layout.BLOBS}/"
    return [one for one in objects if one.name.startswith(prefix) and one.name[len(prefix) :].encode() not in named]
