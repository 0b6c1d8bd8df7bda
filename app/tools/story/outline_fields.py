"""An outline's entry for one scene: its fields, its beats, its prose, and other lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.tools.story import documents, scene_numbers
from app.tools.story.documents import ITEM, Field, Heading, field_of
from app.tools.story.scene_numbers import Named, SceneNumber

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
FIELDS = tuple(dict.fromkeys(_NAMES.values()))  # Names of the fields that are read, one for all spellings.

_FIELD_WORDS = 3
_ORDERED = re.compile(r"\s{0,24}\d{1,4}[.)]\s")
_CHECKBOX = re.compile(r"^\[[ xX]\]\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)]?\s{1,4}(?=[^\W_\d]|[\"'“‘(])")
_RULE = re.compile(r"\s{0,3}([-*_=])(?:\s{0,3}\1){2,}\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A line of an outline that is not read."""

    line: int  # Its line.
    text: str  # The line.
    reason: str  # The reason.
    name: str | None = None  # Name of the field, if the line is one.


@dataclass(slots=True, kw_only=True)
class Content:
    """An outline's statements about a scene."""

    fields: dict[str, Field] = field(default_factory=dict)  # Fields that are read, by name.
    beats: list[str] = field(default_factory=list)  # Events of the scene, in order.
    ignored: list[Ignored] = field(default_factory=list)  # Lines that are not read.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    kind: str  # `heading`, `item`, `field` or `prose`.
    depth: int
    text: str
    line: int
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    name: str | None  # Field whose entries follow; None for one that is not read.
    depth: int  # Entries that are deeper belong to it.


def known(words: str) -> str | None:
    """Return the field that a name or a heading means, or None."""
    return _NAMES.get("_".join(words.strip(" :*_").lower().replace("-", " ").split()))


def read(lines: Sequence[tuple[int, str]], headings: Mapping[int, str], rest: str = "") -> Content:
    """Read the lines below a scene's heading.

    A field has a known name; an entry with another short name is reported; every other entry is a beat. Without a list
    of beats, the sentences of the prose are the beats.
    """
    content, prose = Content(), list[_Line]()
    if rest:
        prose.append(_Line(kind="prose", depth=-1, text=rest, line=lines[0][0] - 1 if lines else 0))
    opened: _Open | None = None
    for line in _lines(lines, headings):
        if line.kind == "prose":
            prose.append(line)
        else:
            opened = _read_field(content, line, opened)
    _read_prose(content, prose)
    return content


def _read_field(content: Content, line: _Line, opened: _Open | None) -> _Open | None:
    """Take one line, and return the field whose entries follow."""
    if line.kind == "heading":
        name = known(line.text)
        if name is None:
            content.ignored.append(Ignored(line=line.line, text=line.text, reason="a heading that is not a field"))
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
    # A line `Name: value` outside of lists ends with its line; `Beats:` continues with the list below it.
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


def _read_prose(content: Content, prose: Sequence[_Line]) -> None:
    rows = [line for line in prose if line.text.startswith("|")]
    if rows:
        content.ignored.append(Ignored(line=rows[0].line, text=rows[0].text, reason="a table"))
    stated = [line for line in prose if not line.text.startswith("|")]
    if not stated:
        return
    text = " ".join(line.text for line in stated)
    if "summary" not in content.fields:
        content.fields["summary"] = Field(name="summary", value=text, line=stated[0].line)
    if not content.beats:
        content.beats.extend(part.strip() for part in _SENTENCE_END.split(text) if part.strip())


def _lines(lines: Sequence[tuple[int, str]], headings: Mapping[int, str]) -> Iterator[_Line]:
    pending: _Line | None = None
    for number, text in lines:
        line = _line(number, text, headings)
        # An entry may continue on the following lines.
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
        spoken = _CHECKBOX.sub("", item[2].strip())
        return _Line(kind="item", depth=len(item[1]), text=spoken, line=number, ordered=bool(_ORDERED.match(text)))
    bare = text.strip().removeprefix("> ")
    if not bare or _RULE.fullmatch(text) or bare.startswith("<!--"):
        return None
    found = field_of(bare, number)
    is_field = found is not None and len(found.name.split("_")) <= _FIELD_WORDS
    return _Line(kind="field" if is_field else "prose", depth=-1, text=bare, line=number)


