"""Story scenes: find the outline's scene and its file for a number or a description, and name new files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app import errors
from app.tools import bounds
from app.tools.story import folders, matching, outline_matching, outlines, scene_matching, scene_numbers, story_files
from app.tools.story.outlines import Outline, PlannedScene
from app.tools.story.scene_matching import Catalog, Clue, Target
from app.tools.story.scene_numbers import SceneNumber
from app.tools.story.story_files import StoryFile

_NEW_FOLDER = "Scenes"
_SLUG_WORDS = 12
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A scene of the project."""

    label: str  # Its name in messages.
    paths: tuple[str, ...]  # Its files; empty if it is not written yet.
    planned: PlannedScene | None  # Its plan; None if the outline does not contain it.
    outline: Outline | None  # The outline that plans it.


class Story:
    """The outlines and scenes of a project, and the assignment of files to planned scenes."""

    def __init__(self, files: Sequence[StoryFile], outline_path: str | None = None) -> None:
        """Read the outlines.

        Args:
            outline_path: The only outline to use; None: all outlines.
        """
        chosen = [file for file in files if file.path == outline_path]
        self.files = files
        self.outlines = [outlines.of_document(file.document) for file in chosen or story_files.outlines(files)]
        self.scenes = self._scenes()

    def locate(self, clue: Clue) -> Located:
        """Return the scene that a clue means."""
        found, failures = list[tuple[Outline, PlannedScene]](), list[errors.ToolFailed]()
        for outline in self.outlines:
            try:
                found.append((outline, outline_matching.find(outline, [clue]).scene))
            except errors.ToolFailed as failure:
                failures.append(failure)
        if len(found) == 1:
            outline, planned = found[0]
            return Located(label=planned.label, paths=self.written(outline, planned), planned=planned, outline=outline)
        # If two outlines both contain the scene, a person has to choose.
        if len(found) > 1:
            raise _in_several(clue, found)
        tied = next((failure for failure in failures if failure.code == outline_matching.AMBIGUOUS), None)
        if tied is not None:
            raise tied
        return self._by_file(clue, failures)

    def numbered(self, clue: Clue) -> list[list[Located]]:
        """Return the scenes of each number of a clue: one scene, or all of a chapter, an act, a part or a book."""
        return [
            self._within(number) or [self.locate(Clue(shown=str(number), numbers=(number,), sure=True))]
            for number in clue.numbers
        ]

    def written(self, outline: Outline, planned: PlannedScene) -> tuple[str, ...]:
        """Return the files of a planned scene."""
        known = outline_matching.catalog(outline)
        found = []
        for file in self._near(outline):
            choice = known.choose(outline_matching.of_file(file.document))
            # Shared words alone are too weak a reason to take a file for the scene.
            if choice.index == planned.index and choice.by in {"number", "title"}:
                found.append(file.path)
        return tuple(found)

    def new_path(self, located: Located) -> str:
        """Return the path for a scene that is not written yet, in the style of the existing ones."""
        planned, outline = located.planned, located.outline
        names = [file.path for file in (self.scenes if outline is None else self._near(outline))]
        if planned is None or outline is None:
            return str(PurePosixPath(folder_of(names) or _NEW_FOLDER, f"SCN-{_slug(located.label)}.md"))
        title = _slug(planned.title) if planned.title != planned.heading else ""
        model = _model(names, planned)
        path = None if model is None else _renamed(model, planned, title)
        if path is not None and self._is(path, outline, planned):
            return path
        folder = folder_of(names) or str(PurePosixPath(outline.path).parent / _NEW_FOLDER)
        parts = ["SCN", *(f"{kind[:2]}{value}" for kind, value in planned.within)]
        parts += [f"sc{planned.number:02}"] if planned.number is not None and len(parts) > 1 else []
        parts += [f"{planned.number:02}"] if planned.number is not None and len(parts) == 1 else []
        return str(PurePosixPath(folder, f"{'-'.join([*parts, *filter(None, [title])])}.md"))

    def _within(self, number: SceneNumber) -> list[Located]:
        wanted = {*number.within, (number.unit or "", number.number)}
        planned = [
            (outline, scene) for outline in self.outlines for scene in outline.scenes if wanted <= {*scene.within}
        ]
        if len({outline.path for outline, _ in planned}) > 1:
            return []
        if planned:
            return [
                Located(label=scene.label, paths=self.written(outline, scene), planned=scene, outline=outline)
                for outline, scene in planned
            ]
        clues = [(file.path, outline_matching.of_file(file.document)) for file in self.scenes]
        return [
            Located(label=path, paths=(path,), planned=None, outline=None)
            for path, clue in clues
            if clue.numbers and wanted <= {*clue.numbers[0].within}
        ]

    def _near(self, outline: Outline) -> list[StoryFile]:
        """Return the files that may be scenes of an outline: those in its folder, or those of no other outline."""
        home = PurePosixPath(outline.path).parent
        beside = {file.path for file in self.scenes if PurePosixPath(file.path).is_relative_to(home)}
        if not beside:
            return self.scenes
        outlined = {PurePosixPath(file.path).parent for file in story_files.outlines(self.files)}
        others = outlined - {home, PurePosixPath()}
        return [
            file
            for file in self.scenes
            if file.path in beside or not any(PurePosixPath(file.path).is_relative_to(other) for other in others)
        ]

    def _is(self, path: str, outline: Outline, planned: PlannedScene) -> bool:
        choice = outline_matching.catalog(outline).choose(scene_matching.of_path(path))
        return choice.index == planned.index

    def _scenes(self) -> list[StoryFile]:
        """Return the files of scenes, including those that only a title of the outline identifies as scenes."""
        titles = {
            tuple(matching.tokens(scene.title)) for outline in self.outlines for scene in outline.scenes if scene.title
        }
        found = [file for file in self.files if file.category == "scene" or _is_titled(file, titles)]
        # If the only scenes are in a folder of drafts, the writer means these.
        return found or [file for file in self.files if story_files.is_draft(file)]

    def _by_file(self, clue: Clue, failures: Sequence[errors.ToolFailed]) -> Located:
        clues = [outline_matching.of_file(file.document) for file in self.scenes]
        targets = [
            Target(label=file.path, number=own.numbers[0] if own.numbers else None, titles=own.titles)
            for file, own in zip(self.scenes, clues, strict=True)
        ]
        choice = Catalog(targets).choose(clue)
        if choice.index is not None and choice.by in {"number", "title"}:
            path = self.scenes[choice.index].path
            return Located(label=path, paths=(path,), planned=None, outline=None)
        if choice.tied:
            raise _failed(outline_matching.AMBIGUOUS, clue, [self.scenes[index].path for index in choice.candidates])
        if failures:
            raise failures[0]
        raise _failed(outline_matching.NOT_FOUND, clue, [self.scenes[index].path for index in choice.candidates])


