"""
The events book: which numbers events get, and from where a reader has to read.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.engine.events import EventType
from app.storage import events_book
from app.storage.events_book import BLOCK, EventsBook, Written

AT = "2026-02-10T14:30:00.000Z"


def add(book: EventsBook, count: int = 1, size: int = 1) -> list[int]:
    """Add events and return their numbers."""
    return [book.add(AT, EventType.RECIPE_NOTE, f"k{n}", {"x": "y" * size}).seq for n in range(count)]


def test_an_untaken_run_numbers_in_the_upper_half() -> None:
    """Without a `taken` of its own a process numbers behind the lower half of the last block, and syncs."""
    book = EventsBook("r", Written(last=BLOCK + 7), taken=1)
    numbers = add(book, 2)

    assert numbers == [BLOCK + BLOCK // 2 + 1, BLOCK + BLOCK // 2 + 2]
    assert book.take()[1]


def test_a_taken_run_needs_no_sync() -> None:
    """In a block that was opened by a synced line nothing needs to be synced again."""
    book = EventsBook("r", Written(last=1), taken=0)
    book.open_block(1)

    assert add(book, 2) == [BLOCK + 1, BLOCK + 2]
    assert not book.take()[1]


def test_numbers_never_fall_back() -> None:
    """Events found in the file are never numbered again, wherever they came from."""
    book = EventsBook("r", Written(last=5 * BLOCK), taken=1)
    book.open_block(2)

    assert add(book) == [5 * BLOCK + 1]


def test_what_could_not_be_written_comes_first_again() -> None:
    """Lines that were put back are handed out before newer ones, with their sync still due."""
    book = EventsBook("r", Written(), taken=0)
    add(book, 2)
    lines, _ = book.take()
    add(book, 1)
    book.put_back(lines)
    again, sync = book.take()

    assert again[:2] == lines
    assert len(again) == 3
    assert sync
    assert not book.unwritten


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 60_000)), max_size=12), st.data())
def test_a_reader_finds_everything_behind_its_number(writes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Reading from the offset for a number misses no event behind it, however the file was written."""
    book, content = EventsBook("r", Written(), taken=0), b""
    book.open_block(1)
    numbers: list[int] = []
    for count, size in writes:
        numbers += add(book, count, size)
        lines, _ = book.take()
        book.note_written(lines, len(content))
        content += b"".join(line for _, line in lines)
    after = data.draw(st.sampled_from([0, *numbers]))
    found = events_book.parse(content[book.offset_before(after) :], after)

    assert [event.seq for event in found] == [number for number in numbers if number > after]


def test_a_long_file_is_not_read_from_its_beginning() -> None:
    """A reader at the end of a long run reads a small part of its events."""
    book, size = EventsBook("r", Written(), taken=0), 0
    book.open_block(1)
    for _ in range(1000):
        add(book, 1, 1000)
        lines, _ = book.take()
        book.note_written(lines, size)
        size += len(lines[0][1])

    assert size - book.offset_before(book.last - 1) <= 2 * 65_536
    assert book.offset_before(0) == 0
