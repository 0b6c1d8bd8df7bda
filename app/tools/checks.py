"""Perform checks of the workspace, and put texts into it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from app import errors
from app.domain import operations, plain, records
from app.engine import ports
from app.tools import failures, threads
from app.tools.confinement import components
from app.tools.workspace import Workspace, Workspaces, WrittenFile


class CheckPerformer:
    """Look at one fact of the workspace."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.Check`; the output is `{"check", "path", "holds"}`.

        Raises:
            errors.ToolFailed: `unknown_check`, `invalid_subject`, `path_outside_workspace`, `workspace_not_allowed`.
        """
        operation = call.operation
        assert isinstance(operation, operations.Check)
        if operation.check != "file_exists":
            message = f"There is no check {operation.check!r:.80}; there is file_exists."
            raise errors.ToolFailed(message, code="unknown_check")
        path = operation.subject
        if not isinstance(path, str) or not path:
            raise errors.ToolFailed("The check file_exists needs a path.", code="invalid_subject")
        holds = await asyncio.to_thread(self._workspaces.of(call.run).exists, path)
        summary = f"{path} {'exists' if holds else 'does not exist'}"
        return records.Result(
            output={"check": operation.check, "path": path, "holds": holds}, summary=plain.preview(summary)
        )


class CommitFilePerformer:
    """Put a text into a file of the workspace, once, however often the step is tried."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.CommitFile`; the output is `{"path", "sha256", "size_bytes"}`.

        A write that has begun is finished before a cancellation continues, so that none lands afterwards.

        Raises:
            errors.ToolFailed: `file_exists`, `path_outside_workspace`, `write_failed`, … as `Workspace.write_text`.
        """
        operation = call.operation
        assert isinstance(operation, operations.CommitFile)
        text = await _text(call, operation.text)
        workspace = self._workspaces.of(call.run)
        written = await threads.finished(lambda: _commit(workspace, operation, text, call.attempt))
        return records.Result(
            output={"path": written.path, "sha256": written.sha256, "size_bytes": written.size_bytes},
            summary=plain.preview(f"{written.path} ({written.size_bytes} bytes)"),
        )


async def _text(call: ports.Call, text: plain.Json) -> str:
    if isinstance(text, dict) and "blob" in text:
        text = await call.read_blob(records.BlobRef.from_json(text["blob"]))
    if not isinstance(text, str):
        raise errors.ToolFailed("Only a text can be written to a file.", code="not_text")
    return text


def _commit(workspace: Workspace, operation: operations.CommitFile, text: str, attempt: int) -> WrittenFile:
    """Write the file, at its second path where the first has one, unless an earlier try has done it unrecorded.

    A later try takes a file with the very same bytes for its own. If it was somebody else's after all, nothing is lost
    either: what should stand there does.
    """
    content = text.encode(errors="replace")
    places = [operation.path, *([operation.otherwise] if operation.otherwise is not None else [])]
    for place in places if attempt > 1 else ():
        if workspace.existing_sha256(place) == plain.sha256(content):
            _sync_folders(workspace.root, workspace.root / place)
            return WrittenFile(path="/".join(components(place)), sha256=plain.sha256(content), size_bytes=len(content))
    try:
        return workspace.write_text(operation.path, text, overwrite=operation.overwrite)
    except errors.ToolFailed as failure:
        if operation.otherwise is None or failure.code != "file_exists":
            raise
    return workspace.write_text(operation.otherwise, text, overwrite=operation.overwrite)


def _sync_folders(root: Path, path: Path) -> None:
    """Make the names on the way to a file durable: the try that made them may have died before it did."""
    for folder in path.parents:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise failures.of_system(str(path.relative_to(root)), error, "write_failed") from error
        if folder == root:
            return
