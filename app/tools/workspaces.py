"""Which folders runs may work in, asked again before every step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.domain import runs
from app.tools import failures
from app.tools.reserved import Reserved, Root
from app.tools.workspace import Workspace

_NOTHING = Reserved()


class Workspaces:
    """The roots below which a run's working folder must lie: a run folder from elsewhere opens no other part of the
    disk.
    """

    def __init__(self, roots: Sequence[Path], reserved: Reserved = _NOTHING) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        self._reserved = reserved

    def of(self, run: runs.RunStart) -> Workspace:
        """Return the workspace of a run.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`.
        """
        folder = Path(run.working_dir).absolute()
        try:
            # A run is begun with the folder itself: a link that is there now was put in its place.
            is_itself = folder.resolve() == folder
        except (OSError, ValueError, RuntimeError):
            is_itself = False
        base = next((root for root in self._roots if folder.is_relative_to(root)), None)
        if not is_itself or base is None:
            raise failures.not_allowed(run.working_dir)
        return Workspace(Root(path=folder, base=base, reserved=self._reserved, granted=_granted(folder, run)))

    def check(self, run: runs.RunStart) -> None:
        """Refuse to let anything work in a run's folder if no run may.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`, `workspace_missing`.
        """
        self.of(run).place.check()


def _granted(folder: Path, run: runs.RunStart) -> tuple[str, ...]:
    own = Path(run.folder or "/").absolute() / runs.ARTIFACTS
    return own.relative_to(folder).parts if own.is_relative_to(folder) else ()
