"""Priorities: which of the few levels of a Temporal server the priority of a run is."""

from __future__ import annotations

_HALF = 50


def level(priority: int) -> int | None:
    """Return the level of a run's steps, 1 for the most urgent; None: the server's default, which is between 2 and 4.

    Args:
        priority: -100 to 100; higher goes first.
    """
    if not priority:
        return None
    if priority > 0:
        return 1 if priority > _HALF else 2
    return 4 if priority >= -_HALF else 5
