"""The folder of finished task files: emptied before a run, archived after it, without touching other files
(workflow-dsl, CLI contract).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app import errors
from app.cli.orchestrate import places

if TYPE_CHECKING:
    from app.cli.orchestrate.places import Place
    from app.cli.orchestrate.workflows import Workflow
    from app.tools import reserved

ARCHIVE = "processed.zip"  # Name of the archive in the run's folder.

_LINK = (stat.S_IFLNK | 0o777) << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """The folder `processed_dir` of a workflow, checked to be safe."""

    root: reserved.Root  # Its real path: inside the workspace, and not the workspace itself.
    name: str  # Its name, which is its path in an archive.

    @property
    def folder(self) -> Path:
        """Return the path of the folder."""
        return self.root.path

    def clean(self) -> None:
        """Remove its content; links are removed, but not their targets."""
        if not self.folder.is_dir():
            return
        try:
            handle = self.root.open()
        except errors.ToolFailed as failure:
            raise _refused(self.name, f"cannot be emptied: {failure.message}") from failure
        try:
            with os.scandir(handle) as entries:
                found = list(entries)
            for entry in found:
                # Through the open folder: a link that replaces it meanwhile is not followed.
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.name, dir_fd=handle)
                else:
                    os.unlink(entry.name, dir_fd=handle)
        finally:
            os.close(handle)

    def archive(self, target: Path) -> None:
        """Write it to an archive under its name; the archive appears completely or not at all."""
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with fresh.open("xb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
                    for path in _below(self.folder):
                        _add(archive, path, f"{self.name}/{path.relative_to(self.folder)}")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    def refuse_target(self, target: Path) -> None:
        """Raise if an archive would be in the folder that it archives, or replace something else than an archive.

        Raises:
            errors.RequestInvalid: `archive_refused`.
        """
        if target == self.folder or target.is_relative_to(self.folder):
            message = f"--archive-processed {target}: the archive must be outside of {self.folder}"
            raise errors.RequestInvalid(message, code="archive_refused")
        if target.is_dir():
            raise errors.RequestInvalid(f"--archive-processed {target} is a folder", code="archive_refused")
        is_free = not target.exists() or (target.is_file() and target.stat().st_size == 0)
        if not is_free and not (target.is_file() and zipfile.is_zipfile(target)):
            message = f"--archive-processed {target} is not an archive, and would be replaced; name another file"
            raise errors.RequestInvalid(message, code="archive_refused")


def of(workflow: Workflow, place: Place) -> Processed:
    """Return the folder that a workflow names as `processed_dir`.

    Raises:
        errors.RequestInvalid: `processed_dir_refused`; it is not below the workspace, or contains
            files that must be kept.
    """
    named = workflow.processed_dir
    try:
        folder = places.resolved(place.workspace / named)
        if folder.exists() and not folder.is_dir():
            raise _refused(named, "is not a folder")
    except OSError as error:
        raise _refused(named, f"cannot be resolved: {error}") from error
    if folder == place.workspace:
        raise _refused(named, "is the workspace itself")
    if not folder.is_relative_to(place.workspace):
        raise _refused(named, f"leads out of the workspace, to {folder}")
    data = place.data.resolve()
    from app.tools import reserved

    root = reserved.Root(path=folder, base=place.workspace, reserved=reserved.Reserved(folders=(data,)))
    if data.is_relative_to(folder) or root.is_reserved():
        raise _refused(named, "is the folder of the runs, or another reserved folder")
    if any(path.is_relative_to(folder) for path in (workflow.path, workflow.path.resolve())):
        raise _refused(named, "is the folder of the workflow")
    return Processed(root=root, name=Path(named).name)


def target(asked: str, place: Place) -> Path:
    """Return the absolute path of an archive.

    Raises:
        errors.RequestInvalid: `archive_refused`, the path cannot be resolved.
    """
    try:
        return places.resolved(place.workspace / asked)
    except (OSError, ValueError) as error:
        raise errors.RequestInvalid(f"--archive-processed {asked!r:.200}: {error}", code="archive_refused") from error


def _below(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(waiting.pop().iterdir()):
                yield path
                if path.is_dir() and not path.is_symlink():
                    waiting.append(path)


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        link = zipfile.ZipInfo(name)
        link.create_system = 3
        link.external_attr = _LINK
        archive.writestr(link, os.readlink(path))
    elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        archive.write(path, name)


def _refused(named: str, why: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"processed_dir {named!r:.200} {why}", code="processed_dir_refused")
