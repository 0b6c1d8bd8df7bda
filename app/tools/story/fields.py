"""`Name: value` lines, in front matter and elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

FrontMatterValue = str | tuple[str, ...]
"""A scalar as text, or a list of scalars."""

ITEM = re.compile(r"(\s{0,24})(?:[-*+]|\d{1,4}[.)])\s{1,8}(\S.*)")
"""An entry of a list: its blanks, and its text."""

_FIELD = re.compile(r"(?:\*\*|__)?([^\W\d_][\w '/()-]{0,40})(?:\*\*|__)?\s{0,2}:(?:\*\*|__)?(?:\s{1,8}(\S.*))?$")
_FRONT_MATTER_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A `Name: value` line, in front matter or in the body."""

    name: str
    """Name in lower case with `_` between its words."""
    value: str
    """Its value as text; a list's entries are joined with commas."""
    line: int
    """Line in the file, from 1."""
    label: str = ""
    """Its name as it is written."""


def field_of(text: str, line: int) -> Field | None:
    """Read one line as `Name: value`; the value is empty where a list follows."""
    match = _FIELD.match(text.strip())
    if match is None:
        return None
    value = (match[2] or "").strip(" *_\t")
    return Field(name=name_of(match[1]), value=value, line=line, label=match[1].strip())


def split_list(value: str) -> tuple[str, ...]:
    """Split a value at its commas and semicolons."""
    return tuple(part for part in (part.strip(" []\"'\t") for part in re.split("[,;]", value)) if part)


def front_matter_end(lines: Sequence[str]) -> int:
    """Return the index of the line that closes the front matter, 0 if there is none."""
    if not lines or lines[0].strip() != "---":
        return 0
    closing = (
        index for index, line in enumerate(lines[1:_FRONT_MATTER_LINES], start=1) if line.strip() in {"---", "..."}
    )
    return next(closing, 0)


def front_matter(lines: Sequence[str], first_line: int) -> list[tuple[str, FrontMatterValue, int]]:
    """Read the subset of YAML that notes use: scalars, `[a, b]` and `- a` lists; anything deeper is left out."""
    found: list[tuple[str, FrontMatterValue, int]] = []
    for line, text in enumerate(lines, start=first_line):
        item = ITEM.match(text)
        if item and found and not (isinstance(found[-1][1], str) and found[-1][1]):
            name, value, place = found.pop()
            found.append((name, (*value, _scalar(item[2])), place))
        elif not text.startswith((" ", "\t", "#")) and (field := field_of(text, line)):
            found.append((field.name, _value(field.value), line))
    return found


def _value(text: str) -> FrontMatterValue:
    if text.startswith("[") and text.endswith("]"):
        return tuple(_scalar(part) for part in split_list(text[1:-1]))
    return _scalar(text)


def _scalar(text: str) -> str:
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1]
    return bare.split(" #", 1)[0].rstrip()


def name_of(label: str) -> str:
    """Return a field's name in lower case with `_` between its words."""
    return "_".join(label.strip().lower().replace("-", " ").replace("/", " ").split())
