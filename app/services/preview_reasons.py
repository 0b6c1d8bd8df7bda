"""Reasons of previews: why a step is kept, performed again or dropped, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from app import errors
from app.domain import records

NAMED = "it is the step that you named, or comes after it"
CAUSE = "it made the run fail, or comes after what did"


class Reasons:
    """The reasons of one preview.

    Args:
        finished: Whether the run ends at once.
        kept: Reason of the steps that are kept.
        left_out: Positions of the finished steps that the order sets aside.
        root: Reason of these steps.
        differs: Why the next finished step does not fit; None if all fit.
    """

    def __init__(
        self,
        finished: bool,
        kept: str,
        left_out: AbstractSet[int],
        root: str,
        differs: errors.NondeterminismFault | None,
    ) -> None:
        self.finished = finished
        self.kept = kept
        self._left_out = left_out
        self._root = root
        self._differs = differs

    def other(self, record: records.Record) -> str:
        """Return why a step is performed again, or is not reached any more."""
        if self.finished:
            return "the run ends before it"
        if record.position in self._left_out or self._differs is None:
            return self._root
        if record.key != self._differs.key:
            return f"it comes after {self._differs.key!r}, which differs"
        return _difference(self._differs)


def _difference(fault: errors.NondeterminismFault) -> str:
    if isinstance(why := fault.detail.get("why"), str):
        return why
    recorded, asked = fault.detail.get("recorded"), fault.detail.get("asked")
    before = recorded.get("body") if isinstance(recorded, dict) else None
    after: Any = asked.get("body") if isinstance(asked, dict) and "hash" in asked else None
    if not isinstance(asked, dict) or not asked:
        return "the recipe no longer reaches it"
    if set(asked) != {"hash", "body"}:
        return f"the new run performs {', '.join(map(repr, asked))} before it, or in its place"
    if not isinstance(before, dict) or not isinstance(after, Mapping):
        return "the new run asks for something else there"
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"the new run asks for something else there: {', '.join(names)}"
