"""Holds: a run that executes in a process of its own, without a service, gets its workspace alone or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from app import errors
from app.domain import states
from app.engine import stores

_BEGUN = (states.RunState.RUNNING, states.RunState.WAITING, states.RunState.PAUSED)


class WorkspaceClaims:
    """Take workspaces for the runs of this process.

    Kept out is who would work beside a run that goes on by itself: one that another process executes, or one that the
    service has begun, running or not. A run that a process has left unfinished holds nothing until it is resumed.
    """

    def __init__(self, store: stores.RunStore, lock: Callable[[str, str | None], bool]) -> None:
        """Args:
        lock: Locks a workspace against other processes, below a run that has it or on its own; false if one has it.
        """
        self._store = store
        self._lock = lock

    async def take(self, workspace: str, *, run_id: str | None = None, parent_run_id: str | None = None) -> None:
        """Take a workspace for as long as the process has its lock; a run may enter that of a run above it.

        Args:
            run_id: Run that is sent on; None: a new one.

        Raises:
            errors.Conflict: `workspace_busy`; `detail` says which run has it.
        """
        begun = [summary async for summary in self._begun(workspace) if summary.run_id != run_id]
        above = await self._above(parent_run_id)
        strangers = [summary for summary in begun if summary.run_id not in above]
        serving = [summary for summary in strangers if summary.owner == "service"]
        if serving:
            raise _busy(workspace, serving[0])
        entered = parent_run_id if len(strangers) < len(begun) else None
        if not self._lock(workspace, entered):
            executed = [summary for summary in strangers if summary.owner == "process"]
            raise _busy(workspace, *executed[:1])

    async def _begun(self, workspace: str) -> AsyncIterator[stores.RunSummary]:
        for status in _BEGUN:
            async for summary in stores.every_run(self._store, stores.RunQuery(status=status)):
                if summary.exclusive_workspace and summary.working_dir == workspace:
                    yield summary

    async def _above(self, run_id: str | None) -> set[str]:
        found: set[str] = set()
        while run_id is not None and run_id not in found:
            found.add(run_id)
            try:
                run_id = (await self._store.summary(run_id)).parent_run_id
            except errors.NotFound:
                break
        return found


def _busy(workspace: str, holder: stores.RunSummary | None = None) -> errors.Conflict:
    who = f"run {holder.run_id}, which is {holder.status}" if holder else "a run of another process"
    return errors.Conflict(
        f"the workspace {workspace} is held by {who}",
        code="workspace_busy",
        detail={"working_dir": workspace, "holder": holder.run_id if holder else None},
    )
