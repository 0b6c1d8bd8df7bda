"""
Perform `check_evidence`: find quotes in files of the workspace, and receipts in the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app import errors
from app.engine import operations, plain, ports, records
from app.tools.file_threads import FileThreads
from app.tools.scanning import Limits
from app.tools.workspace import Workspace
from app.tools.workspaces import Workspaces

FILE_BYTES = 16 * 1024 * 1024
"""Largest file that a quote is looked for in."""

_CHUNK_CHARACTERS = 64 * 1024
_MOST_PLACES = 10_000
_FIRST_WITHOUT_SPACES = "\u0e00"
"""From here on scripts are found that put no spaces between words."""

FindReceipt = Callable[[str], Awaitable[Mapping[str, plain.Json]]]
"""Return a receipt by its id, or raise `errors.NotFound`."""


class EvidencePerformer:
    """
    Look whether a reply's evidence is where it says.
    """

    def __init__(self, workspaces: Workspaces, find_receipt: FindReceipt) -> None:
        self._workspaces = workspaces
        self._find_receipt = find_receipt
        self._threads = FileThreads()

    async def perform(self, call: ports.Call) -> records.Result:
        """
        Perform one try of an `operations.CheckEvidence`.

        A quote must stand word for word in the file, letters and punctuation as they are; only where white space lies,
        and how much of it, does not count, since a quote is one line and a text may be broken into many.

        Raises:
            errors.EvidenceRejected: `quote_not_found`, `receipt_unknown`, or why the file cannot be read:
                `file_not_found`, `path_outside_workspace`, `not_a_file`, `file_too_large`, `not_text`,
                `file_unreadable`.
            errors.ToolFailed: `workspace_not_allowed`, `timeout`.
        """
        operation = call.operation
        assert isinstance(operation, operations.CheckEvidence)
        if operation.receipt_id is not None:
            return await self._receipt(call, operation.receipt_id)
        root, path, quote = self._workspaces.of(call.run).root, operation.path or "", operation.quote or ""
        output = await self._threads.look(operation, lambda: _looked_up(root, path, quote))
        return records.Result(output=output, summary=plain.preview(f"quoted from {path}"))

    async def _receipt(self, call: ports.Call, receipt_id: str) -> records.Result:
        try:
            receipt: Mapping[str, Any] = await self._find_receipt(receipt_id)
        except errors.NotFound:
            receipt = {}
        if receipt.get("session_id") != call.run.session_id:
            told = f"The evidence names the receipt {receipt_id}, which is none of this session."
            raise _rejected("receipt_unknown", told, form="receipt", receipt_id=receipt_id)
        found = {name: receipt.get(name) for name in ("receipt_id", "run_id", "key", "tool", "sha256")}
        return records.Result(output={"form": "receipt"} | found, summary=plain.preview(f"receipt {receipt_id}"))


def holds(text: str, quote: str) -> bool:
    """
    Tell whether words stand in a text, from the beginning of a word to the end of one, white space aside.
    """
    wanted, known = _spaced(quote), _spaced(text)
    return bool(wanted) and any(_apart(known, place, wanted) for place in _places(known, wanted))


def _looked_up(root: Path, path: str, quote: str) -> dict[str, plain.Json]:
    try:
        text = Workspace(root, Limits(file_bytes=FILE_BYTES)).read_text(path)
    except errors.ToolFailed as failure:
        if failure.code.startswith("workspace"):
            raise
        told = f"The file that the evidence quotes cannot be read: {failure.message}"
        raise _rejected(failure.code, told, **(failure.detail | {"form": "file", "path": path})) from failure
    if not holds(text, quote):
        told = f"The words that the evidence quotes do not stand in {path!r:.200}: {plain.preview(quote)!r}."
        raise _rejected("quote_not_found", told, form="file", path=path, quote=quote, found=_beginning(text, quote))
    return {"form": "file", "path": path, "sha256": plain.sha256(text.encode())}


def _beginning(text: str, quote: str) -> str:
    """
    Return how much of a quote does stand there, word by word from its first: what follows has been changed.
    """
    known, words = _spaced(text), quote.split()
    least, most = 0, len(words)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if " ".join(words[:middle]) in known else (least, middle - 1)
    return " ".join(words[:least])


def _spaced(text: str) -> str:
    # In pieces, so that a large file does not keep the interpreter from everybody else.
    pieces = (text[begin : begin + _CHUNK_CHARACTERS] for begin in range(0, len(text), _CHUNK_CHARACTERS))
    return " ".join(" ".join(words) for words in _words(pieces) if words)


def _words(pieces: Iterator[str]) -> Iterator[list[str]]:
    cut = ""
    for piece in pieces:
        words = (cut + piece).split()
        cut = "" if piece[-1].isspace() or not words else words.pop()
        yield words
    yield [cut] if cut else []


def _places(text: str, wanted: str) -> Iterator[int]:
    place = -1
    for _ in range(_MOST_PLACES):
        place = text.find(wanted, place + 1)
        if place < 0:
            return
        yield place


def _apart(text: str, place: int, wanted: str) -> bool:
    end = place + len(wanted)
    return not _joined(text[max(place - 1, 0) : place], wanted[0]) and not _joined(wanted[-1], text[end : end + 1])


def _joined(left: str, right: str) -> bool:
    return all(part.isalnum() and part < _FIRST_WITHOUT_SPACES for part in (left, right))


def _rejected(code: str, message: str, **facts: plain.Json) -> errors.EvidenceRejected:
    return errors.EvidenceRejected(message, code=code, detail={"evidence": facts})
