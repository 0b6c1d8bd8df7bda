"""Paths of commands: the working folder and the output file of a command, both inside the workspace."""

from __future__ import annotations

import os
import stat

from app import errors
from app.tools import failures
from app.tools.confinement import Descent, components
from app.tools.workspace import Workspace

_MODE = 0o666
# O_NONBLOCK: opening a named pipe must not wait for a reader.
_WRITTEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def folder(workspace: Workspace, path: str) -> int:
    """Return a descriptor, owned by the caller, of the workspace's root or of a folder below it.

    Raises:
        errors.ToolFailed: `path_outside_workspace`, `workspace_missing`, `cwd_missing`.
    """
    parts = components(path)
    with Descent(workspace.place, path) as descent:
        try:
            descent.enter(parts)
        except errors.ToolFailed as failure:
            if failure.code != "file_not_found":
                raise
            raise errors.ToolFailed(
                f"The command's folder {path!r:.200} does not exist in the workspace.",
                code="cwd_missing",
                detail=failure.detail,
            ) from failure
        try:
            return os.dup(descent.folder)
        except OSError as error:
            raise failures.of_system(path, error) from error


def output(workspace: Workspace, path: str) -> int:
    """Return a descriptor of an empty file; make missing folders and follow links.

    Raises:
        errors.ToolFailed: `path_outside_workspace`, `workspace_missing`, `not_a_file`, `write_failed`.
    """
    with Descent(workspace.place, path) as descent:
        name = descent.reach(components(path))
        try:
            file = os.open(name, _WRITTEN, _MODE, dir_fd=descent.folder)
        except IsADirectoryError:
            raise failures.not_a_file(path) from None
        except OSError as error:
            raise failures.of_system(path, error, "write_failed") from error
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            # The same file may have another name in a reserved folder: the file of that name keeps its content.
            os.close(file)
            file = _replaced(descent.folder, name, stat.S_IMODE(found.st_mode), path)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        raise failures.not_a_file(path)
    try:
        # Emptied only now: O_TRUNC would have emptied a file with a second name before that name was detected.
        os.truncate(file, 0)
    except OSError as error:
        os.close(file)
        raise failures.of_system(path, error, "write_failed") from error
    return file


def _replaced(folder: int, name: str, mode: int, path: str) -> int:
    try:
        os.unlink(name, dir_fd=folder)
        return os.open(name, _WRITTEN | os.O_EXCL, mode, dir_fd=folder)
    except OSError as error:
        raise failures.of_system(path, error, "write_failed") from error
