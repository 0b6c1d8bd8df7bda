"""The queue of events: the numbers that events get."""

from __future__ import annotations

from app.domain.events import Event, EventType
from app.storage.runs.events_file import BLOCK, Written
from app.storage.runs.projections import EventQueue

AT = "2026-02-10T14:30:00.000Z"


def add(queue: EventQueue, count: int = 1, size: int = 1) -> list[int]:
    """Add events and return their numbers."""
    return [queue.add(AT, EventType.RECIPE_NOTE, f"k{n}", {"x": "y" * size}).seq for n in range(count)]


def test_an_untaken_run_numbers_in_the_upper_half() -> None:
    """A process without its own `taken` uses the upper half of the last block of numbers, and syncs its events."""
    queue = EventQueue("r", Written(last=BLOCK + 7), taken=1)
    numbers = add(queue, 2)

    assert numbers == [BLOCK + BLOCK // 2 + 1, BLOCK + BLOCK // 2 + 2]
    assert queue.drain()[1]


def test_a_taken_run_needs_no_sync() -> None:
    """In a block that a synced line opened, events need no further sync."""
    queue = EventQueue("r", Written(last=1), taken=0)
    queue.open_block(1)

    assert add(queue, 2) == [BLOCK + 1, BLOCK + 2]
    assert not queue.drain()[1]


def test_numbers_never_fall_back() -> None:
    """Numbers of events in the file are never used again, whichever process wrote them."""
    queue = EventQueue("r", Written(last=5 * BLOCK), taken=1)
    queue.open_block(2)

    assert add(queue) == [5 * BLOCK + 1]


def test_events_of_a_failed_write_are_returned_first() -> None:
    """Events whose write failed are returned before newer ones, with their sync still due."""
    queue = EventQueue("r", Written(), taken=0)
    add(queue, 2)
    lines, _ = queue.drain()
    add(queue, 1)
    queue.put_back(lines)
    again, sync = queue.drain()

    assert again[:2] == lines
    assert len(again) == 3
    assert sync
    assert not queue.unwritten


def test_events_wait_for_the_lines_before_them() -> None:
    """While a line is under way, no event with a higher number than the line's is written."""
    queue = EventQueue("r", Written(last=1), taken=0)
    queue.open_block(1)
    first, second = queue.next, queue.next + 1
    queue.held.update({first: None, second: None})
    queue.next += 2
    (third,) = add(queue)
    queue.resolve(second, [])
    before = [event.seq for event in queue.unwritten]
    queue.resolve(first, [Event(seq=first, at=AT, type="step.finished", run_id="r")])

    assert before == []
    assert [event.seq for event in queue.unwritten] == [first, third]
    assert queue.refused == [second]
