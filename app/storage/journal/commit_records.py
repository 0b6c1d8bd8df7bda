"""Records of the commit log: contents written to files of runs, each with a checksum of its own.

A segment begins with a line `{"format":1,"boot_id":"…"}`. A record is a line
`{"run_id":"…","path":"…","offset":N,"bytes":N,"crc32":"…"}`, followed by that many bytes and a newline.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.domain import plain
from app.storage import layout

_FORMAT = 1
_BEGINNING = b'\n{"run_id":"'
_SEGMENT = re.compile(r"(\d{1,15})(\.kept)?\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Content that was written to one file."""

    run_id: str  # Run that the file belongs to.
    path: str  # The file.
    offset: int  # Offset of the content in the file.
    content: bytes  # The content.


def segment(number: int) -> str:
    """Return the path of a segment."""
    return f"{layout.COMMITS}/{number}.log"


def kept(path: str) -> str:
    """Return the path of a segment whose files could not be synced; the next start always completes them from it."""
    return f"{path.removesuffix('.log')}.kept.log"


def is_kept(name: str) -> bool:
    """Return whether a segment's files could not be synced."""
    return name.endswith(".kept.log")


def unread(path: str) -> str:
    """Return the path under which an unreadable segment is kept for a person."""
    return f"{path}.unread"


def number(name: str) -> int:
    """Return a segment's number; 0 for any other file."""
    found = _SEGMENT.fullmatch(name)
    return int(found[1]) if found else 0


def head(boot_id: str) -> bytes:
    """Return the first line of a segment that begins during the boot with this id."""
    return plain.encode({"format": _FORMAT, "boot_id": boot_id}) + b"\n"


def read(content: bytes) -> tuple[str | None, list[Record]]:
    """Return the boot id of a segment, None if its head cannot be read, and its sound records.

    A torn or damaged record is skipped: checksums of their own prove the later ones.
    """
    first, _, _ = content.partition(b"\n")
    begun = _parsed(first)
    if begun.get("format") != _FORMAT:
        return None, []
    return str(begun.get("boot_id")), list(_records(content, len(first) + 1))


def _records(content: bytes, begin: int) -> Iterator[Record]:
    while 0 <= begin < len(content):
        record, behind = _record(content, begin)
        if record is not None:
            yield record
            begin = behind
        else:
            begin = content.find(_BEGINNING, begin) + 1 or len(content)


def _record(content: bytes, begin: int) -> tuple[Record | None, int]:
    end = content.find(b"\n", begin)
    header = _parsed(content[begin:end]) if end >= 0 else {}
    try:
        size, check = int(header["bytes"]), str(header["crc32"])
        record = Record(
            run_id=str(header["run_id"]),
            path=str(header["path"]),
            offset=int(header["offset"]),
            content=content[end + 1 : end + 1 + max(0, size)],
        )
    except (KeyError, ValueError, TypeError):
        return None, begin
    # A record torn by a power cut ends the segment.
    sound = len(record.content) == size and f"{zlib.crc32(record.content):08x}" == check
    return (record, end + 1 + size + 1) if sound else (None, begin)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
