"""The events file: the form of its lines, and reads of any part without the lines before it.

Numbers grow along the file, so that each is found by bisection.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain import decisions, events, plain
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk

BLOCK = 100_000_000  # Numbers that belong to one `taken`.

_CHUNK_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 64 * 1024 * 1024
_REFUSED = "refused"
_REFUSAL = b'{"refused":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Content of events.jsonl."""

    last: int = 0  # Highest number.
    numbers: frozenset[int] = frozenset()  # All numbers.
    refused: frozenset[int] = frozenset()
    """Numbers without an event, since the line that had reserved them was refused."""
    notes: frozenset[str] = frozenset()  # Keys of `recipe.note` events.
    positions: frozenset[int] = frozenset()  # Positions of the journal lines whose event exists.
    counts: Mapping[str, int] = field(default_factory=dict)  # Number of events by type.
    ordered_pauses: int = 0  # Pauses among them that a person ordered, each of which has its control line.

    def followed_by(self, more: Written) -> Written:
        """Return the content of a file from that of its earlier and its later part."""
        return Written(
            last=max(self.last, more.last),
            numbers=self.numbers | more.numbers,
            refused=self.refused | more.refused,
            notes=self.notes | more.notes,
            positions=self.positions | more.positions,
            counts=Counter(self.counts) + Counter(more.counts),
            ordered_pauses=self.ordered_pauses + more.ordered_pauses,
        )


def encoded(*event: events.Event) -> bytes:
    """Return events as lines."""
    return plain.encode_lines(event)


def refusals(numbers: Sequence[int]) -> bytes:
    """Return a line about numbers that have no event, since the line that had reserved them was refused.

    Readers of events skip it. If the refused line is found in the journal after all, its event needs a new number:
    clients have already seen higher ones.
    """
    return plain.encode({_REFUSED: list(numbers)}) + b"\n" if numbers else b""


def insert(files: Disk, run_id: str, missing: Sequence[events.Event]) -> None:
    """Insert events by their numbers, before later ones that were kept."""
    path = f"{layout.run_folder(run_id)}/{layout.EVENTS}"
    placed = [(event.seq, encoded(event)) for event in missing]
    last = 0
    for line in files.read(path).splitlines(keepends=True):
        found = _event(line)
        last = max(last, found.seq if found is not None else 0)
        placed.append((last, line))
    content = b"".join(line for _, line in sorted(placed, key=lambda entry: entry[0]))
    disk_port.replace(files, path, content, sync=True)


def parse(content: bytes, after: int = 0) -> list[events.Event]:
    """Return the events with numbers above `after` in complete lines; lines that are not events are skipped."""
    found = map(_event, content.split(b"\n")[:-1])
    return [event for event in found if event is not None and event.seq > after]


def written(content: bytes) -> Written:
    """Return the content of a file from its bytes."""
    # A duplicated line changes nothing.
    found = list({event.seq: event for event in parse(content)}.values())
    refused = [number for line in content.split(b"\n") if line.startswith(_REFUSAL) for number in _refused(line)]
    note, pause, by_person = events.EventType.RECIPE_NOTE, events.EventType.RUN_PAUSED, decisions.PAUSED_BY_PERSON
    return Written(
        last=max((event.seq for event in found), default=0),
        numbers=frozenset(event.seq for event in found),
        refused=frozenset(refused),
        notes=frozenset(event.key for event in found if event.type == note and event.key is not None),
        positions=frozenset(_positions(found)),
        counts=Counter(event.type for event in found),
        ordered_pauses=sum(event.type == pause and event.data.get("reason") == by_person for event in found),
    )


def read(files: Disk, path: str, after: int = 0, most: int | None = None) -> list[events.Event]:
    """Return at most `most` events after a number; lines that are not events are skipped."""
    if not files.has_file(path):
        return []
    found: list[events.Event] = []
    offset, rest, size = _place(files, path, after), b"", _CHUNK_BYTES
    # After a line that is too long for an event, the file contains no events.
    while len(rest) <= _LONGEST_LINE_BYTES and (most is None or len(found) < most):
        if not (chunk := files.read(path, offset, size)):
            break
        offset += len(chunk)
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        found += parse(lines + newline, after)
        # The chunk grows with a long line, which would otherwise be joined from many small pieces.
        size = _CHUNK_BYTES if newline else 2 * size
    return found[:most]


def last(files: Disk, path: str) -> list[events.Event]:
    """Return the last events, as many as one chunk contains."""
    chunk = files.read(path, max(0, files.size(path) - _CHUNK_BYTES))
    return parse(chunk)


def _positions(written: Iterable[events.Event]) -> Iterable[int]:
    types = (events.EventType.STEP_FINISHED, events.EventType.STEP_FAILED, events.EventType.STEP_RETRYING)
    for event in written:
        position = event.data.get("position")
        if event.type in types and isinstance(position, int):
            yield position


def _event(line: bytes) -> events.Event | None:
    try:
        fields: Any = json.loads(line)
        sound = isinstance(fields["seq"], int) and isinstance(fields["type"], str) and isinstance(fields["data"], dict)
        return events.Event(**{name: fields[name] for name in events.Event.__slots__}) if sound else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _refused(line: bytes) -> Iterable[int]:
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        yield from (number for number in json.loads(line)[_REFUSED] if isinstance(number, int))


def _place(files: Disk, path: str, after: int) -> int:
    """Return the start of a line before which no number is above `after`, at most a chunk too early."""
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
        if event := parse(chunk[begin : end + 1]):
            return begin, event[0]
        begin = end + 1
    return None


def read_written(files: Disk, run_id: str) -> Written:
    """Repair events.jsonl and return its content."""
    path = f"{layout.run_folder(run_id)}/{layout.EVENTS}"
    with contextlib.suppress(FileNotFoundError):
        disk_port.mend(files, path)
        return written(files.read(path))
    return Written()
