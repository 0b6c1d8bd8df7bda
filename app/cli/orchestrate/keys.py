"""Keys: the parts of a step's key, such as the loops around it and the part of its work."""

from __future__ import annotations

import re
from dataclasses import dataclass

WAITING, LEFT_BEHIND, UNMOVED = "waiting", "left_behind", "unmoved"
"""Last parts of keys for waits, for processes that commands have left behind, and for files that were not moved."""

_PART = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)(?:#\d+)?(?:\[(?P<index>\d+)\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key, split into its parts."""

    step: str  # Key of the step itself, including those of its loops.
    name: str  # The step's name.
    outermost: str
    """Name of the outermost step that contains it: the step itself, or its outermost loop."""
    loops: tuple[tuple[str, int], ...]
    """Loops around it by their keys, the outermost first, each with the index of its item."""
    part: str  # The part of the step's work; empty for the step's own operation.


def read(key: str) -> Key:
    """Parse a key."""
    loops: list[tuple[str, int]] = []
    names: list[str] = []
    position = 0
    while (found := _PART.match(key, position)) is not None:
        names.append(found["name"])
        if found["index"] is None or key[found.end() : found.end() + 1] != ".":
            return _key(key[: found.end()], names, loops, key[found.end() + 1 :])
        loops.append((key[: key.rindex("[", 0, found.end())], int(found["index"])))
        position = found.end() + 1
    return _key(key, names or [key], loops, "")


def _key(step: str, names: list[str], loops: list[tuple[str, int]], part: str) -> Key:
    return Key(step=step, name=names[-1], outermost=names[0], loops=tuple(loops), part=part)
