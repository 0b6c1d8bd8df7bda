"""
The parser: a text becomes a recipe, or the list of everything that is wrong with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from app import errors
from app.dialects import yaml_text
from app.dialects.amplifier import fields, rules, schema, templates, walk
from app.engine import json_schemas, library, plain

DIALECT = "amplifier"
"""Name of this dialect."""

_TOLD_HERE = ("oneOf",)
_UNKNOWN = "unknown_field"
_MOMENT = "must be a time in ISO 8601, as in 2025-11-18T14:30:00Z"
_FORMS: Mapping[str, str] = {
    "$.version": "must be a semantic version, as in 1.0.0 or 2.1.0-beta.1",
    "$.created": _MOMENT,
    "$.updated": _MOMENT,
}
"""What is said of values whose form is too long to show."""

_Object: TypeAlias = Mapping[str, plain.Json]
_Flaws: TypeAlias = Iterator[errors.Flaw]


def parse(source: str) -> library.Recipe:
    """
    Read a recipe.

    Raises:
        errors.RecipeInvalid: with every flaw found, each with path and line.
    """
    read = yaml_text.sound(source, flaws, "The recipe")
    document: _Object = read.value
    called = {step["recipe"] for _, step in walk.placed(document) if "recipe" in step}
    return library.Recipe(
        recipe_id=document["name"],
        dialect=DIALECT,
        label=document["name"],
        document=document,
        args_schema=args_schema(document),
        total_steps=len(walk.steps(document)),
        line_of=read.line_of,
        leads_to=tuple(sorted(called - {document["name"]})),
    )


def flaws(document: plain.Json) -> _Flaws:
    """
    Return everything that is wrong with a recipe, wherever its text came from.
    """
    version, problem = _version(document)
    judged = document | {"schema": version} if problem else document
    yield from _explained(_breaches(version, judged), version, judged)
    if problem:
        yield json_schemas.flaw(("schema",), "unknown_version", problem)
    if isinstance(document, dict):
        if version != fields.FIRST and "steps" not in document and "stages" not in document:
            yield json_schemas.flaw((), "missing_field", "has neither steps nor stages")
        yield from rules.flaws(document, version)


def args_schema(document: _Object) -> dict[str, plain.Json]:
    """
    Return the schema of a run's arguments: the context, whose empty values must be given, and what is declared.

    A variable that steps set may be given too, so that a run which misses one can be sent on with it.
    """
    own, context = document.get("args_schema", {}), document.get("context", {})
    declared, required = own.get("properties", {}), list(own.get("required", ()))
    properties = dict(declared)
    for name, value in context.items():
        if is_empty(value):
            required += [name] if name not in declared else []
        else:
            properties[name] = {**properties.get(name, {}), "default": value}
    wanted = [name for name in dict.fromkeys(required) if "default" not in properties.get(name, {})]
    known = {name: properties.get(name, {}) for name in (*properties, *context, *sorted(walk.made(document)))}
    return {"additionalProperties": False, **own, "type": "object", "properties": known, "required": wanted}


def is_empty(value: plain.Json) -> bool:
    """
    Tell whether a value of the context stands for one that a run must be given.
    """
    return value is None or value == ""


# -- versions


def _version(document: plain.Json) -> tuple[str, str | None]:
    """
    Return the version that a document is judged by, and what is wrong with the one that it names.
    """
    named = document.get("schema", fields.FIRST) if isinstance(document, dict) else fields.FIRST
    if named in fields.VERSIONS and isinstance(named, str):
        return named, None
    meant = templates.written(named)
    if isinstance(named, int | float) and not isinstance(named, bool):
        judged = meant if meant in fields.VERSIONS else fields.NEWEST
        return judged, f'is a number; write it in quotes: "{meant}"'
    return fields.NEWEST, f"{meant!r:.40} is no version of the language; there are {', '.join(fields.VERSIONS)}"


def _breaches(version: str, document: plain.Json) -> list[errors.Flaw]:
    return json_schemas.flaws(schema.json_schema(version), document, lenient=lambda _, keyword: keyword in _TOLD_HERE)


def _explained(breaches: list[errors.Flaw], version: str, document: plain.Json) -> _Flaws:
    """
    Say of each unknown field that a later version knows it, where that is so, and what is meant by forms.
    """
    later: set[str] | None = None
    for flaw in breaches:
        if flaw.code == "invalid_value" and flaw.path in _FORMS:
            flaw = dataclasses.replace(flaw, message=_FORMS[flaw.path])
        if flaw.code == _UNKNOWN and version == fields.FIRST:
            if later is None:
                still = _breaches(fields.NEWEST, document | {"schema": fields.NEWEST})
                later = {one.path for one in still if one.code == _UNKNOWN}
            if flaw.path not in later:
                message = f'needs schema: "{fields.NEWEST}"; this recipe is written in "{version}"'
                flaw = dataclasses.replace(flaw, code="needs_schema", message=message)
        yield flaw
