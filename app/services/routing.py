"""The router: chooses the recipe for a description, without a model (execution-modes, appendix E)."""

# An expression is long because of its syntax, so the router compares how much of the description patterns match instead
# of their own lengths. Ties are decided by recipe id.

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import re2

from app.domain import library, plain, shapes, task_patterns

MAX_CHARACTERS = 20_000  # Beginning of a description that the router examines.

_SHOWN_CHARACTERS = 80
_MOST_CANDIDATES = 10
_FILE = r"[^/]\.(?i:adoc|csv|fountain|html|json|markdown|md|org|rst|tex|text|txt|xml|yaml|yml)"
# A quoted path may contain spaces; any other word ends at one.
_WORDS = re2.compile(rf"""["'`“]([^"'`“”\n]+{_FILE})["'`”]|([^\s"'`“”<>|,;()\[\]]+)""")
# Without a known ending, only a folder is a path: `Story/Scenes/`.
_PATH = re2.compile(rf".*{_FILE}|(\w[\w.-]*/)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(shapes.Shape):
    """A recipe that matches a description."""

    published_as: ClassVar[str] = "RoutingCandidate"

    recipe_id: str  # Recipe.
    initial_args: Mapping[str, plain.Json]  # Arguments of the recipe that were found in the description.
    pattern: str  # Phrase or expression of the recipe that matches most of the description.
    characters: int  # Number of characters of the description that it matches.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingResult(shapes.Shape):
    """The router's choice for a description."""

    published_as: ClassVar[str] = "Routed"

    recipe_id: str | None  # Recipe to execute; None if none matches.
    initial_args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments found in the description."""
    routable: bool  # Whether a recipe matches.
    reason: str  # Why this recipe or none was chosen.
    questions: Mapping[str, str] = field(default_factory=dict)
    """Questions about arguments that neither the description nor the project gives."""
    candidates: tuple[Candidate, ...] = ()  # Matching recipes, the chosen one first, at most ten.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    recipe: library.Recipe
    pattern: task_patterns.Pattern
    match: task_patterns.Match


class Router:
    """Matches descriptions with the task patterns of recipes."""

    def __init__(self, recipes: Iterable[library.Recipe]) -> None:
        ordered = sorted(recipes, key=lambda recipe: recipe.recipe_id)
        self._patterns = [(recipe, pattern) for recipe in ordered for pattern in _patterns(recipe)]

    def route(self, text: str) -> RoutingResult:
        """Return the recipe whose pattern matches most of a description; of equal ones, the first by id."""
        text = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()
        fits = list(self._fits(text))
        if not fits:
            return _unroutable(text, bool(self._patterns))
        # `max` returns the first of equal ones, so a tie does not depend on the order of files.
        best = max(fits, key=lambda fit: fit.match.length)
        candidates = tuple(_candidates(fits, text))
        return RoutingResult(
            recipe_id=best.recipe.recipe_id,
            initial_args=candidates[0].initial_args,
            routable=True,
            reason=_reason(best, fits),
            candidates=candidates,
        )

    def _fits(self, text: str) -> Iterator[_Fit]:
        for recipe, pattern in self._patterns:
            match = pattern.match(text)
            if match is not None:
                yield _Fit(recipe=recipe, pattern=pattern, match=match)


def paths_in(text: str) -> list[str]:
    """Return the paths of files and folders in a text, each once; only those that can be in a workspace."""
    words = (quoted or word.rstrip(".:!?") for quoted, word in _WORDS.findall(text))
    return list(dict.fromkeys(word for word in words if _PATH.fullmatch(word) and _inside(word)))


def _patterns(recipe: library.Recipe) -> Iterator[task_patterns.Pattern]:
    for source in recipe.task_patterns:
        try:
            yield task_patterns.read(source)
        except ValueError:
            # Reported as a flaw where the recipe is listed; the router must still answer.
            continue


def _inside(path: str) -> bool:
    return not path.startswith(("/", "~")) and "://" not in path and ".." not in path.split("/")


def _unroutable(text: str, patterns: bool) -> RoutingResult:
    if not text.strip():
        reason = "The description is empty."
    elif not patterns:
        reason = "No recipe has task patterns."
    else:
        reason = "No recipe's task pattern occurs in the description."
    return RoutingResult(recipe_id=None, routable=False, reason=reason)


def _args(recipe: library.Recipe, own: Iterable[_Fit], text: str) -> dict[str, plain.Json]:
    rules: Mapping[str, Any] = recipe.args_schema.get("properties") or {}
    parts = {name: part for fit in own for name, part in fit.match.parts.items() if name in rules}
    args = {name: _typed(part, rules[name]) for name, part in parts.items()}
    return args | _paths_as_args(recipe, set(args), text)


def _typed(part: str, rule: object) -> plain.Json:
    kind = rule.get("type") if isinstance(rule, Mapping) else None
    if kind == "integer" and re.fullmatch(r"[+-]?[0-9]{1,15}", part):
        return int(part)
    if kind == "number" and re.fullmatch(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?", part):
        return float(part)
    return [part] if kind == "array" else part


def _paths_as_args(recipe: library.Recipe, taken: set[str], text: str) -> dict[str, plain.Json]:
    """Assign the first path to the first required `*_path`, and the remaining ones to a `*_paths`.

    Optional arguments get paths only if no required one takes them, and an optional `*_path` only if the recipe has no
    `*_paths`: it is unknown which of several files it would name.
    """
    paths = paths_in(text)
    args: dict[str, plain.Json] = {}
    required = [name for name in recipe.args_schema.get("required") or () if name not in taken]
    declared = [name for name in recipe.args_schema.get("properties") or () if name not in taken]
    several = _first((*required, *declared), "_paths")
    one = _first(required, "_path") or (_first(declared, "_path") if several is None else None)
    # The first path is the subject of the sentence.
    if paths and one is not None:
        args[one] = paths.pop(0)
    if paths and several is not None:
        args[several] = paths
    return args


def _first(names: Iterable[str], ending: str) -> str | None:
    return next((name for name in names if name.endswith(ending)), None)


def _candidates(fits: list[_Fit], text: str) -> Iterator[Candidate]:
    """Yield each matching recipe once; the sort is stable, so equal ones stay in the order of their ids."""
    ordered = sorted(fits, key=lambda fit: fit.match.length, reverse=True)
    for recipe_id in list(dict.fromkeys(fit.recipe.recipe_id for fit in ordered))[:_MOST_CANDIDATES]:
        own = [fit for fit in fits if fit.recipe.recipe_id == recipe_id]
        widest = max(own, key=lambda fit: fit.match.length)
        yield Candidate(
            recipe_id=recipe_id,
            initial_args=_args(widest.recipe, sorted(own, key=lambda fit: fit.match.length), text),
            pattern=widest.pattern.source[:_SHOWN_CHARACTERS],
            characters=widest.match.length,
        )


def _reason(best: _Fit, fits: Iterable[_Fit]) -> str:
    kind = "phrase" if best.pattern.expression is None else "expression"
    reason = f"The {kind} {best.pattern.source[:_SHOWN_CHARACTERS]} occurs in the description."
    others = [fit for fit in fits if fit.recipe is not best.recipe]
    equal = sorted({fit.recipe.recipe_id for fit in others if fit.match.length == best.match.length})
    if equal:
        return f"{reason} A pattern of {', '.join(equal)} covers as much of it; the first by name was taken."
    if others:
        names = sorted({fit.recipe.recipe_id for fit in others})
        return f"{reason} It covers more of it than the patterns of {', '.join(names)}."
    return reason
