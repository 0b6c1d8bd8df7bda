"""Priorities: order the steps of runs on a Temporal server by a few levels, and by turns between values of a label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.common import Priority

from app.domain import plain, runs

_HALF = 50
_LONGEST_KEY_BYTES = 64


def facts(start: runs.RunStart, fair_label: str | None) -> dict[str, Any]:
    """Return what a workflow needs for the priority of its run's steps.

    Args:
        fair_label: Label whose values share the queue in turns; None: there are no turns.
    """
    turn = "" if fair_label is None else start.labels.get(fair_label, "")
    given = {"priority": level(start.priority), "turn": _key(turn)}
    return {name: value for name, value in given.items() if value}


def of(facts: Mapping[str, Any]) -> Priority:
    """Return the priority of a run's steps. Those without a value of the label share turns as one group."""
    return Priority(priority_key=facts.get("priority"), fairness_key=facts.get("turn"))


def level(priority: int) -> int | None:
    """Return the level of a run's steps, 1 for the most urgent; None: the server's default, between 2 and 4.

    Args:
        priority: -100 to 100; higher goes first.
    """
    if not priority:
        return None
    # The server has five levels, fewer than there are priorities.
    if priority > 0:
        return 1 if priority > _HALF else 2
    return 4 if priority >= -_HALF else 5


def _key(value: str) -> str:
    # The server refuses longer keys.
    return value if len(value.encode()) <= _LONGEST_KEY_BYTES else plain.sha256(value.encode())
