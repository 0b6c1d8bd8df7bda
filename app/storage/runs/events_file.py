"""The events file: any part of it, without reading what is before.

Numbers rise along the file, so that the place of each is found by halves.
"""

from __future__ import annotations

from app.domain import events
from app.storage.disk.disk_port import Disk
from app.storage.runs import event_log

_CHUNK_BYTES = 64 * 1024


def read(files: Disk, path: str, after: int = 0, most: int | None = None) -> list[events.Event]:
    """Return the events that follow on a number, at most so many; lines that are no events are passed over."""
    if not files.has_file(path):
        return []
    found: list[events.Event] = []
    offset, rest, size = _place(files, path, after), b"", _CHUNK_BYTES
    while (most is None or len(found) < most) and (chunk := files.read(path, offset, size)):
        offset += len(chunk)
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        found += event_log.parse(lines + newline, after)
        # A line that is longer than all that was read must not be put together from small pieces.
        size = _CHUNK_BYTES if newline else 2 * size
    return found[:most]


def last(files: Disk, path: str) -> list[events.Event]:
    """Return the last events, as many as lie in one chunk."""
    chunk = files.read(path, max(0, files.size(path) - _CHUNK_BYTES))
    return event_log.parse(chunk)


def _place(files: Disk, path: str, after: int) -> int:
    """Return the beginning of a line before which no number is above `after`, a chunk from the last
    such place at most.
    """
    low, high = 0, files.size(path) if after else 0
    while high - low > _CHUNK_BYTES:
        middle = (low + high) // 2
        seen = _first(files.read(path, middle, _CHUNK_BYTES))
        if seen is not None and seen[1].seq <= after:
            low = middle + seen[0]
        else:
            high = middle
    return low


def _first(chunk: bytes) -> tuple[int, events.Event] | None:
    begin = chunk.find(b"\n") + 1
    while begin and (end := chunk.find(b"\n", begin)) >= 0:
        if told := event_log.parse(chunk[begin : end + 1]):
            return begin, told[0]
        begin = end + 1
    return None
