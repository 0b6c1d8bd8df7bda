"""Projects: find the project that stores the runs of a working directory."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app import errors, settings
from app.cli import options

_DATA = ".control-room"
_PROJECT = settings.PREFIX + "PROJECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(options.Place):
    """A working directory, with its project."""

    working_dir: Path  # Folder that agents work in, absolute and without symbolic links.

    def command(self, *words: str) -> str:
        """Return a command line of `control-room` that uses this project from the current folder."""
        folder = self.settings().project.project.resolve()
        place = () if _PROJECT in os.environ or folder == Path.cwd() else ("--project", str(folder))
        return shlex.join(["control-room", *words, *place])


def of(working_dir: str | None) -> Project:
    """Return the project of a folder: the one that the environment names, else the nearest folder at or above it with
    a data directory, else the folder itself.

    Raises:
        errors.RequestInvalid: `working_dir_missing`.
    """
    named = os.curdir if working_dir is None else working_dir
    folder = _resolved(named)
    if folder is None:
        raise errors.RequestInvalid(f"--working-dir {named!r:.200} is not a folder", code="working_dir_missing")
    environ = options.laid_over()
    if not environ.get(_PROJECT):
        environ = options.laid_over(PROJECT=str(_nearest(folder, environ)))
    return Project(working_dir=folder, environ=environ)


def _resolved(named: str) -> Path | None:
    try:
        folder = Path(named).resolve()
        return folder if named and folder.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _nearest(folder: Path, environ: Mapping[str, str]) -> Path:
    # Files in the home folder are the user's own; they do not make every folder below it a project.
    home = settings.load(environ).project.home.resolve()
    found = (above for above in (folder, *folder.parents) if os.path.isdir(above / _DATA) and above != home)
    return next(found, folder)
