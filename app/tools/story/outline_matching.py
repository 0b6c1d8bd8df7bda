"""Outline matching: find the outline's scene that a file, a number or a task means, or report the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app import errors
from app.domain import plain
from app.tools import bounds
from app.tools.story import documents, folders, matching, scene_matching, scene_numbers, scenes
from app.tools.story.outlines import Outline, PlannedScene
from app.tools.story.scene_matching import Catalog, Choice, Clue, Target
from app.tools.workspace import Workspace

AMBIGUOUS = "scene_ambiguous"  # Code of the failure if several scenes fit.
NOT_FOUND = "scene_not_found"  # Code of the failure if none fits well enough.

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

    scene: PlannedScene  # The scene.
    score: float  # Certainty, 0 to 1; 1 for a number or a whole title.
    by: str = "number"  # Basis of the match: `number`, `title`, `words` or `position`.

    @property
    def reason(self) -> str:
        """The basis of the match, in words."""
        return _BY[self.by]


def catalog(outline: Outline) -> Catalog:
    """Return the scenes of an outline, to be found by number and title."""
    return Catalog([_target(planned) for planned in outline.scenes])


def match(outline: Outline, query: str) -> Match | None:
    """Return the scene that a query means, None if uncertain."""
    return _match(outline, catalog(outline).choose(scene_matching.of_text(query)))


def of_scenes(outline: Outline, found: Sequence[scenes.Scene]) -> list[PlannedScene | None]:
    """Return the planned scene that each scene's file means, None if uncertain."""
    known = catalog(outline)
    matches = (_match(outline, known.choose(of_file(scene.document))) for scene in found)
    return [match.scene if match is not None else None for match in matches]


def find(outline: Outline, clues: Sequence[Clue]) -> Match:
    """Return the scene that clues mean; earlier clues have precedence."""
    known = catalog(outline)
    choice = scene_matching.decide(known, clues)
    found = _match(outline, choice)
    if found is None:
        raise _failure(outline, clues, choice)
    return found


def clue_of(workspace: Workspace, outline: Outline, query: str) -> Clue:
    """Return the clue in a query; for a path, that of the file, whose content has precedence over its name."""
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
    """Return the clue in a scene's file: its front matter and heading, then its name and folders."""
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
    """Return whether the files beside this one number scenes anew in each chapter, so that numbers are ambiguous."""
    top = path.split("/", 1)[0] if "/" in path else ""
    if top and workspace.kind(top) != "folder":
        return False
    counted: dict[tuple[int, str], set[tuple[tuple[str, int], ...]]] = {}
    for path_of_other in [path, *(file.path for file in workspace.scan(top, folders.is_text).files)]:
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
        message = f"{place} has no scene that {shown} clearly means.{near} {_HOW}."
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
