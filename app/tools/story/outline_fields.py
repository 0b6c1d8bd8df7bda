"""What an outline says of one scene: its fields, its beats, its prose, and what is none of these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.tools.story.fields import ITEM, Field, field_of

_NAMES = {
    "pov": "pov", "point_of_view": "pov",
    "place": "place", "location": "place", "setting": "place", "where": "place",
    "date": "date", "when": "date", "time": "date", "day": "date",
    "characters": "characters", "cast": "characters", "who": "characters",
    "goal": "goal", "purpose": "goal",
    "length": "length", "words": "length", "word_count": "length",
    "summary": "summary", "synopsis": "summary",
    "plants": "plants", "foreshadows": "plants", "setup": "plants",
    "pays_off": "payoffs", "payoffs": "payoffs", "payoff": "payoffs",
    "beats": "beats",
}  # fmt: skip
FIELDS = tuple(dict.fromkeys(_NAMES.values()))
"""Names of the fields that are read, one for all spellings."""

_FIELD_WORDS = 3
_ORDERED = re.compile(r"\s{0,24}\d{1,4}[.)]\s")
_CHECKBOX = re.compile(r"^\[[ xX]\]\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)]?\s{1,4}(?=[^\W_\d]|[\"'“‘(])")
_RULE = re.compile(r"\s{0,3}([-*_=])(?:\s{0,3}\1){2,}\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A part of an outline that is not read."""

    line: int
    """Its line."""
    text: str
    """The line."""
    reason: str
    """Why it is not read."""
    name: str | None = None
    """Name of the field, if it is one."""


@dataclass(slots=True, kw_only=True)
class Content:
    """What is said of a scene."""

    fields: dict[str, Field] = field(default_factory=dict)
    """Fields that are read, by name."""
    beats: list[str] = field(default_factory=list)
    """What happens, in order."""
    ignored: list[Ignored] = field(default_factory=list)
    """What is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    kind: str
    """`heading`, `item`, `field` or `prose`."""
    depth: int
    text: str
    line: int
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    name: str | None
    """Field whose entries follow; None for one that is not read."""
    depth: int
    """Entries that are deeper belong to it."""


def known(words: str) -> str | None:
    """Return the field that a name or a heading stands for, or None."""
    return _NAMES.get("_".join(words.strip(" :*_").lower().replace("-", " ").split()))


def read(lines: Sequence[tuple[int, str]], headings: Mapping[int, str], rest: str = "") -> Content:
    """Read the lines below a scene's heading.

    A field has a known name; an entry with another short name is reported; every other entry is a beat. Where no list
    tells what happens, the sentences of the prose are the beats.

    Args:
        headings: Texts of the headings among the lines, by line.
        rest: What follows the title on its own line.
    """
    content, prose = Content(), list[_Line]()
    if rest:
        prose.append(_Line(kind="prose", depth=-1, text=rest, line=lines[0][0] - 1 if lines else 0))
    opened: _Open | None = None
    for line in _lines(lines, headings):
        if line.kind == "prose":
            prose.append(line)
        else:
            opened = _taken(content, line, opened)
    _take_prose(content, prose)
    return content


def _taken(content: Content, line: _Line, opened: _Open | None) -> _Open | None:
    """Take one line, and return the field whose entries follow."""
    if line.kind == "heading":
        name = known(line.text)
        if name is None:
            content.ignored.append(Ignored(line=line.line, text=line.text, reason="a heading that is no field"))
        return _Open(name=name, depth=-2)
    if opened is not None and line.depth > opened.depth:
        if opened.name is not None:
            _add(content, opened.name, line)
        return opened
    found = None if line.ordered else field_of(line.text, line.line)
    name = _NAMES.get(found.name) if found else None
    if found is None or (name is None and len(found.name.split("_")) > _FIELD_WORDS):
        content.beats.append(line.text)
        return None
    if name is None:
        reason = "an unknown field" if found.name else "no field"
        content.ignored.append(Ignored(line=line.line, text=line.text, reason=reason, name=found.name))
    elif found.value and name == "beats":
        content.beats.extend(part.strip() for part in found.value.split(";") if part.strip())
    elif found.value:
        _keep(content, found, name)
    # A line `Name: value` outside of lists ends with its line; `Beats:` goes on with the list below it.
    return None if found.value and line.kind == "field" else _Open(name=name, depth=line.depth)


def _add(content: Content, name: str, line: _Line) -> None:
    if name == "beats":
        content.beats.append(line.text)
        return
    before = content.fields.get(name)
    value = line.text if before is None else f"{before.value}, {line.text}"
    content.fields[name] = Field(name=name, value=value, line=line.line if before is None else before.line)


def _keep(content: Content, found: Field, name: str) -> None:
    if name in content.fields:
        reason = f"{name} is given twice"
        content.ignored.append(Ignored(line=found.line, text=found.value, reason=reason, name=found.name))
    else:
        content.fields[name] = found


def _take_prose(content: Content, prose: Sequence[_Line]) -> None:
    rows = [line for line in prose if line.text.startswith("|")]
    if rows:
        content.ignored.append(Ignored(line=rows[0].line, text=rows[0].text, reason="a table"))
    told = [line for line in prose if not line.text.startswith("|")]
    if not told:
        return
    text = " ".join(line.text for line in told)
    if "summary" not in content.fields:
        content.fields["summary"] = Field(name="summary", value=text, line=told[0].line)
    if not content.beats:
        content.beats.extend(part.strip() for part in _SENTENCE_END.split(text) if part.strip())


def _lines(lines: Sequence[tuple[int, str]], headings: Mapping[int, str]) -> Iterator[_Line]:
    """Yield the lines that say something; a line that continues an entry is joined to it."""
    pending: _Line | None = None
    for number, text in lines:
        line = _line(number, text, headings)
        if pending is not None and line is not None and line.kind == "prose" and not line.text.startswith("|"):
            joined = f"{pending.text} {line.text}"
            pending = _Line(
                kind=pending.kind, depth=pending.depth, text=joined, line=pending.line, ordered=pending.ordered
            )
            continue
        if pending is not None:
            yield pending
        pending = line if line is not None and line.kind == "item" else None
        if line is not None and pending is None:
            yield line
    if pending is not None:
        yield pending


def _line(number: int, text: str, headings: Mapping[int, str]) -> _Line | None:
    if number in headings:
        return _Line(kind="heading", depth=-2, text=headings[number], line=number)
    item = ITEM.match(text)
    if item:
        said = _CHECKBOX.sub("", item[2].strip())
        return _Line(kind="item", depth=len(item[1]), text=said, line=number, ordered=bool(_ORDERED.match(text)))
    bare = text.strip().removeprefix("> ")
    if not bare or _RULE.fullmatch(text) or bare.startswith("<!--"):
        return None
    found = field_of(bare, number)
    is_field = found is not None and len(found.name.split("_")) <= _FIELD_WORDS
    return _Line(kind="field" if is_field else "prose", depth=-1, text=bare, line=number)
