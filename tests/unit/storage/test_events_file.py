"""The events file: events after a number are found and read page by page, without those before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.domain.events import Event
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.runs import events_file

PATH = "events.jsonl"


class Reading(MemoryDisk):
    """A disk that counts the bytes read from it."""

    read_bytes = 0

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        content = super().read(path, offset, size)
        self.read_bytes += len(content)
        return content


def disk_with(content: bytes) -> Reading:
    """Return a disk with an events file."""
    disk = Reading()
    disk.write(PATH, content, sync=True)
    return disk


def line(number: int, size: int = 1) -> bytes:
    """Return an event as its line in the file."""
    return events_file.encoded(Event(seq=number, at="", type="x", run_id="r", data={"x": "y" * size}))


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([1, 300, 30_000, 70_000, 200_000]), st.booleans()), max_size=30
    ),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_a_reader_finds_everything_behind_its_number(
    told: list[tuple[int, int, bool]], after: int, most: int | None
) -> None:
    """The pages after a number contain all later events, once and in order, among any other lines."""
    content, number, numbers = b"", 0, []
    for step, size, spoilt in told:
        number += step
        numbers.append(number)
        content += (b"nonsense" * size + b"\n" if spoilt else b"") + line(number, size)
    disk, found = disk_with(content + line(number + 1)[:-1]), list[int]()
    while page := events_file.read(disk, PATH, found[-1] if found else after, most):
        found += [event.seq for event in page]
        assert most is None or len(page) <= most

    assert found == [number for number in numbers if number > after]


def test_a_long_file_is_not_read_from_its_beginning() -> None:
    """A page anywhere in 100,000 events, and the end, are found with a small part of the file."""
    disk = disk_with(b"".join(line(number, 100) for number in range(1, 100_001)))
    size = disk.size(PATH)
    for after in (0, 1, 50_000, 99_990):
        disk.read_bytes = 0
        page = events_file.read(disk, PATH, after, 100)

        assert [event.seq for event in page] == list(range(after + 1, min(after + 100, 100_000) + 1))
        assert disk.read_bytes < size / 10
    assert events_file.last(disk, PATH)[-1].seq == 100_000


def test_a_run_without_events_has_none() -> None:
    """A missing events file contains no events."""
    assert events_file.read(MemoryDisk(), PATH) == []
