"""Adoption: makes a run with chained journals from a folder that follows execution-modes, appendix A.

No content is lost: the old journal is kept as `steps.jsonl.adopted`. start.json is written last, so that an interrupted
adoption is simply repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.domain import decisions, plain, records, runs, states
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.journal import chain, damage
from app.storage.runs import blobs, receipts

_LABEL = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An old line whose output is proven."""

    line: Mapping[str, plain.Json]  # The line as it was written.
    output: plain.Json  # Output of the line, from its slot.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A folder written by hand."""

    run_id: str  # Name of the folder.
    manifest: dict[str, Any]  # run.json.
    kept: list[Kept]  # Old lines whose output exists and matches.
    dropped: int  # Old lines after them; their steps run again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The files of the run that the folder becomes."""

    start: bytes  # start.json.
    steps: bytes  # steps.jsonl.
    control: bytes  # control.jsonl.
    outputs: list[bytes]  # Outputs too large for a line, to be kept as blobs.


def find(files: Disk, run_id: str) -> Found:
    """Read a folder without start.json.

    Raises:
        errors.NotFound: it contains no run.json either.
        errors.JournalCorrupt: run.json cannot be read.
    """
    folder = layout.run_folder(run_id)
    manifest = read_manifest(files, run_id)
    slots = _object(files, f"{folder}/{layout.CACHE}")
    lines = list(_lines(_old_journal(files, folder)))
    payloads = _Payloads(files, str(manifest.get("session_id") or ""))
    kept: list[Kept] = []
    for line in lines:
        found = _believed(line, slots, payloads)
        if found is None:
            break
        kept.append(found)
    return Found(run_id=run_id, manifest=manifest, kept=kept, dropped=len(lines) - len(kept))


def read_manifest(files: Disk, run_id: str) -> dict[str, Any]:
    """Read run.json of a folder without start.json.

    Raises:
        errors.NotFound: it does not exist.
        errors.JournalCorrupt: it cannot be read.
    """
    path = f"{layout.run_folder(run_id)}/{layout.MANIFEST}"
    if not files.has_file(path):
        raise errors.no_run(run_id)
    manifest = _object(files, path)
    if not isinstance(manifest.get("recipe_id"), str):
        raise damage.corrupt(run_id, layout.MANIFEST, "cannot be read, and there is no start.json")
    return manifest


def status_of(manifest: Mapping[str, Any]) -> states.RunState:
    """Return the state in a manifest; an unreadable one counts as unfinished."""
    try:
        return states.RunState(str(manifest.get("status")))
    except ValueError:
        return states.RunState.RUNNING


def convert(found: Found, start: runs.RunStart, now: str, *, inline: bool = False) -> Converted:
    """Return the files of the run that a folder becomes.

    Args:
        inline: Whether large outputs stay in their lines, for a run that is only read.
    """
    start_content = plain.encode(start.to_json()) + b"\n"
    anchor = plain.labelled_sha256(start_content)
    outputs: list[bytes] = []
    lines = [_converted(kept, None if inline else outputs) for kept in found.kept]
    steps, head = chain.sealed(lines, anchor)
    status = status_of(found.manifest)
    decided = [_ended(found, status, len(lines), head, now)] if status.finished else []
    if status is states.RunState.PAUSED:
        decided = [_paused(found, now)]
    control, _ = chain.sealed(decided, anchor)
    return Converted(start=start_content, steps=steps, control=control, outputs=outputs)


def write(files: Disk, run_id: str, converted: Converted, reach: Callable[[str], None]) -> None:
    """Put the converted files in place."""
    folder = layout.run_folder(run_id)
    for output in converted.outputs:
        blobs.put(files, folder, output, text=True, reach=reach)
    # The old journal is set aside once. After an interrupted adoption, steps.jsonl may already be the converted one,
    # which must not replace the original. start.json is last: until it exists, the adoption is repeated.
    if not files.has_file(f"{folder}/{layout.ADOPTED}"):
        old = files.read(f"{folder}/{layout.STEPS}") if files.has_file(f"{folder}/{layout.STEPS}") else b""
        disk_port.replace(files, f"{folder}/{layout.ADOPTED}", old, sync=True, reach=reach, at="storage.adopt.aside")
    if files.has_file(f"{folder}/{layout.CONTROL}") and not files.has_file(f"{folder}/{layout.ADOPTED_CONTROL}"):
        decided = files.read(f"{folder}/{layout.CONTROL}")
        disk_port.replace(
            files, f"{folder}/{layout.ADOPTED_CONTROL}", decided, sync=True, reach=reach, at="storage.adopt.aside"
        )
    for name, content, at in (
        (layout.STEPS, converted.steps, "storage.adopt.steps"),
        (layout.CONTROL, converted.control, "storage.adopt.control"),
        (layout.START, converted.start, "storage.adopt.start"),
    ):
        disk_port.replace(files, f"{folder}/{name}", content, sync=True, reach=reach, at=at)


