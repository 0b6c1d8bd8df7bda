"""Callers: find the run whose program makes a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from app.api import callers
from app.domain import access, authors

PARENT = "20260210T143000Z-parent"


class _Services:
    """The use cases that the search needs: one command of one run, which a scope may cover."""

    def __init__(self, *, busy: bool = True, covered: bool = True) -> None:
        self.commands = SimpleNamespace(under_way={1: object()} if busy else {}, run_behind=self._behind)
        self.runs = SimpleNamespace(is_within=self._is_within)
        self._covered = covered
        self.asked: list[Any] = []

    async def _behind(self, own: tuple[str, int], other: tuple[str, int]) -> str | None:
        self.asked.append((own, other))
        return PARENT

    async def _is_within(self, run_id: str, limits: access.Scope) -> bool:
        assert (run_id, limits) == (PARENT, access.Scope(recipes=("quick",)))
        return self._covered


@pytest.mark.parametrize(
    ("services", "limits", "expected"),
    [
        (_Services(), None, PARENT),
        (_Services(busy=False), None, None),
        (_Services(), access.Scope(recipes=("quick",)), PARENT),
        (_Services(covered=False), access.Scope(recipes=("quick",)), None),
    ],
)
async def test_the_run_that_asks(services: Any, limits: access.Scope | None, expected: str | None) -> None:
    """The calling run is looked up only while commands run, and is hidden from a caller whose scope excludes it."""
    author = authors.Author(name="ada", claimed=False, via="key")
    caller = access.Caller(author=author, limits=limits)
    scope = {"type": "http", "client": ("127.0.0.1", 4711), "server": ("127.0.0.1", 8000), callers.CALLER: caller}

    assert await callers.run_of(services, HTTPConnection(scope)) == expected
    assert services.asked == ([(("127.0.0.1", 8000), ("127.0.0.1", 4711))] if services.commands.under_way else [])
