"""The chain: seals each line of a journal to the one before, and determines how far a journal is sound.

A line is a JSON object that ends with `,"batch":N,"prev":"sha256:…","crc32":"…"}` and a newline:

- `batch` is the number of lines of the file that were known to be synced when this one was written. Lines synced
  together share it, and a line that can be read proves that every line before its batch was confirmed.
- `prev` is the sha256 of the line before, without its newline; of the bytes of start.json for the first line.
- `crc32` covers everything before it, so that damage is seen in the damaged line, the last one included.
"""

# Why: docs/decisions/0030.

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from app.domain import plain

_ENDING = re.compile(rb',"batch":(\d{1,15}),"prev":"(sha256:[0-9a-f]{64})","crc32":"([0-9a-f]{8})"}')
_LONGEST_ENDING = 140
_SHORTEST_ENDING = len(b',"crc32":"00000000"}')


class Integrity(Enum):
    """Meaning of the first bad place of a journal."""

    WHOLE = "whole"  # Every line is sound.
    TORN = "torn"  # The place is in the unconfirmed part: the end is cut off there.
    DAMAGED = "damaged"  # Confirmed lines are lost or changed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A line ready to be written."""

    content: bytes  # The line with its newline.
    digest: str  # Its hash, which the next line contains as `prev`.
    ending: dict[str, plain.Json]  # The added fields: `batch`, `prev`, `crc32`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sound line."""

    fields: dict[str, Any]  # The parsed line, including its ending.
    digest: str  # Its hash.
    begin: int  # Offset of its first byte.
    end: int  # Offset after its newline.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A journal, read up to its first bad place."""

    lines: list[Line]  # Sound lines, from the first.
    anchor: str  # Required `prev` of the first line.
    size: int  # Length of the file, including a bad end.
    integrity: Integrity  # Meaning of the first bad place.
    reason: str = ""  # Flaw at that place.

    @property
    def end(self) -> int:
        """Return the offset after the last sound line."""
        return self.lines[-1].end if self.lines else 0

    @property
    def head(self) -> str:
        """Return the hash that the next line must contain."""
        return self.lines[-1].digest if self.lines else self.anchor

    def first(self, count: int, integrity: Integrity, reason: str) -> Reading:
        """Return the reading limited to a number of lines."""
        return Reading(lines=self.lines[:count], anchor=self.anchor, size=self.size, integrity=integrity, reason=reason)


def seal(fields: bytes, *, batch: int, prev: str) -> Sealed:
    """Return an encoded JSON object as a line that is sealed to the line before."""
    body = b'%b,"batch":%d,"prev":"%b"' % (fields[:-1], batch, prev.encode())
    check = zlib.crc32(body)
    line = b'%b,"crc32":"%08x"}' % (body, check)
    ending = {"batch": batch, "prev": prev, "crc32": f"{check:08x}"}
    return Sealed(content=line + b"\n", digest=f"sha256:{hashlib.sha256(line).hexdigest()}", ending=ending)


def sealed(lines: Iterable[Mapping[str, plain.Json]], anchor: str) -> tuple[bytes, str]:
    """Return a journal of new lines, and the hash of the last line."""
    contents, prev = list[bytes](), anchor
    for line in lines:
        made = seal(plain.encode(line), batch=0, prev=prev)
        contents.append(made.content)
        prev = made.digest
    return b"".join(contents), prev


def read(content: bytes, anchor: str, former: Reading | None = None) -> Reading:
    """Read a journal up to its first bad place and determine what that place means.

    A line that is incomplete or fails its checksum is a torn end, unless a later line proves that it was confirmed. A
    line that is sound in itself but not sealed to the one before cannot come from a torn write.

    Args:
        former: Earlier reading of the journal; the content then begins after its sound lines.
    """
    lines: list[Line] = list(former.lines) if former else []
    # A longer journal is read from the end of the earlier reading.
    prev, least = (lines[-1].digest, int(lines[-1].fields["batch"])) if lines else (anchor, 0)
    begin, before = 0, lines[-1].end if lines else 0
    while begin < len(content):
        end = content.find(b"\n", begin)
        raw = content[begin:end] if end >= 0 else b""
        ending = _sound(raw)
        fields = _parsed(raw) if ending else None
        if ending is None or fields is None:
            return _judged(content, begin, lines, anchor, before)
        batch, named = int(ending[1]), ending[2].decode()
        # The journal never writes a number of synced lines that falls, or that exceeds the lines before it.
        if named != prev or not least <= batch <= len(lines):
            reason = "is not sealed to the line before it" if lines else "is not sealed to start.json"
            return _reading(before + len(content), lines, anchor, Integrity.DAMAGED, reason)
        prev, least = plain.labelled_sha256(raw), batch
        lines.append(Line(fields=fields, digest=prev, begin=before + begin, end=before + end + 1))
        begin = end + 1
    return _reading(before + len(content), lines, anchor, Integrity.WHOLE, "")


def last_fields(content: bytes) -> dict[str, Any] | None:
    """Return the last line of a journal's end if it is complete and sound, without reading the lines before it."""
    raw = content.rstrip(b"\n").rpartition(b"\n")[2]
    return _parsed(raw) if content.endswith(b"\n") and _sound(raw) else None


def sound_fields(content: bytes) -> list[dict[str, Any]]:
    """Return every line that is sealed and sound by itself, no matter which line it is sealed to."""
    found = (_parsed(raw) for raw in content.split(b"\n") if _sound(raw))
    return [fields for fields in found if fields is not None]


def previous(line: bytes) -> str | None:
    """Return the hash of the previous line that a sealed line contains; None if the line is not sealed."""
    ending = _sound(line.removesuffix(b"\n"))
    return None if ending is None else ending[2].decode()


def _sound(raw: bytes) -> re.Match[bytes] | None:
    tail = raw[-_LONGEST_ENDING:]
    ending = next((found for found in _ENDING.finditer(tail) if found.end() == len(tail)), None)
    if ending is None:
        return None
    check = zlib.crc32(raw[: len(raw) - _SHORTEST_ENDING])
    return ending if f"{check:08x}".encode() == ending[3] else None


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _judged(content: bytes, begin: int, lines: list[Line], anchor: str, before: int) -> Reading:
    size = before + len(content)
    proven = max((int(ending[1]) for ending in _ENDING.finditer(content, begin)), default=0)
    if proven > len(lines):
        return _reading(size, lines, anchor, Integrity.DAMAGED, "cannot be read, though later lines were confirmed")
    complete = content.find(b"\n", begin) >= 0
    return _reading(size, lines, anchor, Integrity.TORN, "cannot be read" if complete else "is incomplete")


def _reading(size: int, lines: list[Line], anchor: str, integrity: Integrity, reason: str) -> Reading:
    return Reading(lines=lines, anchor=anchor, size=size, integrity=integrity, reason=reason)
