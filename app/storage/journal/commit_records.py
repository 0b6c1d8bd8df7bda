"""Records of the commit log: what was written where, each with a checksum of its own.

A segment begins with a line `{"format":1,"boot_id":"…"}`. A record is a line
`{"run_id":"…","path":"…","offset":N,"bytes":N,"crc32":"…"}` and as many bytes as it says, a newline behind them.
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
    """What was written to one file."""

    run_id: str  # The run that the file belongs to.
    path: str  # The file.
    offset: int  # Where the content begins in it.
    content: bytes  # What was written.


def segment(number: int) -> str:
    """Return the path of a segment."""
    return f"{layout.COMMITS}/{number}.log"


def kept(path: str) -> str:
    """Return the path of a segment whose files could not be synced, so that they are completed from it in any case."""
    return f"{path.removesuffix('.log')}.kept.log"


def is_kept(name: str) -> bool:
    """Return whether a segment's files could not be synced."""
    return name.endswith(".kept.log")


def unread(path: str) -> str:
    """Return the path under which a segment that cannot be read is kept for a person."""
    return f"{path}.unread"


def number(name: str) -> int:
    """Return a segment's number; 0 for any other file."""
    found = _SEGMENT.fullmatch(name)
    return int(found[1]) if found else 0


def head(boot_id: str) -> bytes:
    """Return the first line of a segment that is begun while the machine is up under this id."""
    return plain.encode({"format": _FORMAT, "boot_id": boot_id}) + b"\n"


def read(content: bytes) -> tuple[str | None, list[Record]]:
    """Return the id that a segment was begun under, None if its head cannot be read, and its sound records.

    A record that is torn or damaged is passed over: those behind it are proven by checksums of their own.
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
    told = _parsed(content[begin:end]) if end >= 0 else {}
    try:
        size, check = int(told["bytes"]), str(told["crc32"])
        record = Record(
            run_id=str(told["run_id"]),
            path=str(told["path"]),
            offset=int(told["offset"]),
            content=content[end + 1 : end + 1 + max(0, size)],
        )
    except (KeyError, ValueError, TypeError):
        return None, begin
    # A record that was torn by a power cut ends the segment.
    sound = len(record.content) == size and f"{zlib.crc32(record.content):08x}" == check
    return (record, end + 1 + size + 1) if sound else (None, begin)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
