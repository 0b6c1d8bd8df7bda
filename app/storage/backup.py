"""Backup: copies a data directory into one file while a service writes to it, each run as of one moment.

The files of a run are copied in the order in which a killed process would leave them: projections, control.jsonl,
steps.jsonl, and then the blobs that the lines refer to. So no file of the copy refers to a line that is missing in it.
What a step writes elsewhere before its line is copied after all runs, so that no copied line lacks its effect.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import app
from app import clock, errors
from app.domain import plain
from app.storage import layout, layout_version
from app.storage.data_directory import DataDirectory
from app.storage.disk import disk_health
from app.storage.disk.disk_port import Disk
from app.storage.disk.os_disk import OsDisk, sync
from app.storage.objects import mark
from app.storage.objects.disk import ObjectDisk
from app.storage.runs import commit_log_lock

FORMAT = 1  # Format of the files that this program writes and reads.
END = "backup.json"  # Last member of a backup; without it the file was cut off.

LEFT_OUT = frozenset({layout.RUNS, layout.COMMITS, "processes", "service.json", "index.db", layout.BLOBS_MARK})
"""Names that are not copied: runs are copied separately, the other files belong to the process or are rebuilt."""

_LATE = (layout.ISSUES, layout.AGENT_SESSIONS, layout.AUDIT)  # Folders copied after the runs.
_MOST_READS = 20
_PROJECTIONS = (layout.MANIFEST, layout.CACHE, layout.EVENTS)


@dataclass(slots=True, kw_only=True)
class Copied:
    """Contents of a backup."""

    runs: int = 0  # Number of runs.
    files: int = 0  # Number of files.
    size_bytes: int = 0  # Total size of the files.
    is_partial: bool = False  # Whether the runs are in a database, which its own tools back up.
    skipped: list[str] = field(default_factory=list)
    """Runs that are not in the backup: deleted meanwhile, damaged, or written by hand."""
    receipts: dict[str, set[str]] = field(default_factory=dict)
    """Ids of the receipts that the copied journal of each run names."""


def write(folder: Path, target: Path, blobs_url: str | None = None) -> Copied:
    """Copy a data directory into a file that appears only once it is complete; blobs in object storage are included.

    Args:
        blobs_url: Object storage of blobs and logs; None: they are in the folder. That of runs in a database belongs to
            the database, and is not read.

    Raises:
        errors.ConfigurationError: `backup_impossible`, there is no data directory, or the target is in it;
            `store_differs`, blobs are elsewhere; `backup_unwritable`, the target cannot be written.
        errors.Conflict: `file_exists`; `source_in_use`, lines of the runs are only in the commit log.
        OSError: a file could not be read.
    """
    _refuse_unsuited(folder, target)
    disk: Disk = OsDisk(folder)
    if not (folder / layout.STORE_MARK).exists():
        identity = DataDirectory(folder, clock=clock.SystemClock(), ids=clock.RandomIds()).read_identity()
        disk = mark.opened(disk, mark.Target(url=blobs_url, looks_only=True), identity)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
                copied = _fill(archive, folder, disk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        if error.filename not in (None, str(partial)):
            raise
        reason = f"{target} cannot be written: {disk_health.reason_of(error)}"
        message = f"{reason}; name a file in a folder that exists, can be written and has room"
        raise errors.ConfigurationError(message, code="backup_unwritable", detail={"file": str(target)}) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    sync(target.parent)
    return copied


def _fill(archive: tarfile.TarFile, folder: Path, disk: Disk) -> Copied:
    copied = Copied(is_partial=(folder / layout.STORE_MARK).exists())
    for path in _others(folder):
        if not _is_late(path):
            with contextlib.suppress(FileNotFoundError):
                _add(archive, copied, path, (folder / path).read_bytes())
    seen: set[str] = set()
    # A run that is new meanwhile may be a child of a copied one.
    while fresh := [run_id for run_id in _run_ids(folder) if run_id not in seen]:
        for run_id in fresh:
            seen.add(run_id)
            _add_run(archive, copied, folder / layout.RUNS / run_id, disk)
    for path in filter(_is_late, _others(folder)):
        with contextlib.suppress(FileNotFoundError):
            content = _lines_of(folder / path) if path.endswith(".jsonl") else (folder / path).read_bytes()
            is_receipts = path.startswith(f"{layout.SESSIONS}/") and path.endswith(f"/{layout.RECEIPTS}")
            _add(archive, copied, path, _known_receipts(content, copied) if is_receipts else content)
    end = {"format": FORMAT, "layout": _layout(folder), "written_by": app.__version__, "runs": copied.runs}
    end |= {"files": copied.files, "skipped": copied.skipped}
    _member(archive, END, plain.encode(end) + b"\n")
    return copied


def _run_ids(folder: Path) -> list[str]:
    # Plans and parents before the runs that they start: a crash leaves them in this order.
    found = layout.run_ids(os.listdir(folder / layout.RUNS))
    return sorted(found, key=lambda run_id: (not clock.is_internal(run_id), run_id))


def _add_run(archive: tarfile.TarFile, copied: Copied, folder: Path, disk: Disk) -> None:
    files = _run(folder, disk)
    if files is None:
        copied.skipped.append(folder.name)
        return
    copied.runs += 1
    copied.receipts[folder.name] = _receipts_of(files.get(layout.STEPS, b""))
    for name, content in files.items():
        _add(archive, copied, f"{layout.RUNS}/{folder.name}/{name}", content)


def _others(folder: Path) -> Iterator[str]:
    """Yield all files outside of runs that are replaced as a whole or only grow."""
    for path in _files(folder, "", frozenset()):
        passing = path.endswith((".new", ".partial")) or path.startswith("index.db")
        if (folder / path).is_file() and not passing:
            yield path


def _files(folder: Path, inner: str, above: frozenset[str]) -> Iterator[str]:
    """Yield the files below an inner folder; links are followed, as the service follows them, except upwards."""
    place = os.path.realpath(folder / inner)
    names: list[str] = []
    if place not in above:
        with contextlib.suppress(FileNotFoundError):
            names = sorted(os.listdir(place))
    for path in (f"{inner}/{name}".removeprefix("/") for name in names):
        if (folder / path).is_dir() and path not in LEFT_OUT:
            yield from _files(folder, path, above | {place})
        elif path not in LEFT_OUT:
            yield path


def _is_late(path: str) -> bool:
    return path.startswith(tuple(f"{place}/" for place in _LATE))


def _run(folder: Path, disk: Disk) -> dict[str, bytes] | None:
    """Return the files of a run as of one moment; None if the run is gone or did not stop changing."""
    files: dict[str, bytes] = {}
    for name in _PROJECTIONS:
        with contextlib.suppress(FileNotFoundError):
            files[name] = _lines_of(folder / name) if name == layout.EVENTS else (folder / name).read_bytes()
    if (folder / layout.START).is_file():
        journals = _journals(folder)
        if journals is None:
            return None
        files |= journals
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            inner = path.relative_to(folder).as_posix()
            if inner not in files and not name.endswith(".new") and path.is_file() and not path.is_symlink():
                with contextlib.suppress(FileNotFoundError):
                    files[inner] = path.read_bytes()
    if isinstance(disk, ObjectDisk):
        for kind in (layout.BLOBS, layout.LOGS):
            for name in disk.names(f"{layout.RUNS}/{folder.name}/{kind}"):
                if f"{kind}/{name}" not in files and not name.endswith(".new"):
                    with contextlib.suppress(FileNotFoundError):
                        files[f"{kind}/{name}"] = disk.read(f"{layout.RUNS}/{folder.name}/{kind}/{name}")
    # The deletion of a run moves it away, perhaps during its copy.
    return files if folder.is_dir() else None


def _journals(folder: Path) -> dict[str, bytes] | None:
    with contextlib.suppress(FileNotFoundError):
        for _ in range(_MOST_READS):
            control = _lines_of(folder / layout.CONTROL)
            steps = _lines_of(folder / layout.STEPS)
            if not _has_ended(control) or _lines_of(folder / layout.CONTROL) == control:
                # Steps of an ended run can grow only after a line that records a resume.
                start = (folder / layout.START).read_bytes()
                return {layout.START: start, layout.CONTROL: control, layout.STEPS: steps}
    return None


def _has_ended(control: bytes) -> bool:
    ended = False
    for line in _lines(control):
        ended = line.get("kind") == "ended" or (ended and line.get("kind") != "resumed")
    return ended


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    # Damaged files are copied unchanged.
    for line in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            fields = json.loads(line)
            if isinstance(fields, dict):
                yield fields


def _lines_of(path: Path) -> bytes:
    # The last line of an append-only file may be incomplete.
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _receipts_of(steps: bytes) -> set[str]:
    return {line["receipt_id"] for line in _lines(steps) if isinstance(line.get("receipt_id"), str)}


def _known_receipts(content: bytes, copied: Copied) -> bytes:
    """Leave out receipts of steps that the copied journals do not contain."""
    kept = []
    for line in content.splitlines(keepends=True):
        try:
            receipt = json.loads(line)
            known = copied.receipts.get(receipt["run_id"])
            if known is not None and receipt["receipt_id"] not in known:
                continue
        except (ValueError, KeyError, TypeError):
            pass
        kept.append(line)
    return b"".join(kept)


def _add(archive: tarfile.TarFile, copied: Copied, path: str, content: bytes) -> None:
    _member(archive, path, content)
    copied.files += 1
    copied.size_bytes += len(content)


def _member(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(content), 0o600
    archive.addfile(info, io.BytesIO(content))


def _layout(folder: Path) -> int:
    try:
        found: Any = json.loads((folder / layout_version.FILE).read_bytes())["layout"]
    except (OSError, ValueError, KeyError, TypeError):
        return layout_version.FIRST
    return int(found)


def _refuse_unsuited(folder: Path, target: Path) -> None:
    if not (folder / layout.RUNS).is_dir():
        message = f"{folder} contains no runs; name the project with --project"
        raise errors.ConfigurationError(message, code="backup_impossible")
    commit_log_lock.refuse_unrecovered(OsDisk(folder), str(folder))
    if target.resolve().is_relative_to(folder.resolve()):
        message = f"{target} is inside of {folder}, which every later backup would copy; name a file in another folder"
        raise errors.ConfigurationError(message, code="backup_impossible", detail={"file": str(target)})
    if target.exists():
        ending = "".join(target.suffixes)
        dated = f"{target.name.removesuffix(ending)}-$(date +%F){ending}"
        message = f"{target} is there already, and a backup replaces no file; choose another name, e.g. {dated}"
        raise errors.Conflict(message, code="file_exists")
