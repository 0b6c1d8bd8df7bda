"""Priorities: by what a Temporal server orders the steps of runs: a few levels, and turns between values of a label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.common import Priority

from app.domain import plain, runs

_HALF = 50
_LONGEST_KEY_BYTES = 64


def facts(start: runs.RunStart, fair_label: str | None) -> dict[str, Any]:
    """Return what a workflow must know of its run to give its steps their priority.

    Args:
        fair_label: Label between whose values the queue takes turns; None: there are no turns.
    """
    turn = "" if fair_label is None else start.labels.get(fair_label, "")
    given = {"priority": level(start.priority), "turn": _key(turn)}
    return {name: value for name, value in given.items() if value}


def of(facts: Mapping[str, Any]) -> Priority:
    """Return the priority of a run's steps. Those without a label's value take turns as a group of their own."""
    return Priority(priority_key=facts.get("priority"), fairness_key=facts.get("turn"))


def level(priority: int) -> int | None:
    """Return the level of a run's steps, 1 for the most urgent; None: the server's default, which is between 2 and 4.

    Args:
        priority: -100 to 100; higher goes first.
    """
    if not priority:
        return None
    # The server has five levels, and runs any number of them.
    if priority > 0:
        return 1 if priority > _HALF else 2
    return 4 if priority >= -_HALF else 5


def _key(value: str) -> str:
    # A server refuses longer keys.
    return value if len(value.encode()) <= _LONGEST_KEY_BYTES else plain.sha256(value.encode())
