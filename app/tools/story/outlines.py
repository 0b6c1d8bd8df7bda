"""Outlines: the planned scenes of a story with their beats."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app import errors
from app.domain import plain
from app.tools import bounds
from app.tools.story import dates, documents, matching, outline_fields, scene_matching, scene_numbers, scenes
from app.tools.story.documents import ITEM, Field, Heading, field_of, split_list
from app.tools.story.outline_fields import Head, Ignored
from app.tools.story.scene_matching import Catalog, Choice, Clue, Target
from app.tools.story.scene_numbers import SceneNumber
from app.tools.workspace import Workspace

_LENGTH = re.compile(r"(\d{1,6})(?:\s{0,2}(?:-|–|—|to)\s{0,2}(\d{1,6}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScene:
    """A scene as the outline plans it."""

    index: int
    """Place among the scenes, from 0."""
    scene_number: SceneNumber | None
    """Its number with the chapter, act, part or book that it counts in; None if it has none."""
    within: tuple[tuple[str, int], ...] = ()
    """What it belongs to, e.g. `(("chapter", 3),)`."""
    title: str
    """Its title without the number."""
    line: int
    """Line of its heading."""
    heading: str = ""
    """The whole heading."""
    fields: Mapping[str, Field]
    """What is said of it by name: pov, place, date, characters, goal, length, summary, plants, payoffs."""
    beats: tuple[str, ...]
    """What happens, in order."""
    ignored: tuple[Ignored, ...] = ()
    """What is said of it that is not read, unknown fields above all."""

    @property
    def number(self) -> int | None:
        """Its bare number, None if it has none."""
        return None if self.scene_number is None else self.scene_number.number

    @property
    def label(self) -> str:
        """How messages call it, e.g. `Chapter 3, Scene 2 “The Storm”`."""
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
        """Fewest and most words it shall have; a single number is the most."""
        stated = _LENGTH.search(self.value("length") or "")
        if stated is None:
            return None, None
        return (int(stated[1]), int(stated[2])) if stated[2] else (None, int(stated[1]))

    @property
    def date(self) -> dates.StoryDate | None:
        """When it plays."""
        found = dates.find(self.value("date") or "", bare_years=True)
        return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The plan of a story."""

    title: str
    """Title of the story or of the outline."""
    path: str
    """Its file."""
    scenes: tuple[PlannedScene, ...]
    """Its scenes in the order of the file."""
    ignored: tuple[Ignored, ...] = ()
    """What is not read: unknown fields, other headings, tables."""


def of_document(document: documents.Document) -> Outline:
    """Read an outline; `outline_fields.of_document` says what begins a scene, `outline_fields.read`
    what is read of it.
    """
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
    """Return for each scene the line on which something of the same level or above begins."""
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
    """Return what stands beside the scenes: headings after the first, and the first of the entries below each."""
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


AMBIGUOUS = "scene_ambiguous"
"""Code of the failure where several scenes fit."""
NOT_FOUND = "scene_not_found"
"""Code of the failure where none fits well enough."""

