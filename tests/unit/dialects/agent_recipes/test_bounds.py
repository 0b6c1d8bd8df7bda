"""Bounds: calls that a state machine cannot make any more."""

from __future__ import annotations

import pytest

from app.dialects.agent_recipes import bounds


@pytest.mark.parametrize(
    ("finished", "asked", "settled"),
    [
        ([], ["a"], 0),
        (["a"], ["b"], 2),
        (["a"], ["a.reminder"], 1),
        (["a", "a.reminder", "b#2"], [], 4),
    ],
)
def test_a_finished_step_settles_its_reminder(finished: list[str], asked: list[str], settled: int) -> None:
    """A finished step also settles the reminder that it did not need, unless that is asked next."""
    assert bounds.settled(finished, asked) == settled
