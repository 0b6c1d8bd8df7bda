"""Outlines: the planned scenes of a story with their beats."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.tools.story import dates, documents, outline_fields, scene_numbers
from app.tools.story.documents import ITEM, Field, Heading, field_of, split_list
from app.tools.story.outline_fields import Head, Ignored
from app.tools.story.scene_numbers import SceneNumber

_LENGTH = re.compile(r"(\d{1,6})(?:\s{0,2}(?:-|–|—|to)\s{0,2}(\d{1,6}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScene:
    """A scene in the plan of the outline."""

    index: int  # Place among the scenes, from 0.
    scene_number: SceneNumber | None  # Its number within chapter, act, part or book; None if it has none.
    within: tuple[tuple[str, int], ...] = ()  # Parts that contain it, e.g. `(("chapter", 3),)`.
    title: str  # Its title without the number.
    line: int  # Line of its heading.
    heading: str = ""  # The whole heading.
    fields: Mapping[str, Field]  # By name: pov, place, date, characters, goal, length, summary, plants, payoffs.
    beats: tuple[str, ...]  # What happens, in order.
    ignored: tuple[Ignored, ...] = ()  # Lines of its entry that are not read, mostly unknown fields.

    @property
    def number(self) -> int | None:
        """Its bare number, None if it has none."""
        return None if self.scene_number is None else self.scene_number.number

    @property
    def label(self) -> str:
        """Its name in messages, e.g. `Chapter 3, Scene 2 “The Storm”`."""
        number = self.scene_number
        above = number.within if number is not None else self.within
        parts = [f"{kind.capitalize()} {value}" for kind, value in above]
        if number is not None:
            parts.append(f"{(number.unit or 'scene').capitalize()} {number.number}{number.letter}")
        called = ", ".join(parts)
        return called if called and self.title == self.heading else f"{called} “{self.title}”".lstrip()

    def value(self, name: str) -> str | None:
        """Return the text of a field, or None."""
        return self.fields[name].value if name in self.fields else None

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the entries of a field that is a list."""
        return split_list(self.value(name) or "")

    @property
    def words(self) -> tuple[int | None, int | None]:
        """Fewest and most words that it should have; a single number is the most."""
        stated = _LENGTH.search(self.value("length") or "")
        if stated is None:
            return None, None
        return (int(stated[1]), int(stated[2])) if stated[2] else (None, int(stated[1]))

    @property
    def date(self) -> dates.StoryDate | None:
        """The date of the scene."""
        found = dates.find(self.value("date") or "", bare_years=True)
        return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The plan of a story."""

    title: str  # Title of the story or of the outline.
    path: str  # Its file.
    scenes: tuple[PlannedScene, ...]  # Its scenes in the order of the file.
    ignored: tuple[Ignored, ...] = ()  # Lines that are not read: unknown fields, other headings, tables.


def of_document(document: documents.Document) -> Outline:
    """Read an outline."""
    headings = outline_fields.all_headings(document)
    heads = outline_fields.of_document(document, headings)
    texts = {heading.line: heading.text for heading in headings}
    body = documents.body(document)
    planned, taken = list[PlannedScene](), set[int]()
    for index, (head, end) in enumerate(zip(heads, _ends(heads, headings, len(document.lines) + 1), strict=True)):
        first, last = (bisect.bisect_left(body, (line, "")) for line in (head.heading.line + 1, end))
        taken.update(range(head.heading.line, end))
        planned.append(_planned(index, head, body[first:last], texts))
    ignored = [*(entry for scene in planned for entry in scene.ignored), *_outside(body, texts, taken)]
    ignored.sort(key=lambda entry: entry.line)
    return Outline(title=document.title, path=document.path, scenes=tuple(planned), ignored=tuple(ignored))


def neighbours(outline: Outline, scene: PlannedScene) -> tuple[str | None, str | None]:
    """Return the titles of the scenes before and after one."""
    titles: Sequence[str] = [planned.title for planned in outline.scenes]
    before = titles[scene.index - 1] if scene.index > 0 else None
    after = titles[scene.index + 1] if scene.index + 1 < len(titles) else None
    return before, after


def _ends(heads: Sequence[Head], headings: Sequence[Heading], last: int) -> list[int]:
    """Return for each scene the line on which the next heading or entry of the same level or above begins."""
    levels = {place.line: place.level for place in (*headings, *(head.heading for head in heads))}
    ends, following = list[int](), [*sorted(levels), last]
    for head in heads:
        start = bisect.bisect_right(following, head.heading.line)
        below = itertools.takewhile(lambda line: levels.get(line, 0) > head.heading.level, following[start:])  # noqa: B023
        ends.append(following[start + sum(1 for _ in below)])
    return ends


def _planned(index: int, head: Head, lines: Sequence[tuple[int, str]], texts: Mapping[int, str]) -> PlannedScene:
    content = outline_fields.read(lines, texts, head.rest)
    return PlannedScene(
        index=index,
        scene_number=head.number,
        within=head.within,
        title=head.named.title,
        heading=head.heading.text,
        line=head.heading.line,
        fields=content.fields,
        beats=tuple(content.beats),
        ignored=tuple(content.ignored),
    )


def _outside(body: Sequence[tuple[int, str]], headings: Mapping[int, str], taken: set[int]) -> Iterator[Ignored]:
    """Yield the lines outside of scenes: headings after the first, and the first of the entries below each."""
    narrated, title = False, min(headings, default=0)
    for line, text in body:
        if line in taken or not text.strip():
            continue
        if line in headings:
            narrated = False
            named = scene_numbers.of_heading(headings[line])
            if line != title and (named.number is None or not named.sure) and taken:
                yield Ignored(line=line, text=text.strip(), reason="a heading that numbers no scene")
        elif not narrated and (ITEM.match(text) or field_of(text, line) or text.startswith("|")):
            narrated = True
            yield Ignored(line=line, text=text.strip(), reason="outside of the scenes")
