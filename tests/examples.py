"""How many cases a property test tries: a sample of them always, many with `scripts/check.py --long`."""

from __future__ import annotations

import os
from collections.abc import Sequence

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "searching"
"""Whether new cases are looked for, and not the same ones tried every time."""


def examples(usual: int) -> int:
    """Return the number of cases to try.

    Args:
        usual: Half of it is tried always; where cases are looked for it is eight times that.
    """
    return usual * 8 if SEARCHING else max(usual // 2, 1)


def passings(story: Sequence[str]) -> list[tuple[str, int]]:
    """Return at which passings of the points of a story a process is to be killed: the first and the last of each point
    always, all of them where cases are looked for.
    """
    found = [(point, story[: number + 1].count(point)) for number, point in enumerate(story)]
    last = dict(found)
    return [(point, nth) for point, nth in found if SEARCHING or nth in (1, last[point])]
