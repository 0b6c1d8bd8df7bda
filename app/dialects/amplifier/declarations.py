"""Declarations: values of a recipe's context that describe an argument instead of being the value."""

from __future__ import annotations

from collections.abc import Iterator

from app import errors
from app.dialects.amplifier import schema
from app.domain import json_schemas, json_text, plain

_TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")
_RULES: plain.Object = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": list(_TYPES)},
        "required": {"type": "boolean"},
        "default": {},
        "description": {"type": "string"},
        "enum": {"type": "array", "minItems": 1},
    },
}


def is_declaration(value: plain.Json, version: str) -> bool:
    """Return whether a value declares an argument: it has only fields such as `type`, `required` and `default`."""
    return (
        version != schema.FIRST
        and isinstance(value, dict)
        and bool(value)
        and value.keys() <= _RULES["properties"].keys()
    )


def values(context: plain.Object, version: str) -> dict[str, plain.Json]:
    """Return the variables of a context that have their value in it."""
    return {name: value for name, value in context.items() if not is_declaration(value, version)}


def rule_of(declaration: plain.Object) -> dict[str, plain.Json]:
    """Return the JSON Schema of a declared argument."""
    taken = {name: rule for name, rule in declaration.items() if name != "required"}
    return taken if taken.get("type") != "any" else {name: rule for name, rule in taken.items() if name != "type"}


def is_required(declaration: plain.Object) -> bool:
    """Return whether a run needs a value for a declared argument."""
    return declaration.get("required") is True and "default" not in declaration


def flaws(context: plain.Json, version: str) -> Iterator[errors.Flaw]:
    """Return the flaws of a context's declarations."""
    for name, value in context.items() if isinstance(context, dict) else ():
        if is_declaration(value, version):
            place: json_text.Parts = ("context", name)
            found = json_schemas.flaws(_RULES, value, place)
            yield from found
            if not found and "default" in value:
                rule = {part: reported for part, reported in rule_of(value).items() if part in ("type", "enum")}
                yield from json_schemas.flaws(rule, value["default"], (*place, "default"))
