"""
Scenes: documents with a number, a title, a point of view and a date, in the order in which they are told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.tools import dates, documents, fields, folders
from app.tools.workspace import Workspace

SCENE_NUMBER = re.compile(r"\b(?:scene|chapter)[\s_-]{0,3}(\d{1,4})\b", re.IGNORECASE)
"""A scene named by its number, in a heading or a task."""

_LEADING_NUMBER = re.compile(
    r"^(?:(?:scene|chapter)\s{1,3}\d{1,4}\s{0,3}[:.)–—-]?|\d{1,4}\s{0,3}[:.)–—-])\s{0,3}", re.IGNORECASE
)

_PLACE_FIELDS = ("place", "location", "setting", "where")
_LEADING_LINES = 14
_LONGEST_LEADING = 90

DATE_FIELDS = ("date", "story_date", "when")
"""Front matter names of the day on which a scene plays."""

_FIELD_NAMES = (
    ("date", (*DATE_FIELDS, "day", "time")),
    ("pov", ("pov", "point_of_view", "viewpoint", "narrator", "told_by")),
    ("place", _PLACE_FIELDS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    One scene of the story.
    """

    document: documents.Document
    """Its file."""
    number: int | None
    """Its number, None where neither front matter nor heading gives one."""
    title: str
    """Its title without the number."""
    pov: str | None
    """Whose eyes it is told through, as its front matter says."""
    date: dates.StoryDate | None
    """When it plays, as its front matter says."""
    place: str
    """Where it plays, empty where it does not say."""
    is_flashback: bool
    """Whether it tells of earlier than its place in the story."""

    @property
    def path(self) -> str:
        """
        Path of its file.
        """
        return self.document.path


def read(workspace: Workspace, path: str) -> Scene:
    """
    Read one scene.

    Raises:
        errors.ToolFailed: the file cannot be read as text.
    """
    return of_document(documents.read(workspace, path))


def read_all(workspace: Workspace, paths: Sequence[str]) -> list[Scene]:
    """
    Read scenes, those of named folders too, and put them into the order of their numbers.

    Scenes without a number follow in the order in which they were given.

    Raises:
        errors.ToolFailed: a path cannot be read as text.
    """
    found = [of_document(document) for document in folders.read_all(workspace, paths)]
    return sorted(found, key=lambda scene: (scene.number is None, scene.number or 0))


def of_document(document: documents.Document) -> Scene:
    """
    Read the facts of a scene off its front matter and its first heading.
    """
    heading = next(iter(documents.headings(document)), None)
    stated = document.scalar("scene", "scene_number", "number")
    written = _leading_fields(document)
    number = dates.number(stated) if stated else None
    if number is None and heading:
        named = SCENE_NUMBER.search(heading.text)
        number = int(named[1]) if named else None
    date = dates.find(document.scalar(*DATE_FIELDS) or written.get("date", ""), bare_years=True)
    return Scene(
        document=document,
        number=number,
        title=untitled_number(document.title),
        pov=document.scalar("pov", "point_of_view") or written.get("pov"),
        date=date[0] if date else None,
        place=document.scalar(*_PLACE_FIELDS) or written.get("place", ""),
        is_flashback=(document.scalar("flashback") or "").lower() in {"true", "yes"},
    )


def _leading_fields(document: documents.Document) -> dict[str, str]:
    """
    Return what stands as fields between the first heading and the prose: `Date: …`, or a line that is only a date.
    """
    found: dict[str, str] = {}
    for _, text in documents.body(document)[:_LEADING_LINES]:
        bare = text.strip(" *_#[]()\t")
        field = fields.field_of(text, 0)
        if field and field.value and len(field.value) <= _LONGEST_LEADING:
            name = next((name for name, words in _FIELD_NAMES if field.name in words), field.name)
            found.setdefault(name, field.value)
        elif len(bare) > _LONGEST_LEADING:
            break
        elif dates.find(bare):
            found.setdefault("date", bare)
    return found


def untitled_number(title: str) -> str:
    """
    Return a title without a leading `Scene 21:`.
    """
    return _LEADING_NUMBER.sub("", title) or title


def label(scene: Scene) -> str:
    """
    Return how a report calls a scene.
    """
    return scene.title if scene.number is None else f"{scene.number} {scene.title}"


def order(scenes: Sequence[Scene]) -> dict[str, int]:
    """
    Return each scene's place in the telling by its path.
    """
    return {scene.path: place for place, scene in enumerate(scenes)}
