"""A registry whose entries are imported when first asked for: a command that shows one run loads one driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class LazyRegistry(Mapping[str, T]):
    """Values by name, each made once."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        """Args: makers: What imports and makes each value."""
        self._makers = dict(makers)
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
