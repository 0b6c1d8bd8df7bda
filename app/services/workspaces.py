"""Workspaces: which folders a run may work in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app import errors
from app.tools import reserved


class Workspaces:
    """The project and the further roots that the settings allow."""

    def __init__(self, *, project: Path, allowed_roots: Sequence[Path], data_directory: Path) -> None:
        self._project = project.resolve()
        self._roots = (self._project, *(root.resolve() for root in allowed_roots))
        self.reserved = reserved.Reserved(folders=(data_directory.resolve(),))
        """What is in these folders and does not belong to any run."""

    def choose(self, asked: str | None) -> str:
        """Return the folder asked for as an absolute path without symbolic links; the project where none is.

        A folder counts as inside only by where it really lies, and whether one outside exists is not told.

        Raises:
            errors.RequestInvalid: `working_dir_refused` or `working_dir_missing`.
        """
        if asked is None:
            return str(self._project)
        folder = self._resolved(asked)
        base = next((root for root in self._roots if folder.is_relative_to(root)), None)
        if base is None:
            known = "the project and the folders of CONTROL_ROOM_ALLOWED_ROOTS"
            raise _refused("working_dir_refused", f"working_dir {asked!r:.200} lies outside of {known}")
        try:
            reserved.Root(path=folder, base=base, reserved=self.reserved).check()
        except errors.ToolFailed as failure:
            if failure.code == "workspace_missing":
                raise _refused("working_dir_missing", f"working_dir {asked!r:.200} is no folder") from failure
            told = f"working_dir {asked!r:.200} is in a reserved folder: data of Control Room, or .git"
            raise _refused("working_dir_refused", told) from failure
        return str(folder)

    def _resolved(self, asked: str) -> Path:
        try:
            folder = (self._project / asked).resolve()
            # A link can lead to a name that no file of a run could hold.
            str(folder).encode()
        except (OSError, ValueError, RuntimeError) as error:
            raise _refused("working_dir_refused", f"working_dir {asked!r:.200} cannot be resolved") from error
        return folder


def _refused(code: str, message: str) -> errors.RequestInvalid:
    flaw = errors.Flaw(path="$.working_dir", code=code, message=message)
    return errors.RequestInvalid(message, code=code, flaws=[flaw])
