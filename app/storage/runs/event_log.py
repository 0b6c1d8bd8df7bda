"""The events book: numbers events, and keeps those that are not written yet.

Each time a run is taken, a new block of numbers is opened: its `taken` line is synced, so no number of the block was
ever used before, even if the end of events.jsonl was lost with the power. Where a run is opened without being taken,
numbers come from the upper half of the last block, and are synced before anybody sees them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.domain import decisions, events, plain

BLOCK = 100_000_000
"""Numbers that belong to one `taken`."""

NumberedLine: TypeAlias = tuple[int, bytes]
"""An event's number and its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What events.jsonl was found to hold."""

    last: int = 0
    """Highest number."""
    notes: frozenset[str] = frozenset()
    """Keys of `recipe.note` events."""
    positions: frozenset[int] = frozenset()
    """Positions of the journal lines that have their event."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of events by type."""
    ordered_pauses: int = 0
    """Pauses among them that a person asked for, each of which has its control line."""


class EventLog:
    """Events of one run that is open."""

    def __init__(self, run_id: str, written: Written, taken: int) -> None:
        self._run_id = run_id
        self._floor = taken * BLOCK + BLOCK // 2
        self._last = written.last
        self._fresh = False
        self._lines: list[NumberedLine] = []
        self._sync = False

    @property
    def last(self) -> int:
        """Return the highest number given."""
        return self._last

    @property
    def unwritten(self) -> bool:
        """Tell whether there is something to write."""
        return bool(self._lines)

    def open_block(self, taken: int) -> None:
        """Number from a new block, since its `taken` line is durable."""
        self._floor = taken * BLOCK
        self._fresh = True

    def go_on(self, taken: int, last: int) -> None:
        """Number on in the block that this process has opened, behind the last number that it gave."""
        self.open_block(taken)
        self._last = max(self._last, last)

    def add(
        self, at: str, type: events.EventType, key: str | None, data: Mapping[str, plain.Json] | None
    ) -> events.Event:
        """Number an event and keep it for writing."""
        self._last = max(self._last, self._floor) + 1
        event = events.Event(seq=self._last, at=at, type=type.value, run_id=self._run_id, key=key, data=data or {})
        self._lines.append((event.seq, encoded(event)))
        self._sync = self._sync or not self._fresh
        return event

    def take(self) -> tuple[list[NumberedLine], bool]:
        """Hand out what is to be written, and whether it must be synced."""
        lines, self._lines = self._lines, []
        return lines, self._sync

    def put_back(self, lines: list[NumberedLine]) -> None:
        """Take back what could not be written."""
        self._lines = lines + self._lines

    def note_written(self) -> None:
        """Note that what was handed out is in the file."""
        self._sync = self._sync and bool(self._lines)


def encoded(event: events.Event) -> bytes:
    """Write an event as a line."""
    return plain.encode(event.to_json()) + b"\n"


def parse(content: bytes, after: int = 0) -> list[events.Event]:
    """Return the events numbered above `after` among complete lines; lines that are no events are passed over."""
    found = map(_event, content.split(b"\n")[:-1])
    return [event for event in found if event is not None and event.seq > after]


def written(content: bytes) -> Written:
    """Tell what a file holds."""
    # A line that somebody doubled tells nothing new.
    told = list({event.seq: event for event in parse(content)}.values())
    note, pause, by_person = events.EventType.RECIPE_NOTE, events.EventType.RUN_PAUSED, decisions.PAUSED_BY_PERSON
    return Written(
        last=max((event.seq for event in told), default=0),
        notes=frozenset(event.key for event in told if event.type == note and event.key is not None),
        positions=frozenset(_positions(told)),
        counts=Counter(event.type for event in told),
        ordered_pauses=sum(event.type == pause and event.data.get("reason") == by_person for event in told),
    )


def _positions(told: Iterable[events.Event]) -> Iterable[int]:
    types = (events.EventType.STEP_FINISHED, events.EventType.STEP_FAILED, events.EventType.STEP_RETRYING)
    for event in told:
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
