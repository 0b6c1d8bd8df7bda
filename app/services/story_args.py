"""Arguments from the project: finds the files of the scene, the outline and the canon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from app import errors
from app.domain import library, plain, shapes
from app.tools import reserved, workspace
from app.tools.story import outline_matching, scene_matching, story_files, story_scenes

SCENE, SCENES, OUTLINE, CANON = "scene_path", "scene_paths", "outline_path", "canon_paths"
NAMES = (OUTLINE, SCENE, SCENES, CANON)
"""Arguments that are searched in the project, in this order."""

_MOST_PATHS = 200
_NOTHING = reserved.Reserved()
_QUESTIONS = {
    SCENE: "Which file is the scene?",
    SCENES: "Which files are the scenes?",
    OUTLINE: "Which file is the outline?",
    CANON: "Which files are the canon cards?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(shapes.Shape):
    """A question to a person about an argument that the project does not provide."""

    question: str  # Text of the question, with the files that were found.
    code: str  # Reason for the question: `scene_ambiguous`, `scene_not_found`, `scene_not_written`, or `not_found`.
    candidates: tuple[str, ...] = ()  # Possible answers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Arguments that a project provides."""

    args: Mapping[str, plain.Json] = field(default_factory=dict)  # Arguments that were found.
    questions: Mapping[str, Question] = field(default_factory=dict)  # Open questions, by argument.


def wanted(recipe: library.Recipe, args: Mapping[str, plain.Json]) -> list[str]:
    """Return the arguments of a recipe that a project can provide and the request omits."""
    declared = recipe.args_schema.get("properties") or {}
    return [name for name in NAMES if name in declared and name not in args]


def find(
    recipe: library.Recipe,
    args: Mapping[str, plain.Json],
    *,
    description: str,
    working_dir: str,
    hidden: reserved.Reserved = _NOTHING,
    planned: bool = False,
    named: frozenset[str] = frozenset(),
) -> Found:
    """Find arguments of a recipe that are not given.

    Args:
        args: Arguments of the request, and those that the router read from the description.
        hidden: Parts of the working folder that are not searched.
        description: Text of the task.
        planned: Whether the run is a task of a plan, so that earlier tasks may still write a scene.
        named: Given arguments that are names from the description, perhaps without folders.
    """
    missing = wanted(recipe, args)
    if not missing and not named & {SCENE, OUTLINE}:
        return Found()
    search = _Search(
        recipe, args, description, workspace.Workspace(reserved.Root.of(Path(working_dir), hidden)), planned
    )
    for name in named & {SCENE, OUTLINE}:
        search.complete(name)
    for name in missing:
        search.find(name)
    return Found(args=search.found, questions=search.questions)