class _Payloads:
    """Payloads of a session's receipts, read at the first request."""

    def __init__(self, files: Disk, session_id: str) -> None:
        self._files = files
        self._session_id = session_id
        self._found: dict[str, plain.Json] | None = None

    def get(self, receipt_id: object) -> plain.Json:
        if self._found is None:
            places = receipts.scan(self._files, self._session_id) if self._session_id else []
            read = (receipts.read_at(self._files, place) for place in places)
            self._found = {receipt["receipt_id"]: receipt.get("payload") for receipt in read if receipt is not None}
        return self._found.get(str(receipt_id))


def _believed(line: Mapping[str, Any], slots: Mapping[str, Any], payloads: _Payloads) -> Kept | None:
    passed = line.get("status") in (states.StepState.DONE, states.StepState.SKIPPED)
    if not passed or not isinstance(line.get("step_id"), str):
        return None
    slot, digest = line.get("output_slot"), line.get("output_hash")
    if slot is None:
        return Kept(line=line, output=None) if digest is None else None
    held = slots.get(slot) if isinstance(slot, str) else None
    if not isinstance(held, dict) or not isinstance(digest, str):
        return None
    output = held.get("text") if held.get("type") == "artifact" else payloads.get(held.get("receipt_id"))
    claims = {digest.removeprefix(_LABEL), str(held.get("sha256")).removeprefix(_LABEL)}
    # Both the line and the slot name a hash. The step is kept only if both match the content: after an edit of
    # cache.json, the step runs again.
    if output is None or claims != {plain.sha256(plain.content(output))}:
        return None
    return Kept(line=line, output=output)


def _converted(kept: Kept, outputs: list[bytes] | None) -> dict[str, plain.Json]:
    line, output, blob = kept.line, kept.output, None
    content = b"" if output is None else plain.content(output)
    if outputs is not None and len(content) > records.BLOB_BYTES:
        outputs.append(content)
        blob = records.BlobRef(
            sha256=plain.sha256(content), size_bytes=len(content), text=isinstance(output, str)
        ).to_json()
    at = str(line.get("completed_at") or line.get("started_at") or "")
    return {
        **line,
        "output_preview": str(line.get("output_preview") or ""),
        "started_at": str(line.get("started_at") or at),
        "completed_at": at,
        "error": None,
        "key": line["step_id"],
        "attempt": 1,
        "visit": 1,
        "branch": "",
        "operation": {"hash": records.ADOPTED},
        "output": None if blob else output,
        "blob": blob,
        "usage": None,
        "agent_session_id": None,
        "duration_ms": _milliseconds(line),
        "final": True,
        "retry_at": None,
    }


def _milliseconds(line: Mapping[str, Any]) -> float | None:
    try:
        began, ended = clock.instant(line["started_at"]), clock.instant(line["completed_at"])
    except (KeyError, ValueError, TypeError):
        return None
    return (ended - began).total_seconds() * 1000


def _ended(found: Found, status: states.RunState, lines: int, head: str, now: str) -> dict[str, plain.Json]:
    error = found.manifest.get("error")
    return {
        "kind": decisions.DecisionKind.ENDED.value,
        "at": str(found.manifest.get("completed_at") or found.manifest.get("updated_at") or now),
        "status": status.value,
        "lines": lines,
        "head": head,
        "causes": [],
        "error": error if isinstance(error, dict) else None,
        "ending": None,
    }


def _paused(found: Found, now: str) -> dict[str, plain.Json]:
    return {
        "kind": decisions.DecisionKind.PAUSED.value,
        "at": str(found.manifest.get("updated_at") or now),
        "reason": decisions.PAUSED_BY_PERSON,
    }


def _old_journal(files: Disk, folder: str) -> bytes:
    for name in (layout.ADOPTED, layout.STEPS):
        if files.has_file(f"{folder}/{name}"):
            return files.read(f"{folder}/{name}")
    return b""


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    # The first unreadable line ends the journal: later lines are not in order any more.
    for raw in content.split(b"\n"):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            return
        if not isinstance(line, dict):
            return
        yield line


def _object(files: Disk, path: str) -> dict[str, Any]:
    try:
        value = json.loads(files.read(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
