"""
Which folders runs may work in, asked again before every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app import errors
from app.engine import runs
from app.tools.workspace import Workspace


class Workspaces:
    """
    The roots below which a run's working folder must lie: a run folder from elsewhere opens no other part of the disk.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)

    def of(self, run: runs.RunStart) -> Workspace:
        """
        Return the workspace of a run.

        Raises:
            errors.ToolFailed: `workspace_not_allowed`.
        """
        try:
            folder = Path(run.working_dir).resolve()
        except (OSError, ValueError, RuntimeError):
            folder = None
        if folder is None or not any(folder.is_relative_to(root) for root in self._roots):
            raise errors.ToolFailed(
                f"The run's working_dir {run.working_dir!r:.200} lies outside the folders that runs may work in.",
                code="workspace_not_allowed",
                detail={"working_dir": run.working_dir},
            )
        return Workspace(folder)
