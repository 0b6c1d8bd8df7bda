"""Inheritance: writes the finished steps that a fork begins with into its folder while it is built aside."""

from __future__ import annotations

from collections.abc import Callable

from app.domain import plain
from app.engine import stores
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.journal import chain
from app.storage.runs import blobs


def write(files: Disk, folder: str, start: bytes, taken_over: stores.TakenOver, reach: Callable[[str], None]) -> None:
    """Write a journal of the inherited steps, sealed to a new start.json, and copies of their blobs.

    Raises:
        errors.JournalCorrupt: a blob of the source is missing or does not match its name.
        OSError: the disk refuses.
    """
    source = layout.run_folder(taken_over.source)
    wanted = {blob.sha256: blob for blob in taken_over.blobs}
    if wanted:
        files.add_folder(f"{folder}/{blobs.FOLDER}")
    for name, blob in wanted.items():
        content = blobs.get(files, taken_over.source, source, blob)
        reach("storage.inherit.before_blob")
        files.write(f"{folder}/{blobs.FOLDER}/{name}", content, sync=True)
    if wanted:
        files.sync_folder(f"{folder}/{blobs.FOLDER}")
    lines, _ = chain.sealed(taken_over.lines, plain.labelled_sha256(start))
    reach("storage.inherit.before_steps")
    files.write(f"{folder}/{layout.STEPS}", lines, sync=True)
    reach("storage.inherit.after_steps")
