"""A list that counts how often its items are read, for tests that bound work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class CountedList(list[Any]):
    """A list that counts each item that is read from it."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.looks += 1
            yield item

    def __reversed__(self) -> Iterator[Any]:
        for item in super().__reversed__():
            self.looks += 1
            yield item

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looks += len(found) if isinstance(place, slice) else 1
        return found
