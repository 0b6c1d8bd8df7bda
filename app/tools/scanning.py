"""Scans: list the files below an open folder, within limits and in a fixed order."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.domain.workspace_paths import MAX_COMPONENTS
from app.engine import workspace_faults

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one tool's view of a workspace."""

    file_bytes: int = _MEBIBYTE  # Largest file that is read.
    scan_files: int = 2_000  # Most files that one scan lists.
    scan_entries: int = 20_000  # Most folder entries that one scan reads, skipped ones included.
    scan_bytes: int = 16 * _MEBIBYTE
    """Largest total size of the files of one scan, without those too large to be read; further files are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A regular file that a scan has found."""

    path: str  # Path relative to the root, with `/` between its components.
    size_bytes: int  # Its size at the scan.


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The files below a folder, in a fixed order."""

    files: tuple[FoundFile, ...]  # What was found.
    truncated: bool  # Whether a limit ended the scan early.
    closed: tuple[str, ...] = ()  # Folders that may not be read.


def scan(
    folder: int, prefix: str, limits: Limits, hides: Callable[[str, int], bool], wants: Callable[[str], bool]
) -> Scan:
    """List the regular files below a folder; hidden ones, links, and names that are not UTF-8 are left out.

    Args:
        hides: Returns, for a name and the descriptor of its folder, whether the name is reserved.
        wants: Returns, for the name of a file, whether it is listed; other files count only as entries.
    """
    found: list[FoundFile] = []
    closed: list[str] = []
    total_bytes = 0
    for entries, file in enumerate(_walk(folder, prefix, hides, closed), start=1):
        if entries > limits.scan_entries:
            return Scan(files=tuple(found), truncated=True, closed=tuple(closed))
        if file is not None and wants(file.path.rpartition("/")[2]):
            total_bytes += file.size_bytes if file.size_bytes <= limits.file_bytes else 0
            if len(found) >= limits.scan_files or total_bytes > limits.scan_bytes:
                return Scan(files=tuple(found), truncated=True, closed=tuple(closed))
            found.append(file)
    return Scan(files=tuple(found), truncated=False, closed=tuple(closed))


def _walk(top: int, prefix: str, hides: Callable[[str, int], bool], closed: list[str]) -> Iterator[FoundFile | None]:
    """Yield each file below an open folder, and None for each entry that is not listed."""
    start = len(prefix.split("/")) if prefix else 0
    # The descriptor is duplicated by way of ".", since fwalk reopens the folder that it gets.
    for place, folders, names, descriptor in os.fwalk(".", dir_fd=top, onerror=_refuse, follow_symlinks=False):
        below = "" if place == "." else place.removeprefix("./")
        depth = start + below.count("/") + bool(below)
        entered = [name for name in folders if _is_listed(name)] if depth < MAX_COMPONENTS - 1 else []
        folders[:] = sorted(name for name in entered if not hides(name, descriptor))
        closed += ["/".join(filter(None, (prefix, below, name))) for name in folders if _is_closed(name, descriptor)]
        for name in sorted(names):
            status = _status(name, descriptor) if _is_listed(name) else None
            if status is None or not stat.S_ISREG(status.st_mode):
                yield None
            else:
                path = "/".join(part for part in (prefix, below, name) if part)
                yield FoundFile(path=path, size_bytes=status.st_size)


def _is_listed(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not name.startswith(".")


def _is_closed(name: str, folder: int) -> bool:
    try:
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
    return is_folder and not os.access(name, os.R_OK | os.X_OK, dir_fd=folder, effective_ids=True)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        _refuse(error)
        return None


def _refuse(error: OSError) -> None:
    # If the disk or the process fails, an incomplete list would look like a complete one.
    if workspace_faults.passes(error.errno):
        raise error
