"""How many cases a property test tries: a sample of them always, many with `scripts/check.py --long`."""

from __future__ import annotations

import os

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "searching"
"""Whether new cases are looked for, and not the same ones tried every time."""


def examples(usual: int) -> int:
    """Return the number of cases to try.

    Args:
        usual: Half of it is tried always; where cases are looked for it is eight times that.
    """
    return usual * 8 if SEARCHING else max(usual // 2, 1)