_HOW = "Name the scene by its number or its whole title"
_BY = {
    "number": "its number",
    "title": "its title",
    "words": "the words they share",
    "position": "its place: the outline has no numbers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The planned scene that a task or a title means."""

    scene: PlannedScene
    """The scene."""
    score: float
    """How sure it is, 0 to 1; 1 for a number or a whole title."""
    by: str = "number"
    """What it was found by: `number`, `title`, `words` or `position`."""

    @property
    def reason(self) -> str:
        """What it was found by, in words."""
        return _BY[self.by]


def catalog(outline: Outline) -> Catalog:
    """Return the scenes of an outline, to be found by number and title."""
    return Catalog([_target(planned) for planned in outline.scenes])


def match(outline: Outline, query: str) -> Match | None:
    """Return the scene that a query means, None if that is not sure."""
    return _match(outline, catalog(outline).choose(scene_matching.of_text(query)))


def of_scenes(outline: Outline, found: Sequence[scenes.Scene]) -> list[PlannedScene | None]:
    """Return for each scene's file the planned scene that it means, None where that is not sure."""
    known = catalog(outline)
    matches = (_match(outline, known.choose(of_file(scene.document))) for scene in found)
    return [match.scene if match is not None else None for match in matches]


def find(outline: Outline, clues: Sequence[Clue]) -> Match:
    """Return the scene that clues mean, the first of them first.

    Raises:
        errors.ToolFailed: `scene_ambiguous` or `scene_not_found`, with the candidates.
    """
    known = catalog(outline)
    choice = scene_matching.decide(known, clues)
    found = _match(outline, choice)
    if found is None:
        raise _failure(outline, clues, choice)
    return found


def clue_of(workspace: Workspace, outline: Outline, query: str) -> Clue:
    """Return what a query says; a path stands for its file, and what that says of itself counts before its name.

    Raises:
        errors.ToolFailed: the query is a path outside of the workspace.
    """
    clue = scene_matching.of_text(query)
    if clue.text or clue.shown != query.strip() or "." not in query:
        return clue
    path = query.strip()
    if workspace.exists(path):
        clue = of_file(documents.read(workspace, path))
    above = {kind for number in clue.numbers for kind, _ in number.within}
    planned = {kind for scene in outline.scenes for kind, _ in scene.within}
    planned |= {kind for scene in outline.scenes if scene.scene_number for kind, _ in scene.scene_number.within}
    if above and not above & planned and _count_anew(workspace, path):
        return Clue(shown=clue.shown, titles=clue.titles, whole=clue.whole)
    return clue


def of_file(document: documents.Document) -> Clue:
    """Return what a scene's file says: its front matter and heading, then its name and folders."""
    named, scene = scene_numbers.of_path(document.path), scenes.of_document(document)
    clue = scene_matching.of_named(document.path, named, *((scene.title,) if scene.has_title else ()))
    if scene.scene_number is None:
        return clue
    return Clue(
        shown=clue.shown, numbers=(scene.scene_number,), sure=scene.has_number or clue.sure, titles=clue.titles[:1]
    )


def _match(outline: Outline, choice: Choice) -> Match | None:
    if choice.index is None:
        return None
    return Match(scene=outline.scenes[choice.index], score=choice.score, by=choice.by)


def _target(planned: PlannedScene) -> Target:
    words = {term for beat in planned.beats for term in matching.terms(beat)}
    words.update(term for field in planned.fields.values() for term in matching.terms(field.value))
    titles = () if planned.title in {planned.heading, ""} and planned.scene_number else (planned.title,)
    return Target(label=planned.label, number=planned.scene_number, titles=titles, words=frozenset(words))


def _count_anew(workspace: Workspace, path: str) -> bool:
    """Return whether files beside this one count scenes anew in each chapter, so that a number alone means nothing."""
    top = path.split("/", 1)[0] if "/" in path else ""
    if top and workspace.kind(top) != "folder":
        return False
    counted: dict[tuple[int, str], set[tuple[tuple[str, int], ...]]] = {}
    for path_of_other in [path, *(file.path for file in workspace.scan(top).files)]:
        number = scene_numbers.of_path(path_of_other).number
        if number is not None and number.within:
            counted.setdefault((number.number, number.letter), set()).add(number.within)
    return any(len(above) > 1 for above in counted.values())


def _failure(outline: Outline, clues: Sequence[Clue], choice: Choice) -> errors.ToolFailed:
    candidates = [outline.scenes[index] for index in choice.candidates]
    named = [bounds.clipped(scene.label, 80) for scene in candidates]
    shown = " with ".join(dict.fromkeys(f"“{bounds.clipped(clue.shown, 80)}”" for clue in clues if clue.shown))
    place = outline.path or "the outline"
    if not outline.scenes:
        message = f"{place} has no scenes that can be read; write each as a heading such as `## Scene 1: Title`."
    elif choice.tied:
        message = f"{shown} can mean {_listed(named, 'or')} of {place}. {_HOW}."
    elif clues and clues[0].sure and clues[0].numbers:
        near = f" It has {_listed(named, 'and')}." if named else ""
        message = f"{place} has no {clues[0].numbers[0]} as {shown} says.{near} {_HOW}."
    else:
        near = f" The nearest are {_listed(named, 'and')}." if named else ""
        message = f"{place} has no scene that {shown} surely means.{near} {_HOW}."
    detail: plain.Object = {
        "outline_path": outline.path,
        "query": [bounds.clipped(clue.shown) for clue in clues],
        "candidates": [
            {"number": scene.number, "title": bounds.clipped(scene.title), "label": label, "line": scene.line}
            for scene, label in zip(candidates, named, strict=True)
        ],
    }
    return errors.ToolFailed(message, code=AMBIGUOUS if choice.tied else NOT_FOUND, detail=dict(detail))


def _listed(names: Sequence[str], word: str) -> str:
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "nothing"
