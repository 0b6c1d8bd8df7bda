"""
Workspaces: folders that a run holds alone, from its start to its end.
"""

from __future__ import annotations

from collections.abc import Collection


class Workspaces:
    """
    Know which run holds which workspace.

    A run started by the holder may hold the same workspace on top of it, else a parent would wait for its child and the
    child for its parent's workspace.
    """

    def __init__(self) -> None:
        self._holders: dict[str, list[str]] = {}
        self._held: dict[str, str] = {}

    def holder(self, workspace: str, run_id: str, ancestors: Collection[str]) -> str | None:
        """
        Return the run that keeps another one out, None if that one may hold the workspace now.
        """
        holders = self._holders.get(workspace)
        if not holders or run_id in holders or holders[-1] in ancestors:
            return None
        return holders[-1]

    def hold(self, workspace: str, run_id: str) -> None:
        """
        Give a workspace to a run, until `release`.
        """
        if run_id not in self._held:
            self._held[run_id] = workspace
            self._holders.setdefault(workspace, []).append(run_id)

    def release(self, run_id: str) -> str | None:
        """
        Take a run's workspace back, and return it; None if it held none.
        """
        workspace = self._held.pop(run_id, None)
        if workspace is None:
            return None
        self._holders[workspace].remove(run_id)
        if not self._holders[workspace]:
            del self._holders[workspace]
        return workspace
