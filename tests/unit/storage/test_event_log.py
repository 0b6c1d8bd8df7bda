"""The events book: which numbers events get."""

from __future__ import annotations

from app.domain.events import EventType
from app.storage.runs.event_log import BLOCK, EventLog, Written

AT = "2026-02-10T14:30:00.000Z"


def add(book: EventLog, count: int = 1, size: int = 1) -> list[int]:
    """Add events and return their numbers."""
    return [book.add(AT, EventType.RECIPE_NOTE, f"k{n}", {"x": "y" * size}).seq for n in range(count)]


def test_an_untaken_run_numbers_in_the_upper_half() -> None:
    """Without a `taken` of its own a process numbers behind the lower half of the last block, and syncs."""
    book = EventLog("r", Written(last=BLOCK + 7), taken=1)
    numbers = add(book, 2)

    assert numbers == [BLOCK + BLOCK // 2 + 1, BLOCK + BLOCK // 2 + 2]
    assert book.take()[1]


def test_a_taken_run_needs_no_sync() -> None:
    """In a block that was opened by a synced line nothing needs to be synced again."""
    book = EventLog("r", Written(last=1), taken=0)
    book.open_block(1)

    assert add(book, 2) == [BLOCK + 1, BLOCK + 2]
    assert not book.take()[1]


def test_numbers_never_fall_back() -> None:
    """Events found in the file are never numbered again, wherever they came from."""
    book = EventLog("r", Written(last=5 * BLOCK), taken=1)
    book.open_block(2)

    assert add(book) == [5 * BLOCK + 1]


def test_what_could_not_be_written_comes_first_again() -> None:
    """Lines that were put back are handed out before newer ones, with their sync still due."""
    book = EventLog("r", Written(), taken=0)
    add(book, 2)
    lines, _ = book.take()
    add(book, 1)
    book.put_back(lines)
    again, sync = book.take()

    assert again[:2] == lines
    assert len(again) == 3
    assert sync
    assert not book.unwritten
