"""Reserved folders: parts of a workspace that no run may use.

Some are known by name: data directories with secrets and journals, and git's own with its hooks. The configured data
directory is also recognised by device and number, through any name, link or mount of it. A mount of a part of it, or
a hard link to a file in it, cannot be recognised.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app import errors
from app.processes import folders
from app.tools import failures

NAMES = frozenset({".control-room", ".git", ".orchestrate"})
"""Names of reserved folders; in any case, since some file systems ignore case."""

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Identity = tuple[int, int]  # What a folder is, by device and number.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The folders that are reserved here."""

    folders: tuple[Path, ...] = ()  # Data directories.

    def identities(self) -> frozenset[Identity]:
        """Return what the data directories are, as far as they exist."""
        return frozenset(found for folder in self.folders if (found := _identity(folder)) is not None)

    def lies_below(self, folder: int) -> bool:
        """Return whether an open folder is, or has somewhere below it, a data directory."""
        wanted = identity_of(folder)
        return any(_identity(above) == wanted for own in self.folders for above in (own, *own.parents))


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder that nothing may leave."""

    path: Path  # Where it is: absolute, without links.
    base: Path  # The folder at or above it that the settings allow, whatever that is called.
    given: Path | None = None  # The caller's path to it, which links may name too; None: only `path`.
    reserved: Reserved = Reserved()  # What does not belong to it.
    granted: tuple[str, ...] = ()  # Path of the one reserved folder that its run may use.

    @classmethod
    def of(cls, folder: Path, reserved: Reserved = Reserved()) -> Root:
        """Return the root at a folder, wherever links lead to it now."""
        path = folder.resolve()
        return cls(path=path, base=path, given=folder.absolute(), reserved=reserved)

    def open(self) -> int:
        """Return a descriptor of the folder, to be listed too.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`, `workspace_missing`.
        """
        below = self.path.parts[len(self.base.parts) :]
        if name_in(below) is not None:
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
        """Return whether it is one of the folders that it reserves; where nothing is, by its path alone."""
        if name_in(self.path.parts[len(self.base.parts) :]) is not None:
            return True
        try:
            self.check()
        except errors.ToolFailed as failure:
            return failure.code == "workspace_not_allowed"
        return False

    def check(self) -> None:
        """Refuse to work here if it is reserved, or not there.

        Raises:
            errors.ToolFailed: as `open`.
        """
        os.close(self.open())

    def allows(self, parts: tuple[str, ...]) -> bool:
        """Return whether a path from here leads to the place that is granted."""
        return bool(self.granted) and parts[: len(self.granted)] == self.granted


def name_in(parts: Iterable[str]) -> str | None:
    """Return the first reserved name; None if there is none."""
    return next((part for part in parts if part.casefold() in NAMES), None)


def identity_of(folder: int) -> Identity:
    """Return what an open folder is."""
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _identity(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