ENTRY_LEVEL = 10  # Level of a scene that is an entry of a list.

_PLAIN_LEVELS = {"scene": 9, "chapter": 8}
_PLAIN_LEVEL = 7
_PLAIN_CHARACTERS = 120
_UNDERLINE = re.compile(r"\s{0,3}(={3,}|-{3,})\s*")
_PLAIN_HEAD = re.compile(
    r"(?:\*\*|__)?(?:book|volume|part|act|chapter|scene|scn)[\s#-]{0,3}\w{1,20}(?:\s{0,2}[:.,|–—-].*|(?:\*\*|__)?\s*)",
    re.IGNORECASE,
)
_NUMBERED_LINE = re.compile(r"\s{0,24}(\d{1,4})[.)]\s")
_TICKED = re.compile(r"\[[ xX]\]\s+")
_TITLE_ENDS = re.compile(r"\s[–—-]\s|:\s|\s[–—-]{2}\s")
_TITLE_WORDS = 8
_CONTAINERS = ("book", "part", "act", "chapter")
_UNNUMBERED = frozenset({"prologue", "epilogue", "interlude", "intermezzo", "prelude", "coda", "afterword"})
NOT_SCENES = frozenset(
    "appendix arc arcs background cast characters comments conflict contents ideas locations logline notes note "
    "overview people places plot premise questions references research setting settings structure summary synopsis "
    "theme themes timeline title todo world worldbuilding".split()
)
"""Headings of outlines that are not scenes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The line on which a scene begins."""

    heading: Heading  # The line; entries of lists have `ENTRY_LEVEL`.
    named: Named  # Number and title that it gives.
    number: SceneNumber | None  # Its number, with the chapter, act, part or book above it.
    within: tuple[tuple[str, int], ...]  # Chapter, act, part or book that contains it, even if it has no number.
    rest: str = ""  # Text after the title on the line of a list's entry.


def all_headings(document: documents.Document) -> list[Heading]:
    """Return headings marked with `#`, underlined ones, and lines such as `Scene 21: The Arrival` that stand alone."""
    marked = {heading.line: heading for heading in documents.headings(document)}
    lines = dict(documents.body(document))
    for line, text in lines.items():
        before, after = lines.get(line - 1, ""), lines.get(line + 1, "")
        if line in marked or not text.strip() or ITEM.match(text) or (before.strip() and line - 1 not in marked):
            continue
        underline = _UNDERLINE.fullmatch(after)
        if underline and not text.startswith(("|", ">")):
            marked[line] = Heading(level=1 if underline[1][0] == "=" else 2, text=text.strip(), line=line)
        elif len(text) <= _PLAIN_CHARACTERS and _PLAIN_HEAD.fullmatch(text.strip()):
            named = scene_numbers.of_heading(text)
            if named.number is not None and named.sure:
                level = _PLAIN_LEVELS.get(named.number.unit or "", _PLAIN_LEVEL)
                marked[line] = Heading(level=level, text=text.strip(" *_"), line=line)
    return [marked[line] for line in sorted(marked)]


def of_document(document: documents.Document, headings: Sequence[Heading]) -> list[Head]:
    """Return the beginnings of the scenes, in order.

    These are the first of the following that exist: headings that number scenes; entries of lists that do; headings
    of chapters, or those right below them; numbered headings; headings of the most frequent level; entries of the
    outermost list.
    """
    named = {heading.line: scene_numbers.of_heading(heading.text) for heading in headings}
    chosen = _numbered(headings, named, "scene")
    if not chosen and (entries := [head for head in _entries(document) if _unit(_parted(head.text)[0]) == "scene"]):
        chosen = entries
    chosen = chosen or _chapters(headings, named) or _bare(headings, named) or _most(headings, named)
    if not chosen:
        chosen = _entries(document)
    return list(_placed(headings, chosen, named, document))


def title_words(text: str) -> str:
    """Return a heading's words in the form in which names of fields and lists are compared."""
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


def _unit(named: Named) -> str | None:
    return named.number.unit if named.number is not None and named.sure else None


