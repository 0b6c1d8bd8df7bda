"""The parser: convert a text into a recipe, or report all its flaws."""

# Schema 1.7 knows both our names and those of later recipes; the document is kept as written, so that paths and lines
# of errors match the file. Names that differ in behaviour keep the behaviour of their source.

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from app import errors
from app.dialects import yaml_text
from app.dialects.amplifier import declarations, rules, schema, templates, walk
from app.domain import json_schemas, library, plain

DIALECT = "amplifier"  # Name of this dialect.

_EXPLAINED_HERE = ("oneOf",)
_UNKNOWN = "unknown_field"
_NAME = re.compile(r'(?:\.|\[")([^."\[\]]+)(?:"\])?(?:\[\d+\])*\Z')
_BROKEN_FORM = re.compile(r"\A(.*) does not have the form ", re.DOTALL)

_SET_BY_STEPS: plain.Object = {"description": "Set by a step of the recipe.", "readOnly": True}

_MOMENT = "must be a time in ISO 8601, as in 2025-11-18T14:30:00Z"
_WORD = "must consist of letters, digits, hyphens and underscores"
_VARIABLE = "must be a name of letters, digits and underscores"
FORMS: Mapping[str, str] = {
    "version": "must be a semantic version, as in 1.0.0 or 2.1.0-beta.1",
    "created": _MOMENT,
    "updated": _MOMENT,
    "name": f"{_WORD}, at most 100; the name of a stage may have spaces and colons too",
    "id": f"{_WORD}, at most 50",
    "depends_on": "must be the id of a step",
    "agent": "must be the id of an agent, with or without a namespace, as in foundation:zen-architect",
    "model": "must be one word",
    "recipe": "must be the id of a recipe or a file relative to this one, as in checks/lint.yaml; no variable, no @",
    "context": f"{_WORD} in its names",
    "update_context": f"{_WORD} in its names",
    "env": "must name variables of the environment, without = and blanks",
    "prompt": "must say something",
    "command": "must say something",
    "description": "must say something",
    **dict.fromkeys(("as", "index_as", "collect", "output", "output_exit_code", "final_output"), _VARIABLE),
}
"""Messages for malformed values, by field."""

_Flaws: TypeAlias = Iterator[errors.Flaw]


def parse(source: str) -> library.Recipe:
    """Read a recipe."""
    read = yaml_text.sound(source, flaws, "The recipe")
    document: plain.Object = read.value
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
    """Return all flaws of a recipe, whatever the source of its text."""
    version, problem = _version(document)
    if version == schema.FIRST and isinstance(document, dict):
        later = _of_later(document)
        if later:
            yield _needed(later)
            version, problem = schema.NEWEST, None
            document = document | {"schema": version}
    judged = document | {"schema": version} if problem else document
    yield from map(_explained, _breaches(version, judged))
    if problem:
        yield json_schemas.flaw(("schema",), "unknown_version", problem)
    if isinstance(document, dict):
        if version != schema.FIRST and "steps" not in document and "stages" not in document:
            yield json_schemas.flaw((), "missing_field", "has neither steps nor stages")
        yield from rules.flaws(document, version)


def args_schema(document: plain.Object) -> dict[str, plain.Json]:
    """Return the schema of a run's arguments: the context, whose empty values are required, and the declarations.

    A variable that steps set may also be an argument, so that a run that lacks it can be continued with it; it is
    `readOnly`, so that no form asks for it.
    """
    own, context = document.get("args_schema", {}), document.get("context", {})
    properties, required = dict(own.get("properties", {})), list(own.get("required", ()))
    version = document.get("schema", schema.FIRST)
    for name, value in context.items():
        if declarations.is_declaration(value, version):
            properties[name] = {**declarations.rule_of(value), **properties.get(name, {})}
            required += [name] if declarations.is_required(value) else []
        elif is_empty(value):
            required.append(name)
        else:
            properties[name] = {**properties.get(name, {}), "default": value}
    # An argument with a default always has a value.
    wanted = [name for name in dict.fromkeys(required) if "default" not in properties.get(name, {})]
    known = {name: properties.get(name, {}) for name in (*properties, *context)}
    known |= {name: _SET_BY_STEPS for name in sorted(walk.made(document)) if name not in known}
    return {"additionalProperties": False, **own, "type": "object", "properties": known, "required": wanted}


def is_empty(value: plain.Json) -> bool:
    """Return whether a context value is a placeholder for a required argument."""
    return value is None or value == ""


