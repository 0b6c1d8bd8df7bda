"""Slices of a journal: the lines sent to a workflow, referred to by position and hash.

Histories contain the reference. The codec of a worker replaces it by the content, which is built from the store's lines
and must have the recorded hash. A slice of an earlier moment can be rebuilt later, since journals only grow.
"""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app import errors
from app.domain import plain, records, runs
from app.domain.records import BlobRef
from app.engine import stores

DIFFERS = "journal_differs"  # Code of the refusal of a journal that differs from what its workflow received.

_KEPT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A reference to lines of a run's journal, or to one of its blobs."""

    run_id: str  # The run.
    first: int = 0  # Position of the first line.
    count: int = 0  # Number of lines.
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The decisions about the run at that moment, in short form."""
    whole: bool = False  # Whether the facts with which the run began are included.
    blob: Mapping[str, Any] | None = None  # Handle of a blob, instead of lines.
    sha256: str = ""  # Bare hash of the content.

    def encoded(self) -> bytes:
        """Return the slice in the form of histories."""
        names = ("run_id", "first", "count", "facts", "whole", "blob", "sha256")
        return plain.encode({name: getattr(self, name) for name in names})

    @classmethod
    def read(cls, encoded: bytes) -> Slice:
        """Read a slice that `encoded` wrote."""
        return cls(**json.loads(encoded))


class Contents:
    """Makes slices and their contents; the newest contents are kept in memory."""

    def __init__(self, store: stores.RunStore, kept_bytes: int = _KEPT_BYTES) -> None:
        self._store = store
        self._most = kept_bytes
        self._size = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def of(self, loaded: stores.Loaded, wanted: Slice) -> Slice:
        """Return a slice with the hash of its content, and keep the content."""
        return self.of_lines(loaded.start, loaded.records[wanted.first : wanted.first + wanted.count], wanted)

    def of_lines(self, start: runs.RunStart, lines: Sequence[records.Record], wanted: Slice) -> Slice:
        """Return a slice of these lines with the hash of its content, and keep the content."""
        content = _content(_unmarked(start), lines, wanted)
        sha256 = plain.sha256(content)
        self._keep(sha256, content)
        return _hashed(wanted, sha256)

    async def blob(self, run_id: str, blob: BlobRef) -> Slice:
        """Return a slice whose content is a blob."""
        wanted = Slice(run_id=run_id, blob=blob.to_json())
        [content] = await self._read(wanted)
        sha256 = plain.sha256(content)
        self._keep(sha256, content)
        return _hashed(wanted, sha256)

    async def content(self, wanted: Slice) -> bytes:
        """Return the content of a slice.

        Raises:
            errors.JournalCorrupt: the store's content does not have the recorded hash.
            errors.StorageFault: it cannot be read now.
        """
        known = self._kept.get(wanted.sha256)
        if known is not None:
            self._kept.move_to_end(wanted.sha256)
            return known
        # Lines that were just written are tried first; the whole journal is read only if these do not fit.
        content = _fitting(await self._read_lines(wanted), wanted) or _fitting(await self._read(wanted), wanted)
        if content is None:
            message = (
                f"run {wanted.run_id}: lines {wanted.first + 1} to {wanted.first + wanted.count} of its journal are "
                "not those that its workflow received"
            )
            raise errors.JournalCorrupt(message, code=DIFFERS, detail={"run_id": wanted.run_id})
        self._keep(wanted.sha256, content)
        return content

    async def _read_lines(self, wanted: Slice) -> Sequence[bytes]:
        # Reading a whole run for each of its lines would take longer and longer.
        if wanted.blob is not None or wanted.whole:
            return ()
        return [_content(None, await self._store.read_lines(wanted.run_id, wanted.first, wanted.count), wanted)]

    async def _read(self, wanted: Slice) -> Sequence[bytes]:
        if wanted.blob is not None:
            return [plain.encode(await self._store.read_blob(wanted.run_id, BlobRef.from_json(wanted.blob)))]
        loaded = await self._store.read(wanted.run_id)
        lines = loaded.records[wanted.first : wanted.first + wanted.count]
        # Histories of earlier versions contain the hash of content with the marks.
        return [_content(start, lines, wanted) for start in (_unmarked(loaded.start), loaded.start)]

    def _keep(self, sha256: str, content: bytes) -> None:
        if sha256 not in self._kept:
            self._kept[sha256] = content
            self._size += len(content)
        while self._size > self._most and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])


def lines_of(content: Mapping[str, Any]) -> list[records.Record]:
    """Return the records in the content of a slice."""
    return [records.read(position, line) for position, line in content["lines"]]


def _unmarked(start: runs.RunStart) -> runs.RunStart:
    # Labels and pin may change during a run; drivers do not read them.
    return dataclasses.replace(start, labels={}, pinned=False)


def _fitting(contents: Sequence[bytes], wanted: Slice) -> bytes | None:
    return next((each for each in contents if plain.sha256(each) == wanted.sha256), None)


def _content(start: runs.RunStart | None, lines: Sequence[records.Record], wanted: Slice) -> bytes:
    shown: dict[str, Any] = {
        "facts": dict(wanted.facts),
        "start": start.to_json() if start is not None and wanted.whole else None,
        "lines": [[record.position, dict(record.line)] for record in lines],
    }
    return plain.encode(shown)


def _hashed(wanted: Slice, sha256: str) -> Slice:
    return dataclasses.replace(wanted, sha256=sha256)