class _Search:
    def __init__(
        self,
        recipe: library.Recipe,
        args: Mapping[str, plain.Json],
        description: str,
        files_of: workspace.Workspace,
        planned: bool,
    ) -> None:
        self.found: dict[str, plain.Json] = {}
        self.questions: dict[str, Question] = {}
        self._rules: Mapping[str, Any] = recipe.args_schema.get("properties") or {}
        self._required = frozenset(recipe.args_schema.get("required") or ())
        self._writes_scene = f"task.args.{SCENE}" in plain.encode(plain.plain(recipe.document.get("outputs"))).decode()
        self._args = args
        self._planned = planned
        self._clue = scene_matching.of_text(description) if description.strip() else scene_matching.Clue(shown="")
        self._workspace = files_of
        self._files = _files(files_of)

    def complete(self, name: str) -> None:
        """Find the one file that a bare name in the description refers to."""
        path = self._args.get(name)
        if not isinstance(path, str) or "/" in path or any(file.path == path for file in self._files):
            return
        same = [file.path for file in self._files if PurePosixPath(file.path).name.lower() == path.lower()]
        if len(same) == 1:
            self.found[name] = same[0]
        elif not same and name == SCENE and self._writes_scene:
            folder = story_scenes.folder_of([file.path for file in self._story().scenes])
            self.found[name] = str(PurePosixPath(folder or "", path))
        elif same:
            self._ask(name, outline_matching.AMBIGUOUS, f"There are several files {path}:", same)

    def find(self, name: str) -> None:
        """Find an argument, or record a question."""
        searches: Mapping[str, Callable[[], None]] = {
            SCENE: self._scene, SCENES: self._scenes, OUTLINE: self._outline, CANON: self._canon,
        }  # fmt: skip
        try:
            searches[name]()
        except errors.ToolFailed as failure:
            labels = [candidate["label"] for candidate in failure.detail.get("candidates", ())]
            self._ask(name, failure.code, failure.message, labels, listed=False)

    def _outline(self) -> None:
        if self._has_default(OUTLINE):
            return
        paths = [file.path for file in story_files.outlines(self._files)]
        if len(paths) > 1:
            try:
                located = self._story().locate(self._scene_clue())
            except errors.ToolFailed:
                located = None
            paths = [located.outline.path] if located is not None and located.outline is not None else paths
        if len(paths) == 1:
            self.found[OUTLINE] = paths[0]
        elif paths:
            self._ask(OUTLINE, "outline_ambiguous", "There are several:", paths)
        elif OUTLINE in self._required or "default" in self._rules[OUTLINE]:
            self._ask(
                OUTLINE,
                "not_found",
                "The project has no file that reads as one. Give outline_path, or put `outline` in its name.",
            )

    def _canon(self) -> None:
        if self._has_default(CANON):
            return
        paths = story_files.covering(self._files, "canon")
        if paths:
            self.found[CANON] = list(paths[:_MOST_PATHS])
        elif CANON in self._required or "default" in self._rules[CANON]:
            self._ask(
                CANON,
                "not_found",
                "The project has no canon cards. Give canon_paths, or make a folder `Compendium` for them.",
            )

    def _scene(self) -> None:
        if SCENE not in self._required and not self._clue.numbers:
            return
        if not self._clue.shown:
            self._ask(SCENE, "not_found", "Give scene_path, or name the scene in the description.")
            return
        story = self._story()
        self.found[SCENE] = self._path_of(story, story.locate(self._clue), SCENE)

    def _scenes(self) -> None:
        if self._clue.numbers:
            story = self._story()
            # Only written scenes of a chapter can be checked, unless an earlier task still writes the others.
            groups = [
                located if self._planned else [one for one in located if one.paths] or located[:1]
                for located in story.numbered(self._clue)
            ]
            paths = [self._path_of(story, located, SCENES) for group in groups for located in group]
            self.found[SCENES] = list(dict.fromkeys(paths))[:_MOST_PATHS]
            return
        if self._has_default(SCENES):
            return
        paths = story_files.covering(self._files, "scene") or [file.path for file in self._story().scenes]
        if paths:
            self.found[SCENES] = list(paths[:_MOST_PATHS])
        elif SCENES in self._required or "default" in self._rules[SCENES]:
            self._ask(
                SCENES,
                "not_found",
                "The project has no scenes. Give scene_paths, or make a folder `Scenes` for them.",
            )

    def _path_of(self, story: story_scenes.Story, located: story_scenes.Located, name: str) -> str:
        if len(located.paths) > 1:
            raise _unsure(outline_matching.AMBIGUOUS, f"{located.label} has several files:", located.paths)
        if located.paths:
            return located.paths[0]
        if (name == SCENE and self._writes_scene) or self._planned:
            return story.new_path(located)
        raise _unsure("scene_not_written", f"{located.label} has no file yet.", ())

    def _story(self) -> story_scenes.Story:
        outline = self.found.get(OUTLINE, self._args.get(OUTLINE)) or self._default(OUTLINE)
        return story_scenes.Story(self._files, outline if isinstance(outline, str) else None)

    def _scene_clue(self) -> scene_matching.Clue:
        path = self._args.get(SCENE)
        return scene_matching.of_path(path) if isinstance(path, str) else self._clue

    def _default(self, name: str) -> plain.Json:
        rule = self._rules.get(name)
        return rule.get("default") if isinstance(rule, Mapping) else None

    def _has_default(self, name: str) -> bool:
        """Return whether the recipe's own default exists in the project."""
        default = self._default(name)
        paths = [default] if isinstance(default, str) else default or []
        return bool(paths) and all(isinstance(path, str) and self._workspace.kind(path) for path in paths)

    def _ask(self, name: str, code: str, reason: str, candidates: Sequence[str] = (), *, listed: bool = True) -> None:
        shown = f" {', '.join(candidates[:6])}." if listed and candidates else ""
        text = f"{_QUESTIONS[name]} {reason}{shown}"
        self.questions[name] = Question(question=text, code=code, candidates=tuple(candidates))


def _files(files_of: workspace.Workspace) -> list[story_files.StoryFile]:
    try:
        return story_files.read_all(files_of)[0]
    except errors.ToolFailed:
        # The run's first step reports the fault.
        return []


def _unsure(code: str, message: str, candidates: Sequence[str]) -> errors.ToolFailed:
    named = [{"label": path} for path in candidates]
    shown = f" {', '.join(candidates)}." if candidates else ""
    return errors.ToolFailed(f"{message}{shown}", code=code, detail={"candidates": named})
