"""Workspaces: the folders that a run may work in, and the claims of runs on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app import errors
from app.domain import shapes, states
from app.engine import stores
from app.tools import reserved, scanning, workspace

_LISTED = scanning.Limits(scan_bytes=2**60)  # Only names are listed, so sizes do not matter.


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesListed(shapes.Shape):
    """Files of a working folder."""

    files: tuple[str, ...]
    """Paths relative to the folder; hidden files, links and reserved folders are left out."""
    truncated: bool  # Whether there may be more: at most 2,000 files or 20,000 entries are read.


class Workspaces:
    """The project and the further roots that the settings allow."""

    def __init__(self, *, project: Path, allowed_roots: Sequence[Path], data_directory: Path) -> None:
        self._project = project.resolve()
        self.project = str(self._project)
        """The project's folder, in which a run works by default."""
        self._roots = (self._project, *(root.resolve() for root in allowed_roots))
        self.reserved = reserved.Reserved(folders=(data_directory.resolve(),))
        """Folders whose content belongs to no run."""

    def choose(self, requested: str | None) -> str:
        """Return the requested folder as an absolute path without symbolic links; by default, the project.

        A folder is inside only if its resolved path is; the error does not reveal whether an outside folder exists.

        Raises:
            errors.RequestInvalid: `working_dir_refused` or `working_dir_missing`.
        """
        if requested is None:
            return self.project
        folder = self._resolved(requested)
        base = next((root for root in self._roots if folder.is_relative_to(root)), None)
        if base is None:
            known = "the project and the folders of CONTROL_ROOM_ALLOWED_ROOTS"
            raise _refused("working_dir_refused", f"working_dir {requested!r:.200} is outside {known}")
        try:
            reserved.Root(path=folder, base=base, reserved=self.reserved).check()
        except errors.ToolFailed as failure:
            if failure.code == "workspace_missing":
                raise _refused("working_dir_missing", f"working_dir {requested!r:.200} is not a folder") from failure
            message = f"working_dir {requested!r:.200} is in a reserved folder: data of Control Room, or .git"
            raise _refused("working_dir_refused", message) from failure
        return str(folder)

    def files(self, requested: str | None, text: str) -> FilesListed:
        """Return the files of a working folder whose path contains a text, ignoring case; meant for a thread.

        Raises:
            errors.RequestInvalid: as for `choose`.
        """
        root = reserved.Root.of(Path(self.choose(requested)), self.reserved)
        try:
            scan = workspace.Workspace(root, _LISTED).scan()
        except errors.ToolFailed as failure:
            raise _refused("working_dir_missing", f"working_dir cannot be listed: {failure.message}") from failure
        wanted = text.casefold()
        return FilesListed(
            files=tuple(file.path for file in scan.files if wanted in file.path.casefold()), truncated=scan.truncated
        )

    def root(self, chosen: str) -> reserved.Root:
        """Return the confined root for access to a chosen folder."""
        folder = Path(chosen)
        base = next(root for root in self._roots if folder.is_relative_to(root))
        return reserved.Root(path=folder, base=base, reserved=self.reserved)

    def _resolved(self, requested: str) -> Path:
        try:
            folder = (self._project / requested).resolve()
            # A link can lead to a name that no file of a run could contain.
            str(folder).encode()
        except (OSError, ValueError, RuntimeError) as error:
            raise _refused("working_dir_refused", f"working_dir {requested!r:.200} cannot be resolved") from error
        return folder


def _refused(code: str, message: str) -> errors.RequestInvalid:
    flaw = errors.Flaw(path="$.working_dir", code=code, message=message)
    return errors.RequestInvalid(message, code=code, flaws=[flaw])


_BEGUN = (states.RunState.RUNNING, states.RunState.WAITING, states.RunState.PAUSED)


class WorkspaceClaims:
    """Claims workspaces for the runs of this process.

    A claim is refused while the workspace belongs to a run that continues on its own: one that another process
    executes, or one that the service has begun, executing or not. An unfinished run that a process has left has no
    claim until it is resumed.

    Args:
        lock: Locks a workspace against other processes, within a run's claim or alone; False if another has it.
    """

    def __init__(self, store: stores.RunStore, lock: Callable[[str, str | None], bool]) -> None:
        self._store = store
        self._lock = lock

    async def claim(self, workspace: str, *, run_id: str | None = None, parent_run_id: str | None = None) -> None:
        """Claim a workspace for as long as the process has its lock; a run may enter the workspace of a run above it.

        Args:
            run_id: Run that is resumed; None: a new run.

        Raises:
            errors.Conflict: `workspace_busy`; `detail` names the run that has it.
        """
        begun = [summary async for summary in self._begun(workspace) if summary.run_id != run_id]
        above = await stores.ancestors(self._store, parent_run_id)
        strangers = [summary for summary in begun if summary.run_id not in above]
        # Runs of the service keep the workspace even while they wait, which a file system lock would not show.
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


def _busy(workspace: str, holder: stores.RunSummary | None = None) -> errors.Conflict:
    who = f"run {holder.run_id}, which is {holder.status}" if holder else "a run of another process"
    return errors.Conflict(
        f"the workspace {workspace} is held by {who}",
        code="workspace_busy",
        detail={"working_dir": workspace, "holder": holder.run_id if holder else None},
    )
