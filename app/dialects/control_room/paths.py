"""Paths of outputs and checks: their flaws, as far as these are certain before a run."""

from __future__ import annotations

from collections.abc import Iterator

from app import errors
from app.dialects.control_room import prompts, refs
from app.domain import json_schemas, json_text, json_words, plain, workspace_paths


def references(path: plain.Json, place: json_text.Parts) -> Iterator[tuple[json_text.Parts, str]]:
    """Return the references in a path, each with its place."""
    match path:
        case {"$ref": str(text)}:
            yield (*place, "$ref"), text
        case str() if _template_problem(path) is None:
            yield from ((place, reference.text) for reference in prompts.named(path))


def flaws(path: plain.Json, place: json_text.Parts, rules: plain.Object) -> Iterator[errors.Flaw]:
    """Return why a path can lead to no file in the workspace; empty if it may.

    Args:
        rules: Schemas of the recipe's arguments, by name.
    """
    if isinstance(path, str) and (problem := _template_problem(path)) is not None:
        yield json_schemas.flaw(place, "invalid_template", problem)
    elif isinstance(path, str) and path and (problem := workspace_paths.problem_of_file(_filled(path))) is not None:
        yield json_schemas.flaw(place, "unsafe_path", f"{path!r:.80} {problem}")
    for where, text in references(path, place):
        kind = _other_kind(text, rules)
        if kind is not None:
            yield json_schemas.flaw(where, "wrong_type", f"{text:.80} is {kind}; a path consists of texts")


def _template_problem(path: str) -> str | None:
    try:
        prompts.pieces(path)
    except ValueError as error:
        return str(error)
    return None


def _filled(path: str) -> str:
    return "".join(part if isinstance(part, str) else "x" for part in prompts.pieces(path))


def _other_kind(text: str, rules: plain.Object) -> str | None:
    """Return the kind of a reference's value if it is certain not to be a text."""
    try:
        reference = refs.read(text)
    except ValueError:
        return None
    if reference.root != refs.TASK:
        return None
    if reference.steps == ("session_plan_task_id",):
        return "a number"
    if len(reference.steps) == 1 and reference.steps[0] in refs.OBJECTS:
        return "an object"
    rule = rules.get(reference.arg or "") if len(reference.steps) == 2 else None
    kind = rule.get("type") if isinstance(rule, dict) else None
    return json_words.TYPES.get(kind) if isinstance(kind, str) and kind != "string" else None
