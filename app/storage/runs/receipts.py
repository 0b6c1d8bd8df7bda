"""Receipts: proofs of tool executions, in one file for each work session, which outlives its runs."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from app import errors
from app.domain import plain, records
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.index.index_port import ReceiptPlace
from app.storage.runs import authority, blobs

_ID = re.compile(rb'"receipt_id"\s*:\s*"([^"\\]{1,80})"')
_LINE_BYTES = 64 * 1024
_RUNS_AT_ONCE = 8  # Journals kept in memory during a check; runs of a session may take turns.
_RECORDED = ("session_id", "run_id", "key", "tool", "args", "sha256")


def receipt_of(files: Disk, run_id: str, folder: str, session_id: str, record: records.Record) -> dict[str, plain.Json]:
    """Return a record's receipt; values that are too large for a line are read from a blob.

    Raises:
        errors.JournalCorrupt: a blob is missing or wrong.
    """

    def content(blob: records.BlobRef) -> plain.Json:
        return blobs.value(files, run_id, folder, blob)

    line = record.line
    receipt = {
        "receipt_id": record.receipt_id,
        "session_id": session_id,
        "run_id": run_id,
        "key": record.key,
        "tool": line.get("tool"),
        "args": _args(line["operation"], content),
        "payload": content(record.blob) if record.blob else record.output,
        "sha256": record.output_sha256,
        "started_at": record.started_at,
        "completed_at": record.completed_at,
    }
    return receipt if record.error is None else receipt | {"error": record.error.to_json()}


def append(files: Disk, session_id: str, receipts: Collection[dict[str, plain.Json]]) -> list[ReceiptPlace]:
    """Append receipts to their session's file, all or none, and return their positions.

    The session's folder is locked meanwhile: several runs, and other processes, write to the same file.
    """
    folder, lines = layout.session_folder(session_id), [plain.encode(receipt) + b"\n" for receipt in receipts]
    files.add_folder(folder)
    held = files.lock(folder, wait=True)
    try:
        offset = disk_port.append_whole(files, layout.receipts_file(session_id), b"".join(lines), sync=False)
    finally:
        if held is not None:
            held.release()
    places = []
    for receipt, line in zip(receipts, lines, strict=True):
        places.append(_place(receipt, session_id, offset))
        offset += len(line)
    return places


def make_durable(files: Disk, session_id: str) -> None:
    """Sync a session's file with its names when a run ends, since it is not restored later."""
    with contextlib.suppress(FileNotFoundError):
        disk_port.sync_file(files, layout.receipts_file(session_id))
        files.sync_folder(layout.session_folder(session_id))
        files.sync_folder(layout.SESSIONS)


def find(files: Disk, session_id: str, wanted: Collection[str]) -> dict[str, ReceiptPlace]:
    """Return the positions of those receipts that a session's file contains."""
    content, found = _content(files, session_id), {}
    for offset, line in _lines(content):
        if any(name.decode("utf-8", "replace") in wanted for name in _ID.findall(line)):
            receipt = _parsed(line)
            if receipt is not None and receipt["receipt_id"] in wanted:
                found[receipt["receipt_id"]] = _place(receipt, session_id, offset)
    return found


def scan(files: Disk, session_id: str) -> list[ReceiptPlace]:
    """Return the positions of a session's receipts."""
    parsed = ((offset, _parsed(line)) for offset, line in _lines(_content(files, session_id)))
    return [_place(receipt, session_id, offset) for offset, receipt in parsed if receipt is not None]


def read_at(files: Disk, place: ReceiptPlace) -> dict[str, Any] | None:
    """Return the receipt at a position; None if it is not there."""
    path, size = layout.receipts_file(place.session_id), _LINE_BYTES
    with contextlib.suppress(OSError):
        while True:
            part = files.read(path, place.offset_bytes, size)
            line, newline, _ = part.partition(b"\n")
            if newline or len(part) < size:
                receipt = _parsed(line)
                return receipt if receipt is not None and receipt["receipt_id"] == place.receipt_id else None
            size *= 4
    return None