def _numbered(headings: Sequence[Heading], named: dict[int, Named], unit: str) -> list[Heading]:
    found = [heading for heading in headings if _unit(named[heading.line]) == unit]
    levels = {heading.level for heading in found}
    beside = [head for head in headings if head.level in levels and title_words(head.text).split()[:1]]
    extra = [head for head in beside if title_words(head.text).split()[0] in _UNNUMBERED]
    return sorted([*found, *extra], key=lambda heading: heading.line) if found else []


def _chapters(headings: Sequence[Heading], named: dict[int, Named]) -> list[Heading]:
    chapters = _numbered(headings, named, "chapter")
    if not chapters:
        return []
    level = chapters[0].level + 1
    below = [head for head in headings if head.level == level and head.line > chapters[0].line and _may_be_scene(head)]
    return below if len(below) >= len(chapters) else chapters


def _may_be_scene(heading: Heading) -> bool:
    words = title_words(heading.text)
    return bool(words) and known(words) is None and words.split()[0] not in NOT_SCENES


def _bare(headings: Sequence[Heading], named: dict[int, Named]) -> list[Heading]:
    """Return headings that begin with a number, if they are at least half of those of their level."""
    counted = [head for head in headings if named[head.line].number is not None and not _is_container(named, head)]
    for level in sorted({head.level for head in counted}):
        found = [head for head in counted if head.level == level]
        if 2 * len(found) >= len([head for head in headings if head.level == level]):
            return found
    return []


def _most(headings: Sequence[Heading], named: dict[int, Named]) -> list[Heading]:
    possible = [h for h in headings if h.level > 1 and _may_be_scene(h) and not _is_container(named, h)]
    levels = [heading.level for heading in possible]
    common = max(sorted(set(levels)), key=levels.count, default=0)
    return [heading for heading in possible if heading.level == common]


def _is_container(named: dict[int, Named], heading: Heading) -> bool:
    return _unit(named[heading.line]) in _CONTAINERS


def _entries(document: documents.Document) -> list[Heading]:
    found = documents.items(document)
    outermost = min((item.depth for item in found), default=0)
    return [
        Heading(level=ENTRY_LEVEL, text=_TICKED.sub("", item.text), line=item.line)
        for item in found
        if item.depth == outermost
    ]


def _parted(text: str) -> tuple[Named, str]:
    """Split a list's entry into its title and its text: `The Arrival: Kael lands`."""
    named = scene_numbers.of_heading(text)
    has_title = named.number is not None and named.title != text
    body = named.title if has_title else text
    end = _TITLE_ENDS.search(body)
    if end is None or len(body[: end.start()].split()) > _TITLE_WORDS:
        return named, ""
    title = body[: end.start()].strip(" *_")
    return Named(number=named.number, sure=named.sure, title=title, whole=title), body[end.end() :].strip()


def _placed(
    headings: Sequence[Heading], chosen: Sequence[Heading], named: dict[int, Named], document: documents.Document
) -> Iterator[Head]:
    scenes = {heading.line for heading in chosen}
    above: dict[str, int] = {}
    for heading in sorted({head.line: head for head in (*headings, *chosen)}.values(), key=lambda head: head.line):
        if heading.line not in scenes:
            container = named[heading.line]
            if container.number is not None and _is_container(named, heading):
                above = _entered(above, container.number)
            continue
        entry = heading.level == ENTRY_LEVEL
        own, rest = _parted(heading.text) if entry else (named[heading.line], "")
        number = own.number or (_mark(document.lines[heading.line - 1]) if entry else None)
        within = tuple((kind, above[kind]) for kind in _CONTAINERS if kind in above)
        if number is not None:
            within = tuple((dict(within) | dict(number.within)).items())
            number = SceneNumber(number=number.number, letter=number.letter, unit=number.unit, within=within)
        yield Head(heading=heading, named=own, number=number, within=within, rest=rest)


def _entered(above: dict[str, int], number: SceneNumber) -> dict[str, int]:
    """Return the open parts after the heading of a chapter, an act, a part or a book, which ends smaller parts."""
    unit = number.unit or ""
    larger = _CONTAINERS[: _CONTAINERS.index(unit)]
    return (
        {kind: value for kind, value in above.items() if kind in larger} | dict(number.within) | {unit: number.number}
    )


def _mark(line: str) -> SceneNumber | None:
    ordered = _NUMBERED_LINE.match(line)
    return SceneNumber(number=int(ordered[1]), unit=None) if ordered else None