def _is_titled(file: StoryFile, titles: set[tuple[str, ...]]) -> bool:
    path = PurePosixPath(file.path)
    possible = file.category == "other" and folders.is_text(file.path) and len(path.parts) == 1
    return possible and tuple(matching.tokens(scene_numbers.of_path(file.path).title)) in titles


def clue_of(text: str) -> Clue:
    """Return the clue to a scene in a description."""
    return scene_matching.of_text(text)


def _in_several(clue: Clue, found: Sequence[tuple[Outline, PlannedScene]]) -> errors.ToolFailed:
    return _failed(
        outline_matching.AMBIGUOUS, clue, [f"{planned.label} of {outline.path}" for outline, planned in found]
    )


def _failed(code: str, clue: Clue, candidates: Sequence[str]) -> errors.ToolFailed:
    named = [bounds.clipped(candidate) for candidate in candidates]
    shown = bounds.clipped(clue.shown, 80)
    if code == outline_matching.AMBIGUOUS:
        message = f"“{shown}” can mean {' or '.join(named)}."
    else:
        near = f" The nearest are {', '.join(named)}." if named else ""
        message = f"No scene of the project is surely meant by “{shown}”.{near}"
    return errors.ToolFailed(message, code=code, detail={"query": [shown], "candidates": [{"label": n} for n in named]})


def _model(names: Sequence[str], planned: PlannedScene) -> str | None:
    within = dict(planned.within)

    def beside(path: str) -> tuple[int, tuple[int, ...], str]:
        number = scene_numbers.of_path(path).number
        shared = sum(within.get(kind) == value for kind, value in number.within) if number else 0
        return shared, (number.number,) if number else (), path

    return max(names, key=beside, default=None)


def _renamed(model: str, planned: PlannedScene, title: str) -> str:
    """Return a path like another one, with the number and the title of a planned scene instead of its own."""
    path, named = PurePosixPath(model), scene_numbers.of_path(model)
    number, mark = named.number, "_" if "_" in path.stem and "-" not in path.stem else "-"
    if " " in path.stem:
        mark = " "
    if number is None or planned.number is None:
        prefix = re.match(r"(?i)(?:scn|scene|sc)(?=[-_ ])", path.stem)
        shown = [prefix[0]] if prefix else []
        return str(path.with_name(mark.join([*shown, _worded(title, planned, mark)]) + path.suffix))
    numbers = {**dict(number.within), number.unit or "scene": number.number}
    wanted = {**dict(planned.within), **dict(planned.scene_number.within if planned.scene_number else ())}
    wanted[number.unit or "scene"] = planned.number
    stem = _numbers_replaced(str(path.with_suffix("")), numbers, wanted, planned)
    if stem is None:
        return str(path.with_name(mark.join(["SCN", f"{planned.number:02}", *filter(None, [title])]) + path.suffix))
    head, tail = stem
    return head + (mark + _worded(title, planned, mark) if tail and title else "") + path.suffix


def _numbers_replaced(
    stem: str, own: dict[str, int], wanted: dict[str, int], planned: PlannedScene
) -> tuple[str, bool] | None:
    """Return a path up to its last number with other numbers, padded alike, and whether a title follows it."""
    head, end, letter = "", 0, planned.scene_number.letter if planned.scene_number else ""
    labels = {kind: place for kind, *place in reversed(scene_numbers.labelled(stem))}
    for kind in [kind for kind in ("book", "part", "act", "chapter", "scene") if kind in own]:
        bare = (found.span() for found in _DIGITS.finditer(stem, end) if int(found[0]) == own[kind])
        place = labels.get(kind) or next(bare, None)
        value = wanted.get(kind, own[kind])
        if place is None or place[0] < end:
            if kind == "scene" or value != own[kind]:
                return None
            continue
        written = stem[place[0] : place[1]]
        head += stem[end : place[0]] + (written if value == own[kind] else scene_numbers.like(written, value))
        end = place[1]
    return head + letter, bool(re.search(r"[^\W\d_]{2}", stem[end:]))


def _worded(title: str, planned: PlannedScene, mark: str) -> str:
    return planned.title.replace("/", "-") if mark == " " else (title or f"scene-{planned.number}").replace("-", mark)


def _slug(title: str) -> str:
    return "-".join(re.findall(r"[^\W_]+", re.sub("['’]", "", title.lower()))[:_SLUG_WORDS])


def folder_of(names: Sequence[str]) -> str | None:
    """Return the folder that contains most files."""
    parents = Counter(str(PurePosixPath(name).parent) for name in names)
    return max(sorted(parents), key=lambda folder: parents[folder], default=None)
