"""Places: split a path of the data directory into a run's folder, a folder within it and a name."""

from __future__ import annotations

from typing import NamedTuple

from app.storage import layout

JOURNALS = (layout.STEPS, layout.CONTROL)  # Files of a run that are stored line by line.


class Place(NamedTuple):
    """Place of a file."""

    run: str  # The run's folder; empty outside of runs.
    folder: str  # Folder within the run's folder.
    name: str  # Name of the file.

    @property
    def is_journal(self) -> bool:
        """Return whether the file is stored line by line."""
        return bool(self.run) and not self.folder and self.name in JOURNALS


def of(path: str) -> Place:
    """Split a path."""
    parts = path.split("/")
    depth = _depth(path)
    run = "/".join(parts[:depth]) if parts[0] == layout.RUNS and len(parts) > depth else ""
    folder, _, name = (path[len(run) + 1 :] if run else path).rpartition("/")
    return Place(run, folder, name)


def is_run(path: str) -> bool:
    """Return whether a path is a run's folder: in its place, being built or in the trash."""
    parts = path.split("/")
    return parts[0] == layout.RUNS and path != layout.TRASH and len(parts) == _depth(path)


def within(path: str) -> tuple[str, str]:
    """Return the run that a folder is in, and the folder's path within the run."""
    if is_run(path):
        return path, ""
    run, folder, name = of(path)
    return run, f"{folder}/{name}" if folder else name


def _depth(path: str) -> int:
    return 3 if path.startswith(f"{layout.TRASH}/") else 2
