"""Scenes: documents with a number, a title, a point of view and a date, in narrative order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.tools.story import dates, documents, folders, scene_numbers
from app.tools.story.scene_numbers import SceneNumber
from app.tools.workspace import Workspace

_ABOVE = ("book", "part", "act", "chapter")

_PLACE_FIELDS = ("place", "location", "setting", "where")
_LEADING_LINES = 14
_LONGEST_LEADING = 90

DATE_FIELDS = ("date", "story_date", "when")  # Front matter names of the date of a scene.

_FIELD_NAMES = (
    ("date", (*DATE_FIELDS, "day", "time")),
    ("pov", ("pov", "point_of_view", "viewpoint", "narrator", "told_by")),
    ("place", _PLACE_FIELDS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One scene of the story."""

    document: documents.Document  # Its file.
    scene_number: SceneNumber | None  # Its number within chapter, act, part or book.
    has_number: bool  # Whether front matter or heading state the number.
    title: str  # Its title without the number.
    has_title: bool  # Whether front matter or heading state the title.
    pov: str | None  # Its point of view, from its front matter.
    date: dates.StoryDate | None  # Its date, from its front matter.
    place: str  # Its place; empty if not stated.
    is_flashback: bool  # Whether it is set earlier than its place in the story.

    @property
    def number(self) -> int | None:
        """Its bare number, None if it has none."""
        return None if self.scene_number is None else self.scene_number.number

    @property
    def path(self) -> str:
        """Path of its file."""
        return self.document.path


def read(workspace: Workspace, path: str) -> Scene:
    """Read one scene."""
    return of_document(documents.read(workspace, path))


def read_all(workspace: Workspace, paths: Sequence[str], left_out: list[str]) -> list[Scene]:
    """Read scenes, folders included, ordered by number; unnumbered ones follow in the given order.

    Args:
        left_out: Receives the paths of the files and folders that could not be read.
    """
    return sorted([of_document(document) for document in folders.read_all(workspace, paths, left_out)], key=_place)


def of_document(document: documents.Document) -> Scene:
    """Read the facts of a scene from its front matter, its headings and the name of its file."""
    (stated, title), written = _stated(document), _leading_fields(document)
    by_name = scene_numbers.of_path(document.path)
    within = dict(by_name.number.within) if by_name.number is not None else {}
    within |= {kind: int(value) for kind in _ABOVE if (value := document.scalar(kind)) and value.isdecimal()}
    number = stated or (by_name.number if by_name.sure else None)
    if number is not None:
        number = scene_numbers.placed(number, {kind: at for kind, at in within.items() if kind != number.unit})
    date = dates.find(document.scalar(*DATE_FIELDS) or written.get("date", ""), bare_years=True)
    return Scene(
        document=document,
        scene_number=number,
        has_number=stated is not None,
        title=title or by_name.title or document.title,
        has_title=bool(title),
        pov=document.scalar("pov", "point_of_view") or written.get("pov"),
        date=date[0] if date else None,
        place=document.scalar(*_PLACE_FIELDS) or written.get("place", ""),
        is_flashback=(document.scalar("flashback") or "").lower() in {"true", "yes"},
    )


def _leading_fields(document: documents.Document) -> dict[str, str]:
    """Return fields between the first heading and the prose: `Date: …`, or a line that is a date."""
    found: dict[str, str] = {}
    for _, text in documents.body(document)[:_LEADING_LINES]:
        bare = text.strip(" *_#[]()\t")
        field = documents.field_of(text, 0)
        if field and field.value and len(field.value) <= _LONGEST_LEADING:
            name = next((name for name, words in _FIELD_NAMES if field.name in words), field.name)
            found.setdefault(name, field.value)
        elif len(bare) > _LONGEST_LEADING:
            break
        elif dates.find(bare):
            found.setdefault("date", bare)
    return found


def _stated(document: documents.Document) -> tuple[SceneNumber | None, str]:
    """Return the number and the title from the front matter or the headings, a chapter's heading included."""
    titled = scene_numbers.of_heading(document.scalar("title", "name") or "")
    heads = [scene_numbers.of_heading(heading.text) for heading in documents.headings(document)]
    numbers = [head.number for head in heads if head.number is not None and head.sure]
    counted = [number for number in numbers if number.unit == "scene"]
    first = heads[0].number if heads and heads[0].sure else None
    # A file with one numbered scene below the heading of a chapter contains that scene.
    if first is not None and first.unit != "scene" and len(counted) == 1:
        first = scene_numbers.placed(counted[0], {first.unit or "chapter": first.number, **dict(first.within)})
    by_field = scene_numbers.of_heading(f"Scene {document.scalar('scene', 'scene_number', 'number') or ''}").number
    by_title = titled.number if titled.sure else None
    named = ["" if head.sure and head.title == head.whole else head.title for head in (titled, *heads[:1])]
    return by_field or by_title or first, next(filter(None, named), "")


def _place(scene: Scene) -> tuple[bool, tuple[int, ...], int, str]:
    number = scene.scene_number
    if number is None:
        return True, (), 0, ""
    return False, tuple(value for _, value in number.within), number.number, number.letter


def label(scene: Scene) -> str:
    """Return the name of a scene in reports."""
    return scene.title if scene.number is None else f"{scene.number} {scene.title}"


def order(scenes: Sequence[Scene]) -> dict[str, int]:
    """Return each scene's place in the telling by its path."""
    return {scene.path: place for place, scene in enumerate(scenes)}
