"""Registries: map names to values that are imported and created on first use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class LazyRegistry(Mapping[str, T]):
    """Values by name, each imported and created on first use: a command that shows one run loads one driver."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = {name: functools.cache(make) for name, make in makers.items()}

    def __getitem__(self, name: str) -> T:
        return self._makers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
