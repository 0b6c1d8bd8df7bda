"""Perform checks of the workspace and of evidence, and write texts to its files."""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app import errors, printable
from app.domain import operations, plain, records, runs
from app.engine import ports
from app.tools import failures, quotes, threads
from app.tools.confinement import components
from app.tools.reserved import Root
from app.tools.scanning import Limits
from app.tools.threads import Threads
from app.tools.workspace import Workspace, Workspaces, WrittenFile


class CheckPerformer:
    """Check one fact of the workspace."""

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
    """Write a text to a file of the workspace, once, however often the step is tried."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.CommitFile`; the output is `{"path", "sha256", "size_bytes"}`.

        A write that has begun is finished before a cancellation continues, so that no write happens afterwards.

        Raises:
            errors.ToolFailed: `file_exists`, `path_outside_workspace`, `write_failed`, … as `Workspace.write_text`.
        """
        operation = call.operation
        assert isinstance(operation, operations.CommitFile)
        text = await _text(call, operation.text)
        workspace = self._workspaces.of(call.run)
        places = _places(operation, call.run)
        written = await threads.finished(lambda: _commit(workspace, places, text, call))
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


def _places(operation: operations.CommitFile, run: runs.RunStart) -> list[str]:
    """Return the paths to try, in this order."""
    named = [operation.path, *([operation.otherwise] if operation.otherwise is not None else [])]
    if run.id_root is None:
        return named
    # Drivers name the files of a fork after the run that it began with. That run has written them, and keeps them.
    return list(dict.fromkeys(each for path in named for each in (path, path.replace(run.id_root, run.run_id))))


def _commit(workspace: Workspace, places: Sequence[str], text: str, call: ports.Call) -> WrittenFile:
    """Write to the first path that is free, unless an earlier try has already done so without a record.

    A later try treats a file with the same bytes as its own. If another writer created it after all, the file still has
    the right content.
    """
    content = text.encode(errors="replace")
    for place in places if call.attempt > 1 else ():
        if workspace.existing_sha256(place) == plain.sha256(content):
            _sync_folders(workspace.root, workspace.root / place)
            return WrittenFile(path="/".join(components(place)), sha256=plain.sha256(content), size_bytes=len(content))
    *earlier, last = places
    for place in earlier:
        try:
            return _write(workspace, place, text, call)
        except errors.ToolFailed as failure:
            if failure.code != "file_exists":
                raise
    return _write(workspace, last, text, call)


def _write(workspace: Workspace, place: str, text: str, call: ports.Call) -> WrittenFile:
    assert isinstance(call.operation, operations.CommitFile)
    # A resumed run replaces the file of an earlier attempt, unless the file was changed since.
    known = call.committed.get("/".join(components(place)))
    is_own = known is not None and workspace.existing_sha256(place) == known
    return workspace.write_text(place, text, overwrite=call.operation.overwrite or is_own)


def _sync_folders(root: Path, path: Path) -> None:
    """Sync the folders on the way to a file: the try that made them may have died before it synced them."""
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


FILE_BYTES = 16 * 1024 * 1024  # Largest file that is searched for a quote.

ProveReceipt = Callable[[str], Awaitable[plain.Object]]
"""Return a receipt that is unchanged since its run wrote it, or raise `errors.NotFound` or `errors.Conflict`."""


class EvidencePerformer:
    """Check that the evidence of a reply is where the reply locates it."""

    def __init__(self, workspaces: Workspaces, prove_receipt: ProveReceipt) -> None:
        self._workspaces = workspaces
        self._prove_receipt = prove_receipt
        self._threads = Threads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.CheckEvidence`.

        A quote must be in the file word for word; the formatting of the text does not count (`quotes`).

        Raises:
            errors.EvidenceRejected: `quote_not_found`, `receipt_unknown`, `receipt_altered`, or why the file cannot be
                read: `file_not_found`, `path_outside_workspace`, `not_a_file`, `file_too_large`, `not_text`,
                `file_unreadable`.
            errors.ToolFailed: `workspace_not_allowed`, `timeout`.
        """
        operation = call.operation
        assert isinstance(operation, operations.CheckEvidence)
        if operation.receipt_id is not None:
            return await self._receipt(call, operation.receipt_id)
        path, quote, text = operation.path or "", operation.quote or "", operation.text
        if text is None:
            root = self._workspaces.of(call.run).place
            output = await self._threads.perform(operation, lambda: _looked_up(root, path, quote))
        else:
            output = await asyncio.to_thread(_quoted, text, path, quote)
        return records.Result(output=output, summary=plain.preview(f"quoted from {path}"))

    async def _receipt(self, call: ports.Call, receipt_id: str) -> records.Result:
        try:
            receipt: Mapping[str, Any] = await self._prove_receipt(receipt_id)
        except errors.NotFound:
            receipt = {}
        except errors.Conflict as error:
            reported = printable.sentence(f"The evidence names a receipt that has been changed: {error.message}")
            raise _rejected("receipt_altered", reported, form="receipt", receipt_id=receipt_id) from error
        if receipt.get("session_id") != call.run.session_id:
            reported = f"The evidence names the receipt {receipt_id}, which is none of this session."
            raise _rejected("receipt_unknown", reported, form="receipt", receipt_id=receipt_id)
        found = {name: receipt.get(name) for name in ("receipt_id", "run_id", "key", "tool", "sha256")}
        return records.Result(output={"form": "receipt"} | found, summary=plain.preview(f"receipt {receipt_id}"))


def _looked_up(root: Root, path: str, quote: str) -> dict[str, plain.Json]:
    try:
        text = _quoted_text(Workspace(root, Limits(file_bytes=FILE_BYTES)), path)
    except errors.ToolFailed as failure:
        if failure.code.startswith("workspace"):
            raise
        reported = f"The file that the evidence quotes cannot be read: {failure.message}"
        raise _rejected(failure.code, reported, **(failure.detail | {"form": "file", "path": path})) from failure
    return _quoted(text, path, quote)


def _quoted(text: str, path: str, quote: str) -> dict[str, plain.Json]:
    if not quotes.holds(text, quote):
        reported = f"The words that the evidence quotes are not in {path!r:.200}: {plain.preview(quote)!r}."
        found = quotes.beginning(text, quote)
        raise _rejected("quote_not_found", reported, form="file", path=path, quote=quote, found=found)
    return {"form": "file", "path": path, "sha256": plain.sha256(text.encode())}


def _quoted_text(workspace: Workspace, path: str) -> str:
    # A name with accents can be encoded in two ways, which no reader can distinguish.
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, path)
        if other != path and not workspace.exists(path) and workspace.exists(other):
            return workspace.read_text(other)
    return workspace.read_text(path)


def _rejected(code: str, message: str, **facts: plain.Json) -> errors.EvidenceRejected:
    return errors.EvidenceRejected(message, code=code, detail={"evidence": facts})
