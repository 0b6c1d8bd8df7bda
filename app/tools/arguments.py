"""Arguments of tools: build their schemas, and check a recipe's values against them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app import errors
from app.domain import json_words, plain

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_PATHS = 200  # Paths in one argument.

_PATH_CHARACTERS = 1_024
_MESSAGE_CHARACTERS = 300

Schema = dict[str, plain.Json]  # A JSON Schema, draft 2020-12.


def schema(*, required: Iterable[str], **properties: Schema) -> Schema:
    """Return the schema of an arguments object that allows the named properties and no others."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def path(description: str) -> Schema:
    """Return the schema of a path in the workspace."""
    return {"type": "string", "minLength": 1, "maxLength": _PATH_CHARACTERS, "description": description}


def paths(description: str) -> Schema:
    """Return the schema of a list of paths in the workspace."""
    entry = {"type": "string", "minLength": 1, "maxLength": _PATH_CHARACTERS}
    return {"type": "array", "items": entry, "minItems": 1, "maxItems": MAX_PATHS, "description": description}


def text(description: str, *, max_length: int) -> Schema:
    """Return the schema of a text."""
    return {"type": "string", "minLength": 1, "maxLength": max_length, "description": description}


def texts(description: str, *, max_items: int) -> Schema:
    """Return the schema of a list of short texts."""
    entry = {"type": "string", "minLength": 1, "maxLength": 200}
    return {"type": "array", "items": entry, "maxItems": max_items, "description": description}


def choice(description: str, *names: str, default: str | None = None) -> Schema:
    """Return the schema of a choice between several names."""
    return {"type": "string", "enum": list(names), "description": description} | _default(default)


def count(description: str, *, minimum: int, maximum: int, default: int | None = None) -> Schema:
    """Return the schema of a whole number."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description} | _default(default)


def flag(description: str) -> Schema:
    """Return the schema of a switch that is off by default."""
    return {"type": "boolean", "description": description, "default": False}


def complete(tool: str, args_schema: plain.Object, args: plain.Object) -> dict[str, plain.Json]:
    """Return the arguments with the defaults filled in."""
    params = plain.plain(args)
    found = flaws(args_schema, params)
    if found:
        listed = "; ".join(f"{flaw.path}: {flaw.message}" for flaw in found[:5])
        raise errors.ToolFailed(
            f"The arguments of {tool} are not valid: {listed}",
            code="invalid_args",
            detail={"tool": tool, "flaws": [flaw.to_json() for flaw in found]},
        )
    rules = args_schema["properties"]
    defaults = {name: rule["default"] for name, rule in rules.items() if "default" in rule}
    # JSON Schema accepts 5.0 as an integer.
    whole = {name: int(value) for name, value in params.items() if rules[name]["type"] == "integer"}
    return {**defaults, **params, **whole}


def flaws(args_schema: plain.Object, args: plain.Json) -> list[errors.Flaw]:
    """Return all flaws of the arguments, in the order of their paths."""
    from jsonschema import Draft202012Validator

    found = (flaw for error in Draft202012Validator(args_schema).iter_errors(args) for flaw in _described(error))
    return sorted(set(found), key=lambda flaw: (flaw.path, flaw.message))


def _described(error: ValidationError) -> list[errors.Flaw]:
    rule: Any = error.schema
    params: Any = error.instance
    match error.validator:
        case "required":
            absent = [name for name in rule["required"] if name not in params]
            return [_flaw(f"{error.json_path}.{name}", "required", "is required") for name in absent]
        case "additionalProperties":
            known = list(rule.get("properties", {}))
            unknown = [name for name in params if name not in known]
            return [_flaw(f"{error.json_path}.{name}", "unknown", _unknown(name, known)) for name in unknown]
        case "oneOf":
            names = ", ".join(name for option in rule["oneOf"] for name in option["required"])
            return [_flaw(error.json_path, "one_of", f"exactly one of {names} must be given")]
    return [_flaw(error.json_path, str(error.validator), json_words.breach(error))]


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:80], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"is not an argument of this tool; {hint}"


def _flaw(place: str, code: str, message: str) -> errors.Flaw:
    return errors.Flaw(path=place[:_MESSAGE_CHARACTERS], code=code, message=message[:_MESSAGE_CHARACTERS])


def _default(value: plain.Json) -> Schema:
    return {} if value is None else {"default": value}
