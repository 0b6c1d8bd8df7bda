"""Number of cases that a property test tries: a sample by default, many with `scripts/check.py --long`."""

from __future__ import annotations

import os
from collections.abc import Sequence

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "searching"
"""Whether property tests look for new cases, instead of trying the same ones every time."""


def examples(usual: int) -> int:
    """Return the number of cases to try.

    Args:
    usual: Half of it is tried by default, eight times as many when tests look for new cases.
    """
    return usual * 8 if SEARCHING else max(usual // 2, 1)


def passings(passed_points: Sequence[str]) -> list[tuple[str, int]]:
    """Return the passings of points at which a test kills the process.

    These are the first and the last passing of each point, or all of them when tests look for new cases.
    """
    found = [(point, passed_points[: number + 1].count(point)) for number, point in enumerate(passed_points)]
    last = dict(found)
    return [(point, nth) for point, nth in found if SEARCHING or nth in (1, last[point])]
