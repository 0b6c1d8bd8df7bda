"""Reserved folders: parts of a workspace that no run may use.

Some are recognised by name: data directories with secrets and journals, and git's own with its hooks. The configured
data directory is also recognised by device and inode number, through any name, link or mount of it. A mount of a part
of it, or a hard link to a file in it, cannot be recognised.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from app import errors
from app.domain import workspace_paths
from app.processes import folders
from app.tools import failures

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Identity = tuple[int, int]  # Identity of a folder: device and inode number.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The data directories of this service."""

    folders: tuple[Path, ...] = ()  # Data directories.

    def identities(self) -> frozenset[Identity]:
        """Return the identities of the data directories that exist."""
        return frozenset(found for folder in self.folders if (found := _identity(folder)) is not None)

    def lies_below(self, folder: int) -> bool:
        """Return whether an open folder is a data directory, or contains one at any depth."""
        wanted = identity_of(folder)
        return any(_identity(above) == wanted for own in self.folders for above in (own, *own.parents))


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder that no path may leave."""

    path: Path  # Its path: absolute, without links.
    base: Path  # The allowed folder of the settings that is it or contains it, under any name.
    given: Path | None = None  # The caller's path to it, which links may use too; None: only `path`.
    reserved: Reserved = Reserved()  # Data directories, which do not belong to it.
    granted: tuple[str, ...] = ()  # Path of the only reserved folder that its run may use.

    @classmethod
    def of(cls, folder: Path, reserved: Reserved = Reserved()) -> Root:
        """Return the root at a folder, with its links resolved now."""
        path = folder.resolve()
        return cls(path=path, base=path, given=folder.absolute(), reserved=reserved)

    def open(self) -> int:
        """Return a descriptor of the folder, which can also be listed.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`, `workspace_missing`.
        """
        below = self.path.parts[len(self.base.parts) :]
        if workspace_paths.reserved_name(below) is not None:
            raise failures.not_allowed(str(self.path))
        known = self.reserved.identities()

        # By identity and not by name: a bind mount of the data directory is still the data directory.
        def see(_: int, folder: int) -> None:
            if known and identity_of(folder) in known:
                raise failures.not_allowed(str(self.path))

        try:
            reached = folders.opened(self.path, see)
            try:
                return os.open(".", _READ, dir_fd=reached)
            finally:
                os.close(reached)
        except OSError as error:
            raise failures.no_workspace(str(self.path), error) from error

    def is_reserved(self) -> bool:
        """Return whether the root is a reserved folder; if it does not exist, only its path decides."""
        if workspace_paths.reserved_name(self.path.parts[len(self.base.parts) :]) is not None:
            return True
        try:
            self.check()
        except errors.ToolFailed as failure:
            return failure.code == "workspace_not_allowed"
        return False

    def check(self) -> None:
        """Raise if the root is reserved, or does not exist.

        Raises:
            errors.ToolFailed: as `open`.
        """
        os.close(self.open())

    def allows(self, parts: tuple[str, ...]) -> bool:
        """Return whether a relative path is in the granted folder."""
        return bool(self.granted) and parts[: len(self.granted)] == self.granted


def identity_of(folder: int) -> Identity:
    """Return the identity of an open folder."""
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _identity(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
