"""Roster rules: the schema and the checks of a file of agents and backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app import errors
from app.agents import backends, json_files
from app.agents.configuration import TIERS
from app.agents.programs import template
from app.domain import library, plain

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"}

_NAME_RULE = "must be a name of letters, digits and _ . - (at most 64)"

_TEXT = {"type": "string", "minLength": 1}

_NOT_EMPTY = "must not be empty"

_TEXTS = {"type": "array", "items": {"type": "string"}}

_PARTS = {
    "type": "array",
    "minItems": 1,
    "prefixItems": [_TEXT],
    "items": {
        "anyOf": [{"type": "string"}, {**_TEXTS, "minItems": 1}],
        "description": "must be a text or a list of texts",
    },
}

_PATHS = ("text", "session_id", "input_tokens", "output_tokens", "cost_usd", "error", "finish")

_KEY_RULE = "must name an environment variable (capitals, digits and _); the key itself does not belong in this file"

_VARIABLES_RULE = "must name an environment variable, or several with * and ?"

_SECRETS = frozenset({"api_key", "apikey", "key", "token", "secret", "password", "auth_token"})


def _name(meaning: str) -> dict[str, plain.Json]:
    return {**_NAME, "title": meaning, "description": _NAME_RULE}


def _text(meaning: str) -> dict[str, plain.Json]:
    return {**_TEXT, "title": meaning, "description": _NOT_EMPTY}


_AGENT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id"],
    "properties": {
        "id": _name("Name, unique among the agents."),
        "archetype": _name("Role that recipes refer to."),
        "tier": {"enum": ["t1", "t3", "t5"], "title": "Size, which selects the prompt variant."},
        "backend": _name("Backend of the agent."),
        "model": {
            "type": ["string", "null"],
            "minLength": 1,
            "title": "Model, or one of haiku, sonnet, opus; null: the default.",
        },
        "role": {"type": "string", "maxLength": 20_000, "title": "Role contract, part of every prompt."},
        "evidence": {"enum": ["none", "any", "file", "receipt"], "title": "Evidence that its replies must contain."},
        "modes": {
            "type": "array",
            "items": {"enum": ["conference", "pipeline"]},
            "title": "Modes in which the agent takes part; empty: all.",
        },
        "max_output_tokens": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": library.MOST_OUTPUT_TOKENS,
            "title": "Maximum length of a reply, in tokens, unless the step sets one; null: the backend's default.",
            "description": f"must be a whole number from 1 to {library.MOST_OUTPUT_TOKENS}, or null",
        },
        "on_cut_off": {"enum": ["fail", "keep"], "title": "What to do with a reply that reaches the length limit."},
    },
}

_BACKEND = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "title": "Kind of backend."},
        "command": {**_PARTS, "title": "Program and leading arguments."},
        "resume": {**_PARTS, "title": "Command that continues a conversation."},
        "arguments": {**_TEXTS, "title": "Further arguments of the program."},
        "allowed_tools": {
            "type": "array",
            "items": _TEXT,
            "minItems": 1,
            "title": "Tools that the program may use without asking; by default all.",
        },
        "tools_on": {**_TEXTS, "title": "Arguments that allow the program to use its tools without asking."},
        "tools_off": {**_TEXTS, "title": "Arguments that disable all tools."},
        "reply": {
            "type": "object",
            "additionalProperties": False,
            "required": ["text"],
            "properties": dict.fromkeys(_PATHS, _TEXT),
            "title": "Dotted paths of the values in the JSON that the program prints.",
        },
        "idle_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "title": "Maximum silence, in seconds; then the prompt is stopped.",
            "description": "must be a number of seconds above 0",
        },
        "max_cost_per_call": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1_000_000,
            "title": "Maximum cost of a prompt, in US dollars; passed as the cap to programs that take one.",
            "description": "must be a number of US dollars above 0",
        },
        **{
            name: {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_000_000,
                "title": title,
                "description": "must be a whole number from 1 to 1000000",
            }
            for name, title in (
                ("max_per_minute", "Maximum number of prompts to one model that start within a minute."),
                ("max_parallel", "Maximum number of prompts to one model at the same time."),
            )
        },
        "base_url": {
            "type": "string",
            "pattern": "^https?://[^\\s@]+$",
            "title": "Address of the service.",
            "description": "must be an http or https address, without user or password",
        },
        "api_key_env": {
            "type": "string",
            "pattern": "^[A-Z_][A-Z0-9_]{0,127}$",
            "title": "Environment variable that contains the key.",
            "description": _KEY_RULE,
        },
        "secrets": {
            "type": "array",
            "items": {
                "type": "string",
                "pattern": "^[A-Za-z_*?][A-Za-z0-9_*?]{0,127}$",
                "description": _VARIABLES_RULE,
            },
            "title": "Further secret variables that the program receives.",
        },
        "models": {
            "type": "object",
            "additionalProperties": False,
            "properties": {tier: _text(f"Model for {tier}.") for tier in TIERS},
            "title": "Models by tier name.",
        },
        "file": _text("Script, as a path relative to this file's folder."),
        "record": {
            "type": "object",
            "additionalProperties": False,
            "required": ["backend", "file"],
            "properties": {
                "backend": _name("Backend to record."),
                "file": _text("Recording, as a path relative to this folder."),
            },
            "title": "Backend whose replies are recorded and replayed.",
        },
    },
}

SCHEMA: plain.Object = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Agents and backends of a project",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"},
        "agents": {"type": "array", "items": _AGENT},
        "default_backend": _name("Backend of agents and agent recipes that do not name one."),
        "backends": {"type": "object", "propertyNames": _name("Name."), "additionalProperties": _BACKEND},
    },
}
"""JSON Schema of `agents.json`."""


def shape_flaws(document: plain.Json) -> list[errors.Flaw]:
    """Return the flaws of a file considered alone."""
    found = [_without_secret(flaw) for flaw in json_files.flaws(SCHEMA, document)]
    # With a wrong shape, the further checks would only report consequences.
    if found:
        return found
    ids = [agent["id"] for agent in document.get("agents", ())]
    return [
        errors.Flaw(path=f"$.agents[{n}].id", code="duplicate", message=f"is the id of $.agents[{ids.index(name)}] too")
        for n, name in enumerate(ids)
        if name in ids[:n]
    ]


def sense_flaws(
    document: Mapping[str, Any], agents: Mapping[str, Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> list[errors.Flaw]:
    """Return the flaws of a file that is merged over the layers below."""
    found: list[errors.Flaw] = []
    for position, agent in enumerate(document.get("agents", ())):
        found += _agent_flaws(f"$.agents[{position}]", agents[agent["id"]], list(known))
    if "default_backend" in document and document["default_backend"] not in known:
        hint = json_files.nearest(document["default_backend"], list(known))
        found.append(errors.Flaw(path="$.default_backend", code="unknown_backend", message=f"is not a backend; {hint}"))
    for name in document.get("backends", {}):
        found += _backend_flaws(f"$.backends.{name}", name, known)
    return found


def _without_secret(flaw: errors.Flaw) -> errors.Flaw:
    if flaw.code == "unknown" and flaw.path.rpartition(".")[2].lower() in _SECRETS:
        return errors.Flaw(
            path=flaw.path,
            code="secret",
            message="keys do not belong in this file; name the variable that holds it in api_key_env",
        )
    return flaw


def _agent_flaws(path: str, agent: Mapping[str, Any], known: list[str]) -> Iterable[errors.Flaw]:
    for name in ("archetype", "tier"):
        if name not in agent:
            yield errors.Flaw(path=path, code="missing", message=f"lacks {name}")
    if "backend" in agent and agent["backend"] not in known:
        hint = json_files.nearest(agent["backend"], known)
        yield errors.Flaw(path=f"{path}.backend", code="unknown_backend", message=f"is not a backend; {hint}")


def _backend_flaws(path: str, name: str, known: Mapping[str, Mapping[str, Any]]) -> Iterable[errors.Flaw]:
    backend = known[name]
    if "type" not in backend:
        yield errors.Flaw(path=path, code="missing", message="lacks type")
    elif backend["type"] not in backends.TYPES:
        hint = json_files.nearest(backend["type"], sorted(backends.TYPES))
        yield errors.Flaw(path=f"{path}.type", code="unknown_backend_type", message=f"is not a type of backend; {hint}")
    else:
        yield from _field_flaws(path, backend)
    recorded = backend.get("record", {}).get("backend")
    if recorded is not None and (recorded not in known or "record" in known[recorded]):
        eligible = [other for other in known if "record" not in known[other]]
        hint = json_files.nearest(recorded, eligible)
        yield errors.Flaw(path=f"{path}.record.backend", code="unknown_backend", message=f"cannot be recorded; {hint}")


_OF_ALL = frozenset({"type", "models", "max_cost_per_call", "max_per_minute", "max_parallel"})


def _field_flaws(path: str, backend: Mapping[str, Any]) -> Iterable[errors.Flaw]:
    kind = backends.TYPES[backend["type"]]
    for name in sorted(set(backend) - kind.fields - _OF_ALL):
        message = f"does not apply to a backend of type {backend['type']}"
        yield errors.Flaw(path=f"{path}.{name}", code="unknown", message=message)
    if "resume" not in kind.fields and not all(isinstance(part, str) for part in backend.get("command", ())):
        yield errors.Flaw(path=f"{path}.command", code="type", message="must be a list of texts; only templates nest")
    for name in ("command", "resume") if "resume" in kind.fields else ():
        if template.fills_script(backend.get(name, ())):
            message = 'a shell would execute the value of a placeholder; use "$1" and give it as a further argument'
            yield errors.Flaw(path=f"{path}.{name}", code="script", message=message)
    if backend.get("resume", ("",))[0] != backend.get("command", ("",))[0] and "resume" in backend:
        yield errors.Flaw(path=f"{path}.resume", code="choice", message="must begin with the program of command")
    for name in sorted(kind.needed - set(backend)):
        yield errors.Flaw(path=path, code="missing", message=f"lacks {name}")
    params = kind.any_of & set(backend)
    if kind.any_of and len(params) != 1:
        yield errors.Flaw(path=path, code="one_of", message=f"needs exactly one of {', '.join(sorted(kind.any_of))}")
