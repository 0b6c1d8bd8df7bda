"""Kinds of tasks: what the recipes of a project can do, in the words by which the router finds them. The names and
tools of recipes are not included: the router chooses (execution-modes, chief's role in pipeline mode).
"""

# A chief that sees recipes or tools would choose among them and bypass the router. Instead, it is asked for
# descriptions that contain a phrase of their kind.

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from app.domain import library, plain, task_patterns

Kind: TypeAlias = plain.Object
"""`{label, phrases, expressions, args: [{name, required, about, form}], done_when}`, as a run freezes it; `leaves` and
`writes` if the recipe has any.
"""

MOST_KINDS = 200  # Most kinds that a run freezes.

_MOST_PHRASES = 12
_MOST_ARGS = 20
_MOST_ENDINGS = 5
_MOST_OUTPUTS = 12
_LABEL_CHARACTERS = 120
_PHRASE_CHARACTERS = 80
_ABOUT_CHARACTERS = 200
_FORMS: plain.Object = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
}
ANY_FORM: plain.Object = {"anyOf": [*_FORMS.values(), {"type": "array", "items": {"anyOf": [*_FORMS.values()]}}]}
"""Form of an argument without a known form; it has types, since some clients refuse schemas without."""

_NAMES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "array": "list"}


def frozen(recipes: Iterable[library.Recipe]) -> list[plain.Json]:
    """Return the kinds of tasks that the router can assign to recipes, by recipe id."""
    ordered = sorted(recipes, key=lambda recipe: recipe.recipe_id)
    return [_kind(recipe) for recipe in ordered if recipe.task_patterns][:MOST_KINDS]


def fitting(kinds: Sequence[Kind], intent: str) -> list[Kind]:
    """Return the kinds, with those that an intent names first, and the phrases of each in the same order."""
    wanted = intent.casefold()
    ranked = [{**kind, "phrases": sorted(kind["phrases"], key=lambda phrase: -_rank(phrase, wanted))} for kind in kinds]
    return sorted(ranked, key=lambda kind: -max((_rank(phrase, wanted) for phrase in kind["phrases"]), default=0))


def arguments(kinds: Iterable[Kind]) -> list[plain.Object]:
    """Return the arguments of kinds, in order."""
    return [argument for kind in kinds for argument in kind["args"]]


def type_name(argument: plain.Object) -> str:
    """Return the type of an argument's value, in a word for people."""
    return _NAMES.get(argument["form"].get("type", ""), "value")


def _kind(recipe: library.Recipe) -> dict[str, plain.Json]:
    patterns = list(_patterns(recipe))
    return {
        "label": _line(recipe.label, _LABEL_CHARACTERS),
        "phrases": [each.source for each in patterns if each.expression is None][:_MOST_PHRASES],
        "expressions": [each.source for each in patterns if each.expression is not None][:_MOST_PHRASES],
        "args": list(itertools.islice(_args(recipe.args_schema), _MOST_ARGS)),
        "done_when": [_line(words, _PHRASE_CHARACTERS) for words in recipe.done_when][:_MOST_ENDINGS],
        **{name: [_line(slot, _PHRASE_CHARACTERS) for slot in slots] for name, slots in _slots(recipe) if slots},
    }


def _slots(recipe: library.Recipe) -> Iterable[tuple[str, Sequence[str]]]:
    return ("leaves", recipe.leaves[:_MOST_OUTPUTS]), ("writes", recipe.writes[:_MOST_OUTPUTS])


def _patterns(recipe: library.Recipe) -> Iterator[task_patterns.Pattern]:
    for source in recipe.task_patterns:
        try:
            pattern = task_patterns.read(source)
        except ValueError:
            # The list of recipes reports this flaw.
            continue
        if pattern.expression is not None or len(source) <= _PHRASE_CHARACTERS:
            yield pattern


def _args(schema: Mapping[str, Any]) -> Iterator[dict[str, plain.Json]]:
    rules: Mapping[str, Any] = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if name in rules and "default" not in rules[name]]
    for name in (*required, *(name for name in rules if name not in required)):
        rule = rules[name] if isinstance(rules[name], Mapping) else {}
        about = _line(str(rule.get("description", "")), _ABOUT_CHARACTERS)
        yield {"name": name, "required": name in required, "about": about, "form": _form(rule)}


def _form(rule: Mapping[str, Any]) -> plain.Json:
    kind = rule.get("type")
    if kind == "array":
        items = rule.get("items")
        return {"type": "array", "items": _form(items) if isinstance(items, Mapping) else {"anyOf": [*_FORMS.values()]}}
    return _FORMS.get(kind, ANY_FORM) if isinstance(kind, str) else ANY_FORM


def _rank(phrase: str, wanted: str) -> int:
    return len(phrase) if phrase.casefold() in wanted else 0


def _line(text: str, most: int) -> str:
    # The rest of the text is cut off in any case.
    words = " ".join(text[: 4 * most].split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