def flaw(files: Disk, receipt: Mapping[str, Any], filed_under: str) -> str | None:
    """Return the flaw of a receipt's line, worded to follow its name; None if it is sound.

    The payload must match its hash, and both must match the record of the run. If the run is gone, only the hash is
    checked.

    Args:
        filed_under: Session whose file contains the line.
    """
    if _folder(receipt.get("session_id")) != _folder(filed_under):
        return "is in the file of another session"
    if _hash(receipt.get("payload")) != receipt.get("sha256"):
        return "holds another payload than its hash says"
    try:
        made = _recorded(files, receipt, lambda run_id: authority.read(files, run_id))
    except (errors.NotFound, errors.JournalCorrupt):
        return None
    return "is not in the journal of its run" if made is None else _difference(receipt, made)


def _difference(receipt: Mapping[str, Any], made: Mapping[str, plain.Json]) -> str | None:
    differs = any(made[name] != receipt.get(name) for name in _RECORDED)
    return "says something else than the journal of its run" if differs else None


def check(files: Disk, name: str) -> tuple[int, int | None, str | None]:
    """Return the number of receipts in a session folder's file, and its first bad line with the reason.

    A receipt that the journal of its run lacks is sound: a repair cuts lines off, and their receipts outlive them.
    """
    count, read = 0, functools.lru_cache(maxsize=_RUNS_AT_ONCE)(lambda run_id: authority.read(files, run_id))
    for count, (_, line) in enumerate(_lines(files.read(f"{layout.SESSIONS}/{name}/{layout.RECEIPTS}")), start=1):
        receipt = _parsed(line)
        if receipt is None:
            return count, count, "is not a receipt"
        if _folder(receipt.get("session_id")) != f"{layout.SESSIONS}/{name}":
            return count, count, f"{receipt['receipt_id']} belongs to another session"
        if _hash(receipt.get("payload")) != receipt.get("sha256"):
            return count, count, f"{receipt['receipt_id']} holds another payload than its hash says"
        # A run that is damaged, or cannot be read now, has a report of its own.
        with contextlib.suppress(errors.NotFound, errors.JournalCorrupt, errors.Unreadable):
            made = _recorded(files, receipt, read)
            if made is not None and (difference := _difference(receipt, made)) is not None:
                return count, count, f"{receipt['receipt_id']} {difference}"
    return count, None, None


def sessions(files: Disk) -> list[str]:
    """Return the names of all folders of receipts."""
    return files.names(layout.SESSIONS)


def _folder(session_id: Any) -> str:
    return layout.session_folder(str(session_id))


def _hash(payload: plain.Json) -> str | None:
    try:
        return None if payload is None else plain.sha256(plain.content(payload))
    except ValueError:
        return ""


def _recorded(
    files: Disk, receipt: Mapping[str, Any], read: Callable[[str], authority.Authority]
) -> dict[str, plain.Json] | None:
    run_id = str(receipt.get("run_id"))
    known = read(run_id)
    for record in known.records:
        if record.receipt_id == receipt["receipt_id"]:
            made = receipt_of(files, run_id, layout.run_folder(run_id), known.start.session_id, record)
            return dict(json.loads(plain.encode(made)))
    return None


def _args(operation: dict[str, Any], content: Callable[[records.BlobRef], plain.Json]) -> plain.Json:
    body = operation.get("body")
    if body is None and operation.get("blob"):
        body = content(records.BlobRef.from_json(operation["blob"]))
    return body.get("args") if isinstance(body, dict) else None


def _content(files: Disk, session_id: str) -> bytes:
    try:
        return files.read(layout.receipts_file(session_id))
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    begin = 0
    while (end := content.find(b"\n", begin)) >= 0:
        yield begin, content[begin:end]
        begin = end + 1


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        receipt = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return receipt if isinstance(receipt, dict) and isinstance(receipt.get("receipt_id"), str) else None


def _place(receipt: dict[str, Any], session_id: str, offset: int) -> ReceiptPlace:
    run_id = receipt.get("run_id")
    return ReceiptPlace(
        receipt_id=receipt["receipt_id"],
        session_id=session_id,
        run_id=run_id if isinstance(run_id, str) else "",
        offset_bytes=offset,
    )
