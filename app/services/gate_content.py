"""The content of gates: splits the question to a person into parts by their form."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from app.domain import shapes

MOST_CHARACTERS = 256 * 1024  # Characters of a part; a longer one is cut off.
MOST_PARTS = 100  # Most recognised parts; the remaining text is one part.
Kind = Literal["text", "json", "table", "diff"]  # Form of a part.

_FENCE = re.compile(r"(`{3,}|~{3,})\s*(\w*)\s*")
_DIFF_BEGIN = re.compile(r"diff --git |--- \S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPart(shapes.Shape):
    """A part of the content that a person decides on."""

    name: str  # `part 1`, `part 2` …, in the order of the question.
    kind: Kind  # Form of the part: JSON, a table with `|`, a diff, or any other text.
    text: str  # The part, unchanged; a block is shown without its fences.
    truncated: bool  # Whether the part was cut off because it is too long.


def parts(prompt: str) -> tuple[ContentPart, ...]:
    """Return the parts of a question in order; its options are not among them."""
    if _is_json(prompt):
        cut: list[tuple[Kind, str]] = [("json", prompt)]
    else:
        found = _cut(prompt.splitlines(keepends=True))
        # The remaining text is one part, so that no part of the question is left out.
        cut = list(itertools.islice(found, MOST_PARTS - 1))
        if rest := "".join(text for _, text in found):
            cut.append(("text", rest))
    return tuple(
        ContentPart(
            name=f"part {number}", kind=kind, text=text[:MOST_CHARACTERS], truncated=len(text) > MOST_CHARACTERS
        )
        for number, (kind, text) in enumerate(cut, start=1)
    )


def _cut(lines: list[str]) -> Iterator[tuple[Kind, str]]:
    plain: list[str] = []
    at = 0
    while at < len(lines):
        found = _block(lines, at)
        if found is None:
            plain.append(lines[at])
            at += 1
            continue
        if "".join(plain).strip():
            yield "text", "".join(plain)
        plain = []
        kind, text, at = found
        yield kind, text
    if "".join(plain).strip():
        yield "text", "".join(plain)


def _block(lines: list[str], at: int) -> tuple[Kind, str, int] | None:
    """Return the kind and the text of the block that begins at a line, and the number of the line after it."""
    fence = _FENCE.fullmatch(lines[at].strip())
    if fence is not None:
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1]), None)
        return None if end is None else (*_fenced(fence[2], "".join(lines[at + 1 : end])), end + 1)
    end = at
    if lines[at].startswith("|"):
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        return ("table", "".join(lines[at:end]), end) if end - at > 1 else None
    # A line that begins with --- may also be a rule of Markdown; a diff has hunks.
    if _DIFF_BEGIN.match(lines[at]) and any(line.startswith("@@ ") for line in lines[at : at + 8]):
        while end < len(lines) and lines[end][:1] in " +-@\\di":
            end += 1
        return "diff", "".join(lines[at:end]), end
    return None


def _fenced(language: str, text: str) -> tuple[Kind, str]:
    if language in ("diff", "patch"):
        return "diff", text
    return ("json" if _is_json(text) else "text"), text


def _is_json(text: str) -> bool:
    if text.strip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
