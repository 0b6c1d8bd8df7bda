"""
When two statements about the same thing cannot both be true.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from app.tools import dates
from app.tools.cast import Cast

DATE_ATTRIBUTES = frozenset({"date", "born", "died", "founded", "built", "written"})
"""Attributes whose values are dates."""

_COLOUR = re.compile(
    r"grey|gray|green|blue|brown|hazel|amber|black|violet|silver|red|blond|auburn|white|copper|golden|chestnut|fair|dark"
)
_PROPER = re.compile(r"[A-Z][\w'’]{1,30}(?: [A-Z][\w'’]{1,30}){0,3}")
_SCENE = re.compile(r"\bscene (\d{1,4})\b", re.IGNORECASE)

COMPARED = (
    frozenset({"eye_colour", "hair_colour", "hand", "age", "status", "location", "owner", "material"}) | DATE_ATTRIBUTES
)
"""Attributes that are compared; others are only shown."""


def contradict(attribute: str, one: str, other: str, cast: Cast) -> bool:
    """
    Return whether two values of an attribute exclude each other; where either cannot be read, they do not.
    """
    compare = _COMPARISONS.get(attribute)
    if compare is not None:
        return compare(one, other)
    if attribute in DATE_ATTRIBUTES:
        return _dates_differ(one, other)
    return attribute == "owner" and _owners_differ(one, other, cast)


def says_dead(value: str) -> bool:
    """
    Return whether a value of the attribute `status` says that someone is dead.
    """
    return _states_differ(value, "alive")


def scene_named(value: str) -> int | None:
    """
    Return the number in a value such as `scene 18`.
    """
    match = _SCENE.search(value)
    return int(match[1]) if match else None


def _colours_differ(one: str, other: str) -> bool:
    own, theirs = (set(_COLOUR.findall(value.lower().replace("gray", "grey"))) for value in (one, other))
    return bool(own and theirs and not own & theirs)


def _hands_differ(one: str, other: str) -> bool:
    own, theirs = ({word for word in ("left", "right") if word in value.lower()} for value in (one, other))
    return len(own) == len(theirs) == 1 and own != theirs


def _ages_differ(one: str, other: str) -> bool:
    own, theirs = (dates.number(value.split()[0]) if value.split() else None for value in (one, other))
    return own is not None and theirs is not None and own != theirs


def _states_differ(one: str, other: str) -> bool:
    own, theirs = ({word for word in ("alive", "dead") if word in value.lower()} for value in (one, other))
    return len(own) == len(theirs) == 1 and own != theirs


def _places_differ(one: str, other: str) -> bool:
    own, theirs = (_PROPER.findall(value) for value in (one, other))
    same = any(a in b or b in a for a in own for b in theirs)
    return bool(own and theirs) and not same


def _materials_differ(one: str, other: str) -> bool:
    own, theirs = (set(re.findall(r"[a-z]+", value.lower().replace("golden", "gold"))) for value in (one, other))
    return bool(own and theirs) and not own & theirs


def _dates_differ(one: str, other: str) -> bool:
    own, theirs = (dates.find(value, bare_years=True) for value in (one, other))
    return bool(own and theirs) and all(a.contradicts(b) for a in own for b in theirs)


def _owners_differ(one: str, other: str, cast: Cast) -> bool:
    own, theirs = (cast.named(value) for value in (one, other))
    return own is not None and theirs is not None and own.name != theirs.name


_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "eye_colour": _colours_differ,
    "hair_colour": _colours_differ,
    "hand": _hands_differ,
    "age": _ages_differ,
    "status": _states_differ,
    "location": _places_differ,
    "material": _materials_differ,
}
