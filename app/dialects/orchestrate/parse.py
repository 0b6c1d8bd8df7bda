"""The parser: convert a text into a workflow, or report all its flaws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from app import errors
from app.dialects import field_tables, forms, yaml_text
from app.dialects.orchestrate import dependencies, explanations, providers, schema, scopes, steps, variables
from app.domain import json_schemas, json_text, library, plain

DIALECT = "orchestrate"  # Name of this dialect.

_EXPLAINED_HERE = ("oneOf", "dependentRequired")

_Flaws: TypeAlias = Iterator[errors.Flaw]


def parse(source: str, stem: str) -> library.Recipe:
    """Read a workflow; missing fields get their defaults."""
    document = _with_built_in_providers(schema.completed("workflow", yaml_text.valid(source, flaws, "The workflow")))
    return library.Recipe(
        recipe_id=stem,
        dialect=DIALECT,
        label=document.get("name", stem),
        document=document,
        source_sha256=plain.sha256(source.encode(errors="replace")),
        args_schema=_args_schema(document),
        options_schema=schema.OPTIONS,
        total_steps=None if scopes.may_repeat(document) else len(document["steps"]),
    )


def flaws(document: plain.Json) -> _Flaws:
    """Return all flaws of a workflow, whatever the source of its text."""
    version, unknown = _version(document)
    judged = document | {"version": version} if unknown else document
    yield from forms.in_words(explanations.explained(_breaches(version, judged), judged, version), schema.NAME_FORMS)
    if not isinstance(document, dict):
        return
    if unknown:
        yield json_schemas.flaw(("version",), "unknown_version", _of_version(document["version"]))
    yield from _of_texts(document)
    yield from _of_providers(document)
    spots = list(scopes.spots(document))
    everywhere = {str(spot.step.get("name")): None for spot in spots}
    for spot in spots:
        yield from steps.flaws(spot, document, everywhere)


def _with_built_in_providers(document: plain.Object) -> plain.Object:
    declared = document.get("providers", {})
    used = {str(spot.step["provider"]) for spot in scopes.spots(document) if "provider" in spot.step}
    added = {name: template for name, template in providers.BUILT_IN.items() if name in used - declared.keys()}
    return {**document, "providers": {**declared, **added}} if added else document


def _args_schema(document: plain.Object) -> dict[str, plain.Json]:
    """Return the schema of a run's arguments: the context may have any fields."""
    known = {name: {"default": value} for name, value in document.get("context", {}).items()}
    return {"type": "object", "properties": known, "additionalProperties": True}


# -- versions


def _version(document: plain.Json) -> tuple[str, bool]:
    named = document.get("version") if isinstance(document, dict) else None
    meant = variables.written(named)
    known = meant in schema.VERSIONS
    reported = isinstance(named, str | int | float) and not isinstance(named, bool)
    return (meant if known else schema.NEWEST), reported and not (known and isinstance(named, str))


def _of_version(named: plain.Json) -> str:
    if not isinstance(named, str):
        return f'is a number; write it in quotes: "{named}"'
    known = f"Control Room runs {', '.join(schema.VERSIONS)}"
    if named in explanations.LATER_VERSIONS:
        return f"{named!r} is a version that the language has upstream; {known}"
    return f"{named!r:.40} is not a version of the language; {known}"


def _breaches(version: str, document: plain.Json) -> list[errors.Flaw]:
    return json_schemas.flaws(
        schema.json_schema(version), document, lenient=lambda _, keyword: keyword in _EXPLAINED_HERE
    )


# -- texts


def _of_texts(document: plain.Object) -> _Flaws:
    for place, field, value in schema.found("workflow", document):
        if field.path is not None:
            yield from _of_paths(place, field, value)
        if field.filled:
            for where, text in json_text.texts(value, place):
                if variables.is_open(text):
                    message = "contains a `${` that is never closed; write `$${` for the characters themselves"
                    yield json_schemas.flaw(where, "open_variable", message)
    for where, text in json_text.texts({name: part for name, part in document.items() if name != "context"}, ()):
        if any(name == "env" or name.startswith("env.") for name in variables.names(text)):
            message = "uses ${env.…}, which is not a namespace; pass variables to a step with `env` and `secrets`"
            yield json_schemas.flaw(where, "env_namespace", message)


def _of_paths(place: json_text.Parts, field: field_tables.Field, value: plain.Json) -> _Flaws:
    for where, text in json_text.texts(value, place):
        problem = dependencies.problem_of_template(text, kind=field.path or "file")
        if problem is not None:
            yield json_schemas.flaw(where, "unsafe_path", problem)


def _of_providers(document: plain.Object) -> _Flaws:
    declared = document.get("providers")
    for name, provider in declared.items() if isinstance(declared, dict) else ():
        command = provider.get("command") if isinstance(provider, dict) else None
        for index, token in enumerate(command if isinstance(command, list) else ()):
            by_stdin = isinstance(token, str) and provider.get("input_mode") == providers.STDIN
            if by_stdin and variables.PROMPT in variables.names(token):
                message = "names ${PROMPT}, but the prompt is given as standard input"
                place = ("providers", name, "command", index)
                yield json_schemas.flaw(place, "invalid_prompt_placeholder", message)
        if isinstance(command, list) and command and command[0] == "":
            yield json_schemas.flaw(("providers", name, "command", 0), "invalid_value", "names no program")
