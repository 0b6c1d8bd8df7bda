"""
Outlines: the planned scenes of a story with their beats.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.tools import dates, documents, matching, scenes
from app.tools.documents import Heading
from app.tools.fields import Field, field_of, split_list

_NUMBERED = re.compile(r"(?:scene|chapter)\s{1,3}(\d{1,4})\b|(\d{1,4})\s{0,2}[:.)–—-]", re.IGNORECASE)
_LENGTH = re.compile(r"(\d{1,6})(?:\s{0,2}(?:-|–|—|to)\s{0,2}(\d{1,6}))?")
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
_SURE_SCORE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScene:
    """
    A scene as the outline plans it.
    """

    index: int
    """Place among the scenes, from 0."""
    number: int | None
    """Its number, None if it has none."""
    title: str
    """Its title without the number."""
    line: int
    """Line of its heading."""
    fields: Mapping[str, Field]
    """What is said of it by name: pov, place, date, characters, goal, length, summary, plants, payoffs."""
    beats: tuple[str, ...]
    """What happens, in order."""

    def value(self, name: str) -> str | None:
        """
        Return the text of a field, or None.
        """
        return self.fields[name].value if name in self.fields else None

    def entries(self, name: str) -> tuple[str, ...]:
        """
        Return the entries of a field that is a list.
        """
        return split_list(self.value(name) or "")

    @property
    def words(self) -> tuple[int | None, int | None]:
        """
        Fewest and most words it shall have; a single number is the most.
        """
        stated = _LENGTH.search(self.value("length") or "")
        if stated is None:
            return None, None
        return (int(stated[1]), int(stated[2])) if stated[2] else (None, int(stated[1]))

    @property
    def date(self) -> dates.StoryDate | None:
        """
        When it plays.
        """
        found = dates.find(self.value("date") or "", bare_years=True)
        return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """
    The plan of a story.
    """

    title: str
    """Title of the story or of the outline."""
    path: str
    """Its file."""
    scenes: tuple[PlannedScene, ...]
    """Its scenes in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """
    The planned scene that a task or a title means.
    """

    scene: PlannedScene
    """The scene."""
    score: float
    """How sure it is, 0 to 1; 1 for a number or a whole title."""


def of_document(document: documents.Document) -> Outline:
    """
    Read an outline.

    Each numbered heading is a scene; without any, each heading of the level that occurs most; without headings, each
    entry of the outermost list.
    """
    heads = _scene_heads(document)
    ends = [*(head.line for head in heads[1:]), len(document.lines) + 1][: len(heads)]
    entries = _entries(document)
    planned = []
    for index, (head, end) in enumerate(zip(heads, ends, strict=True)):
        first, last = (bisect.bisect_left(entries, line, key=lambda entry: entry.line) for line in (head.line + 1, end))
        planned.append(_planned(index, head, entries[first:last]))
    return Outline(title=document.title, path=document.path, scenes=tuple(planned))


def match(outline: Outline, query: str) -> Match | None:
    """
    Return the scene that a query means: by `scene 21`, by its title, or by the words they share.
    """
    named = scenes.SCENE_NUMBER.search(query)
    number = int(named[1]) if named else dates.number(query)
    by_number = next((scene for scene in outline.scenes if number is not None and scene.number == number), None)
    if by_number is not None:
        return Match(scene=by_number, score=1.0)
    if number is not None or not outline.scenes:
        return None
    score, _, best = max(
        ((_likeness(scene, query), -scene.index, scene) for scene in outline.scenes), key=lambda ranked: ranked[:2]
    )
    score = round(score, 3)
    return Match(scene=best, score=score) if score >= _SURE_SCORE else None


def neighbours(outline: Outline, scene: PlannedScene) -> tuple[str | None, str | None]:
    """
    Return the titles of the scenes before and after one.
    """
    titles: Sequence[str] = [planned.title for planned in outline.scenes]
    before = titles[scene.index - 1] if scene.index > 0 else None
    after = titles[scene.index + 1] if scene.index + 1 < len(titles) else None
    return before, after


def _likeness(scene: PlannedScene, query: str) -> float:
    asked = matching.terms(query)
    title = matching.terms(scene.title)
    if title and any(asked[start : start + len(title)] == title for start in range(len(asked))):
        return 1.0
    content = {term for beat in scene.beats for term in matching.terms(beat)} | set(title)
    return max(0.5 * matching.overlap(title, set(asked)), 0.8 * matching.overlap(asked, content))


def _scene_heads(document: documents.Document) -> list[Heading]:
    heads = documents.headings(document)
    numbered = [head for head in heads if _NUMBERED.match(head.text)]
    if numbered:
        return numbered
    levels = [head.level for head in heads if head.level > 1]
    if levels:
        common = max(sorted(set(levels)), key=levels.count)
        return [head for head in heads if head.level == common]
    entries = documents.items(document)
    outermost = min((entry.depth for entry in entries), default=0)
    return [Heading(level=6, text=entry.text, line=entry.line) for entry in entries if entry.depth == outermost]


def _entries(document: documents.Document) -> list[documents.Item]:
    """
    Return the entries of lists and the `Name: value` lines between them.
    """
    listed = {item.line: item for item in documents.items(document)}
    fields = (
        documents.Item(depth=0, text=text.strip(), line=line)
        for line, text in documents.body(document)
        if line not in listed and field_of(text, line)
    )
    return sorted([*listed.values(), *fields], key=lambda entry: entry.line)


def _planned(index: int, head: Heading, entries: Sequence[documents.Item]) -> PlannedScene:
    number = _NUMBERED.match(head.text)
    fields, beats = _content(entries)
    return PlannedScene(
        index=index,
        number=int(number[1] or number[2]) if number else None,
        title=scenes.untitled_number(head.text),
        line=head.line,
        fields=fields,
        beats=tuple(beats),
    )


def _content(entries: Sequence[documents.Item]) -> tuple[dict[str, Field], list[str]]:
    """
    Tell the fields of a scene from its beats: a field has a known name, every other entry is a beat.
    """
    fields: dict[str, Field] = {}
    beats: list[str] = []
    for entry in entries:
        field = field_of(entry.text, entry.line)
        name = _NAMES.get(field.name) if field else None
        if field is None or name is None:
            beats.append(entry.text)
        elif field.value and name == "beats":
            beats.extend(part.strip() for part in field.value.split(";") if part.strip())
        elif field.value:
            fields.setdefault(name, field)
    return fields, beats
