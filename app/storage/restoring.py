"""Restoring: makes a data directory from a backup, completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self

from app import clock, errors
from app.storage import backup, layout, layout_version
from app.storage.data_directory import DataDirectory
from app.storage.disk import disk_health, os_disk

_PREFIX = ".restoring-"
_CHUNK = 1024 * 1024
_LONGEST_PATH = 1000
_LARGEST_HEADER = 64 * 1024

_NO_FOLDERS = backup.LEFT_OUT - {layout.RUNS}
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_HEADERS = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)  # They contain long file names, and are read at once.


class _Member(tarfile.TarInfo):
    """A member of an archive; a kind that no backup contains is refused before any of its content is read."""

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        # Newer versions of Python do not call `frombuf` for members. This method is meant to be overridden.
        if self.type not in _FILES and (self.type not in _HEADERS or self.size > _LARGEST_HEADER):
            raise tarfile.ReadError(f"{self.name!r:.200} is of a kind or size that a backup never contains")
        processed: Self = super()._proc_member(archive)  # type: ignore[misc]
        return processed


def read(source: Path, folder: Path) -> dict[str, Any]:
    """Create a data directory from a backup, and return the backup's description of itself.

    The directory is built aside and moved into place at once: after a crash the folder is as before.

    Raises:
        errors.Conflict: `restore_not_empty`, the folder is not empty.
        errors.ConfigurationError: `backup_unreadable`, `backup_damaged`, `data_directory_newer`, `no_room`, or
            `data_directory_unusable`, the folder cannot be written.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        service = DataDirectory(folder, clock=clock.SystemClock(), ids=clock.RandomIds()).service()
        # A service would write into whatever has the name of its folder.
        first = "" if service is None else f"stop its service (process {service['pid']}) and "
        message = f"{folder} is not empty; restore into another project, or {first}move that folder away first"
        raise errors.Conflict(message, code="restore_not_empty", detail={"folder": str(folder)})
    try:
        source.open("rb").close()
    except OSError as error:
        message = f"{source} cannot be read: {disk_health.reason_of(error)}; name the file of a backup"
        raise errors.ConfigurationError(message, code="backup_unreadable", detail={"file": str(source)}) from error
    with contextlib.ExitStack() as locks:
        return _restored(source, folder, locks)


def _restored(source: Path, folder: Path, locks: contextlib.ExitStack) -> dict[str, Any]:
    made = [place for place in (folder.parent, *folder.parent.parents) if not place.exists()]
    fresh = folder.parent / f"{_PREFIX}{folder.name}-{os.getpid()}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(f"{_PREFIX}{folder.name}-*"):
            locks.callback(_locked(left, folder).release)
            shutil.rmtree(left)
        fresh.mkdir(mode=0o700)
        locks.callback(_locked(fresh, folder).release)
        found = _unpacked(source, fresh)
        _sync_tree(fresh)
        os.replace(fresh, folder)
        os_disk.sync(folder.parent)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        with contextlib.suppress(OSError):
            for place in made:
                place.rmdir()
        if isinstance(error, OSError) and error.errno is not None:
            raise disk_health.unusable(folder, error) from error
        raise
    return found


def _locked(place: Path, folder: Path) -> os_disk.OsLock:
    # The folder of a restore that is at work must not be taken for one that a dead process has left.
    if (lock := os_disk.lock(str(place))) is None:
        message = f"another restore works on {folder}; let it end"
        raise errors.ConfigurationError(message, code="data_directory_busy")
    return lock


def _unpacked(source: Path, fresh: Path) -> dict[str, Any]:
    end: dict[str, Any] | None = None
    count = 0
    try:
        with tarfile.open(source, mode="r|gz", tarinfo=_Member) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if end is not None or member.issparse() or content is None:
                    raise _damaged(source, f"it holds {member.name!r:.200}, which a backup never contains")
                if member.name == backup.END:
                    end = _described(source, content.read(_CHUNK))
                    continue
                _write(source, fresh, member.name, content)
                count += 1
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise _damaged(source, f"it cannot be unpacked: {error}") from error
    if end is None:
        raise _damaged(source, "its end is missing")
    if end.get("files") != count:
        raise _damaged(source, f"it holds {count} files of {end.get('files')}")
    return end


def _write(source: Path, fresh: Path, name: str, content: BinaryIO | Any) -> None:
    path = PurePosixPath(name)
    inside = not path.is_absolute() and path.parts and not {"..", "."} & set(path.parts) and path.as_posix() == name
    if (
        not inside
        or len(name) > _LONGEST_PATH
        or "\0" in name
        or name in backup.LEFT_OUT
        or path.parts[0] in _NO_FOLDERS
    ):
        raise _damaged(source, f"it holds {name!r:.200}, which is not a path of a data directory")
    target = fresh.joinpath(*path.parts)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with target.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            shutil.copyfileobj(content, file, _CHUNK)
    except (FileExistsError, NotADirectoryError) as error:
        raise _damaged(source, f"it holds {name!r:.200} twice") from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise _damaged(source, f"it holds {name!r:.200}, which is too long for a path") from error


def _described(source: Path, content: bytes) -> dict[str, Any]:
    try:
        end = json.loads(content)
        known, written, runs = end["format"], end["layout"], end["runs"]
        if type(runs) is not int:
            raise ValueError("no number of runs")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(source, f"{backup.END} cannot be understood") from error
    if known != backup.FORMAT or type(written) is not int or written > layout_version.LAYOUT:
        message = (
            f"{source} has format {known} and layout {written}, written by Control Room {end.get('written_by')!s:.40};"
            f" this one knows format {backup.FORMAT} and layouts up to {layout_version.LAYOUT}; use that version"
        )
        raise errors.ConfigurationError(message, code="data_directory_newer")
    return dict(end)


def _damaged(source: Path, why: str) -> errors.ConfigurationError:
    message = f"{source} is not a complete backup: {why}; nothing was restored"
    return errors.ConfigurationError(message, code="backup_damaged")


def _sync_tree(folder: Path) -> None:
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            os_disk.sync(Path(place, name))
        os_disk.sync(Path(place))
