"""Moves: move a file or folder so that a crash leaves the old name, the new one, or both, and a retry finishes."""

# `rename` replaces a file at the new path, and `renameat2` is not available from Python. A hard link fails if the name
# is taken; the new folder is synced before the old name is removed. After a crash both names lead to one file, and
# the next attempt removes the old name. A copy could be left incomplete.

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app import errors
from app.domain import file_operations, plain, records
from app.engine import ports
from app.tools import commits, failures, threads
from app.tools.confinement import Descent, components
from app.tools.reserved import Root
from app.tools.workspace import Workspaces

_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The source and the target of a move."""

    source_folders: tuple[str, ...]  # Folders on the way to the source.
    target_folders: tuple[str, ...]  # Folders on the way to the target.
    name: str  # Name of the file or folder, which does not change.

    @classmethod
    def of(cls, source: str, folder: str) -> Move:
        """Make a move from the paths of a request.

        Raises:
            errors.ToolFailed: `path_outside_workspace`, `not_a_file`.
        """
        *above, name = components(source) or ("",)
        if not name:
            raise failures.not_a_file(source)
        return cls(source_folders=tuple(above), target_folders=components(folder), name=name)

    @property
    def source(self) -> str:
        """Path of the source."""
        return "/".join((*self.source_folders, self.name))

    @property
    def target(self) -> str:
        """Path of the target."""
        return "/".join((*self.target_folders, self.name))


def carry_out(root: Root | Path, move: Move, *, is_again: bool) -> None:
    """Move durably, never overwriting; make missing folders. A link with a target is moved as a link.

    Raises:
        errors.ToolFailed: `file_not_found`, `file_exists`, `path_outside_workspace`, `workspace_missing`,
            `write_failed`.
    """
    if not _is_there(root, move):
        if not (is_again and _was_moved(root, move)):
            raise failures.missing(move.source)
        return
    with Descent(root, move.source) as origin, Descent(root, move.target) as goal:
        origin.enter(move.source_folders)
        origin.refuse_to_move(move.name)
        goal.enter(move.target_folders, create=True)
        try:
            # If two of our moves take the same file, one comes too late; the lock ends with the descent.
            fcntl.flock(origin.folder, fcntl.LOCK_EX)
            _rename(origin.folder, goal.folder, move.name, is_again=is_again)
            # The new name first: a power cut in between leaves both names, which the next attempt repairs. In the
            # opposite order, it could leave none.
            goal.sync()
            os.fsync(origin.folder)
        except FileNotFoundError:
            raise failures.missing(move.source) from None
        except OSError as error:
            if error.errno in _TAKEN:
                raise failures.already_exists(move.target) from None
            raise failures.of_system(move.target, error, "write_failed") from error


def _is_there(root: Root | Path, move: Move) -> bool:
    with Descent(root, move.source) as descent:
        try:
            descent.status((*move.source_folders, move.name))
        except errors.ToolFailed as failure:
            if failure.code != "file_not_found":
                raise
            return False
    return True


def _was_moved(root: Root | Path, move: Move) -> bool:
    """Return whether an earlier attempt has made the move, and sync the new name."""
    with Descent(root, move.target) as goal:
        try:
            goal.enter(move.target_folders)
            os.stat(move.name, dir_fd=goal.folder, follow_symlinks=False)
            goal.sync()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise failures.of_system(move.target, error, "write_failed") from error
        except errors.ToolFailed as failure:
            if failure.code != "file_not_found":
                raise
            return False
    with suppress(errors.ToolFailed), Descent(root, move.source) as origin:
        origin.enter(move.source_folders)
        origin.sync()
    return True


def _rename(origin: int, goal: int, name: str, *, is_again: bool) -> None:
    mode = os.stat(name, dir_fd=origin, follow_symlinks=False).st_mode
    if _identity(".", origin) == _identity(".", goal):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if stat.S_ISDIR(mode):
        commits.require_free(goal, name)
        os.rename(name, name, src_dir_fd=origin, dst_dir_fd=goal)
        return
    try:
        # Unlike a rename, a link never replaces a file that another process has just made.
        os.link(name, name, src_dir_fd=origin, dst_dir_fd=goal, follow_symlinks=False)
    except FileExistsError:
        if not is_again or _identity(name, origin) != _identity(name, goal):
            raise
    except OSError as error:
        if error.errno not in commits.NO_LINKS:
            raise
        commits.require_free(goal, name)
        os.rename(name, name, src_dir_fd=origin, dst_dir_fd=goal)
        return
    # The new name must be durable before the old one is removed.
    os.fsync(goal)
    _remove_old_name(origin, goal, name)


def _remove_old_name(origin: int, goal: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=origin)
    except FileNotFoundError:
        # Another process has moved the file away; if it has another name, the file is theirs.
        if os.stat(name, dir_fd=goal, follow_symlinks=False).st_nlink > 1:
            os.unlink(name, dir_fd=goal)
            raise
    except OSError:
        os.unlink(name, dir_fd=goal)
        raise


def _identity(name: str, folder: int) -> tuple[int, int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino


class MoveFilePerformer:
    """Move a file or folder once, however often the step is tried."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.MoveFile`; a later try finds the result of an earlier one.

        A move that has begun is finished before a cancellation continues.

        Raises:
            errors.ToolFailed: as `carry_out`, or `not_a_file` for the workspace itself.
        """
        operation = call.operation
        assert isinstance(operation, file_operations.MoveFile)
        root = self._workspaces.of(call.run).place
        move = Move.of(operation.source, operation.folder)
        await threads.finished(lambda: carry_out(root, move, is_again=call.attempt > 1))
        return records.Result(
            output={"from": move.source, "to": move.target}, summary=plain.preview(f"{move.source} to {move.target}")
        )
