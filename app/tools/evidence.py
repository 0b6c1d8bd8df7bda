"""Perform `check_evidence`: find quotes in files of the workspace, and receipts in the session."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app import errors
from app.domain import operations, plain, records
from app.engine import ports
from app.tools import quotes
from app.tools.reserved import Root
from app.tools.scanning import Limits
from app.tools.threads import FileThreads
from app.tools.workspace import Workspace, Workspaces

FILE_BYTES = 16 * 1024 * 1024  # Largest file that a quote is looked for in.

ProveReceipt = Callable[[str], Awaitable[plain.Object]]
"""Return a receipt that is as its run has written it, or raise `errors.NotFound` or `errors.Conflict`."""


class EvidencePerformer:
    """Look whether a reply's evidence is where it says."""

    def __init__(self, workspaces: Workspaces, prove_receipt: ProveReceipt) -> None:
        self._workspaces = workspaces
        self._prove_receipt = prove_receipt
        self._threads = FileThreads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.CheckEvidence`.

        A quote must stand word for word in the file; how the text is set does not count (`quotes`).

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
        root, path, quote = self._workspaces.of(call.run).place, operation.path or "", operation.quote or ""
        output = await self._threads.look(operation, lambda: _looked_up(root, path, quote))
        return records.Result(output=output, summary=plain.preview(f"quoted from {path}"))

    async def _receipt(self, call: ports.Call, receipt_id: str) -> records.Result:
        try:
            receipt: Mapping[str, Any] = await self._prove_receipt(receipt_id)
        except errors.NotFound:
            receipt = {}
        except errors.Conflict as error:
            reported = f"The evidence names a receipt that has been changed: {error.message}."
            raise _rejected("receipt_altered", reported, form="receipt", receipt_id=receipt_id) from error
        if receipt.get("session_id") != call.run.session_id:
            reported = f"The evidence names the receipt {receipt_id}, which is none of this session."
            raise _rejected("receipt_unknown", reported, form="receipt", receipt_id=receipt_id)
        found = {name: receipt.get(name) for name in ("receipt_id", "run_id", "key", "tool", "sha256")}
        return records.Result(output={"form": "receipt"} | found, summary=plain.preview(f"receipt {receipt_id}"))


def _looked_up(root: Root, path: str, quote: str) -> dict[str, plain.Json]:
    try:
        text = _text(Workspace(root, Limits(file_bytes=FILE_BYTES)), path)
    except errors.ToolFailed as failure:
        if failure.code.startswith("workspace"):
            raise
        reported = f"The file that the evidence quotes cannot be read: {failure.message}"
        raise _rejected(failure.code, reported, **(failure.detail | {"form": "file", "path": path})) from failure
    if not quotes.holds(text, quote):
        reported = f"The words that the evidence quotes do not stand in {path!r:.200}: {plain.preview(quote)!r}."
        found = quotes.beginning(text, quote)
        raise _rejected("quote_not_found", reported, form="file", path=path, quote=quote, found=found)
    return {"form": "file", "path": path, "sha256": plain.sha256(text.encode())}


def _text(workspace: Workspace, path: str) -> str:
    # A name with accents can be encoded in two ways, which no reader can tell apart.
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, path)
        if other != path and not workspace.exists(path) and workspace.exists(other):
            return workspace.read_text(other)
    return workspace.read_text(path)


def _rejected(code: str, message: str, **facts: plain.Json) -> errors.EvidenceRejected:
    return errors.EvidenceRejected(message, code=code, detail={"evidence": facts})
