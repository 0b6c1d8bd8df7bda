"""Priorities: the levels of the server to which priorities of runs belong."""

from __future__ import annotations

import pytest

from app.temporal import priorities


@pytest.mark.parametrize(
    ("priority", "expected"),
    [(100, 1), (51, 1), (50, 2), (1, 2), (0, None), (-1, 4), (-50, 4), (-51, 5), (-100, 5)],
)
def test_a_priority_has_its_level(priority: int, expected: int | None) -> None:
    """Higher priorities have lower levels, and 0 has the server's default."""
    assert priorities.level(priority) == expected
