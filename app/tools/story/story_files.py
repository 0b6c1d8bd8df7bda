"""The files of a story: its outlines, its scenes, its canon cards, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from app import errors
from app.tools.story import canon, documents, folders, outline_fields, scene_numbers
from app.tools.story.documents import Document
from app.tools.workspace import Workspace

Category = Literal["scene", "outline", "canon", "other"]  # The role of a file in the story.
CATEGORIES: tuple[Category, ...] = ("scene", "outline", "canon", "other")  # All roles.

_OUTLINE_WORDS = frozenset({"outline", "outlines"})
_PLAN_WORDS = frozenset({"plot", "plan", "beats", "beat", "structure", "synopsis", "treatment", "breakdown", "scenes"})
_SCENE_FOLDERS = frozenset({"scene", "scenes", "chapter", "chapters", "manuscript"})
_CANON_FOLDERS = frozenset(
    {"compendium", "canon", "codex", "bible", "cards", "lore", "world", "worldbuilding"}
    | {"cast", "characters", "character", "people", "places", "place", "locations", "location", "items", "events"}
)
_OTHER_FOLDERS = frozenset(
    {"draft", "drafts", "archive", "archives", "old", "backup", "backups", "trash", "note", "notes", "research"}
    | {"template", "templates", "reports"}
)
_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9]{6}")
_PLANNED_SCENES = 2
_ENTRIES_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryFile:
    """A text file of the workspace."""

    category: Category  # Its role in the story.
    document: Document  # Its text; empty if it is too large.

    @property
    def path(self) -> str:
        """Path in the workspace."""
        return self.document.path


def read_all(workspace: Workspace, folder: str = "") -> tuple[list[StoryFile], bool]:
    """Read the text files below a folder, large ones by name only; return whether a limit ended the scan."""
    # Two scans, so that pictures and data do not use up the limits before the texts are found.
    scans = [workspace.scan(folder, folders.is_text), workspace.scan(folder, lambda name: not folders.is_text(name))]
    read = (_read(workspace, file.path) for scan in scans for file in scan.files)
    found = [document for document in read if document is not None]
    files = [StoryFile(category=category_of(document), document=document) for document in found]
    return files, any(scan.truncated for scan in scans)


def category_of(document: Document) -> Category:
    """Return the role of a file: from its front matter, otherwise from its name, its folder, or its content."""
    path = PurePosixPath(document.path)
    if not folders.is_text(document.path):
        return "other"
    kind = (document.scalar("kind", "type") or "").lower()
    above = [_words(part) for part in path.parts[:-1]]
    words, named = _words(path.stem), scene_numbers.of_path(document.path)
    if kind == "outline" or words & _OUTLINE_WORDS:
        return "outline"
    if kind == "scene":
        return "scene"
    if (kind and canon.kind_of(document)) or _RUN_ID.fullmatch(path.stem):
        return "canon" if kind else "other"
    # The innermost folder with a known name decides.
    place = next((found for part in reversed(above) if (found := _place(part))), None)
    if place is None and canon.kind_of(document):
        return "canon"
    if place == "scene" or (place is None and _is_scene(document, named, words)):
        return "scene"
    if place is None and _is_plan(document, words):
        return "outline"
    return "canon" if place == "canon" else "other"


def is_draft(file: StoryFile) -> bool:
    """Return whether a file in a folder such as `drafts` or `old` has the name of a scene; drafts of runs do not."""
    path = PurePosixPath(file.path)
    beside = file.category == "other" and any(_words(part) & _OTHER_FOLDERS for part in path.parts[:-1])
    return beside and _is_scene(file.document, scene_numbers.of_path(file.path), _words(path.stem))


def outlines(files: Iterable[StoryFile]) -> list[StoryFile]:
    """Return the outlines, in the order given."""
    return [file for file in files if file.category == "outline"]


def covering(files: Sequence[StoryFile], category: Category) -> list[str]:
    """Return paths that cover all files of a category; a folder replaces its files if it contains no other texts."""
    wanted = {file.path for file in files if file.category == category and folders.is_text(file.path)}
    others = {file.path for file in files if file.path not in wanted and folders.is_text(file.path)}
    impure = {str(folder) for path in others for folder in PurePosixPath(path).parents}
    found: dict[str, None] = {}
    for path in sorted(wanted):
        pure = [str(folder) for folder in PurePosixPath(path).parents if str(folder) not in impure | {"."}]
        found[pure[-1] if pure else path] = None
    return list(found)


def _read(workspace: Workspace, path: str) -> Document | None:
    try:
        return documents.read(workspace, path)
    except errors.ToolFailed as failure:
        return documents.parse("", path=path) if failure.code == "file_too_large" and folders.is_text(path) else None


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", name.lower()))


def _place(words: frozenset[str]) -> Literal["scene", "canon", "other"] | None:
    if words & _SCENE_FOLDERS:
        return "scene"
    if words & _CANON_FOLDERS:
        return "canon"
    return "other" if words & _OTHER_FOLDERS else None


def _is_scene(document: Document, named: scene_numbers.Named, words: frozenset[str]) -> bool:
    if not folders.is_text(document.path):
        return False
    if document.scalar("scene", "scene_number", "pov", "point_of_view"):
        return True
    stem = PurePosixPath(document.path).stem.lower()
    return (named.number is not None and named.sure) or (
        stem.startswith(("scn-", "scn_", "scene-", "scene_", "scene ")) and not words & _PLAN_WORDS
    )


def _is_plan(document: Document, words: frozenset[str]) -> bool:
    """Return whether an unrecognised file plans scenes: by its name, or by lists below headings."""
    headings = outline_fields.all_headings(document)
    heads = outline_fields.of_document(document, headings)
    numbered = [head for head in heads if head.number is not None and head.number.unit is not None]
    if words & _PLAN_WORDS:
        return bool(numbered) or len(heads) >= _PLANNED_SCENES
    lines = [text for _, text in documents.body(document) if text.strip() and not text.lstrip().startswith("#")]
    return len(numbered) >= _PLANNED_SCENES and len(documents.items(document)) >= _ENTRIES_SHARE * len(lines)
