"""Sizes: how many bytes the folders of runs have."""

from __future__ import annotations

from collections.abc import Iterable

from app import errors
from app.storage import layout
from app.storage.disk.disk_port import Disk

_DEEPEST = 32


def of_runs(files: Disk, run_ids: Iterable[str]) -> dict[str, int]:
    """Return the size of each folder; those that are gone or cannot be read are left out."""
    found = {}
    for run_id in run_ids:
        try:
            found[run_id] = _size(files, layout.run_folder(run_id), _DEEPEST)
        except (OSError, errors.Unreadable, errors.NotFound):
            continue
    return found


def _size(files: Disk, path: str, depth: int) -> int:
    if depth and files.has_folder(path):
        return sum(_size(files, f"{path}/{name}", depth - 1) for name in files.names(path))
    # A file may be replaced meanwhile, and links lead elsewhere.
    return files.size(path) if files.has_file(path) else 0