# -- versions


def _version(document: plain.Json) -> tuple[str, str | None]:
    named = document.get("schema", schema.FIRST) if isinstance(document, dict) else schema.FIRST
    if named in schema.VERSIONS and isinstance(named, str):
        return named, None
    meant = templates.written(named)
    # Without quotes, YAML reads `1.7` as a number; the recipe is checked against the version that the number means.
    if isinstance(named, int | float) and not isinstance(named, bool):
        judged = meant if meant in schema.VERSIONS else schema.NEWEST
        return judged, f'is a number; write it in quotes: "{meant}"'
    return schema.NEWEST, f"{meant!r:.40} is not a language version; known: {', '.join(schema.VERSIONS)}"


def _breaches(version: str, document: plain.Json) -> list[errors.Flaw]:
    return json_schemas.flaws(
        schema.json_schema(version), document, lenient=lambda _, keyword: keyword in _EXPLAINED_HERE
    )


def _of_later(document: dict[str, plain.Json]) -> list[errors.Flaw]:
    """Return the fields that only the newest version has; a recipe with any of them is checked against that version."""
    unknown = [flaw for flaw in _breaches(schema.FIRST, document) if flaw.code == _UNKNOWN]
    if not unknown:
        return []
    newest = document | {"schema": schema.NEWEST}
    still = {flaw.path for flaw in _breaches(schema.NEWEST, newest) if flaw.code == _UNKNOWN}
    return [flaw for flaw in unknown if flaw.path not in still]


def _needed(later: list[errors.Flaw]) -> errors.Flaw:
    others = f", and so do {len(later) - 1} other fields" if len(later) > 1 else ""
    wanted = f'schema: "{schema.NEWEST}"'
    message = f"needs {wanted}{others}; write {wanted} at the top of the recipe, which is read as {schema.FIRST}"
    return dataclasses.replace(later[0], code="needs_schema", message=message)


def _explained(flaw: errors.Flaw) -> errors.Flaw:
    """Explain what to write instead of a malformed value, without regular expressions and without overlong texts."""
    named = _NAME.search(flaw.path)
    name, message = named[1] if named else "", flaw.message
    if flaw.code == _UNKNOWN and name in INSTEAD:
        message = f"belongs to later recipes of Amplifier; {INSTEAD[name]}"
    elif flaw.code == "wrong_type" and name in COMPUTED:
        message = f"{message}; write the number itself: variables and units are not read here"
    elif flaw.code == "invalid_value" and (found := _BROKEN_FORM.match(message)):
        message = f"is {found[1]:.80}; it {FORMS.get(name, 'has the wrong form')}"
    return dataclasses.replace(flaw, message=message)


_AGENTS = "agents are configured in agents.json or described in .amplifier/agents; remove it"
_GATE = "write the step into a stage of its own with approval: {required: true, prompt: …}"
_STAGE_GATE = "write approval: {required: true, prompt: …}"

INSTEAD: Mapping[str, str] = {
    "schema_version": 'the version of the language is written as schema: "1.7"; remove it',
    "dependencies": _AGENTS,
    "agents": _AGENTS,
    "capabilities": "what an agent may do is set at its backend in agents.json; remove it",
    "orchestrator": "write rate_limiting: {min_delay_ms: …} for a pause before each prompt",
    "approval_required": _STAGE_GATE,
    "approval_message": _STAGE_GATE,
    "auto_approve_if": "no approval is given by a condition; write condition on the steps of the stage",
    "requires_approval": _GATE,
    "condition": "write it on each step of the stage",
    "recursion": "limits are those of the whole recipe; write it at the top, or in the recipe that is run",
    "model_role": "write model: haiku, sonnet or opus",
    "class": "write provider and model, with haiku, sonnet or opus as the model",
    "required": "preferences are tried in order, and the last one decides; remove it",
    "spawn_mode": "every agent is asked in a conversation of its own; remove it",
    "checkpoint_iterations": "every iteration is a step of the journal, from which a run continues; remove it",
    "reset_after_success": "every prompt begins with the first delay; remove it",
    "instruction": "write prompt",
    "message": "write prompt",
    "as_var": "write as",
    "step_context": "write context",
    "while_steps": "write steps",
}
"""What to write instead of a field, by its name."""

COMPUTED = ("timeout", "max_iterations", "max_while_iterations", "max_tokens")
"""Numbers that later recipes may compute from variables."""
