"""JSON words: describes JSON values and schema violations in terms of JSON, not of Python."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.domain import plain

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

TYPES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
"""Types of JSON Schema in words."""

_SHOWN_CHARACTERS = 80
_BOUNDS = {
    "minimum": "is less than the minimum of",
    "maximum": "is greater than the maximum of",
    "exclusiveMinimum": "is less than or equal to the minimum of",
    "exclusiveMaximum": "is greater than or equal to the maximum of",
    "multipleOf": "is not a multiple of",
}
_COUNTS = {
    "minLength": "has fewer than {} characters",
    "maxLength": "has more than {} characters",
    "minItems": "has fewer than {} items",
    "maxItems": "has more than {} items",
    "minProperties": "has fewer than {} fields",
    "maxProperties": "has more than {} fields",
}
_OTHERS = {
    "contains": "does not have as many items of the kind `contains` as it must",
    "items": "has more items than it may",
    "unevaluatedItems": "has unknown items",
    "unevaluatedProperties": "has unknown fields",
    "not": "matches a schema that is not allowed",
    "anyOf": "matches none of the allowed schemas",
}


def shown(value: plain.Json) -> str:
    """Return a value as messages quote it: a text in quotes, any other value as JSON; long values are cut."""
    if isinstance(value, str):
        return repr(_cut(value))
    return _cut(json.dumps(value, ensure_ascii=False))


def words(values: Iterable[plain.Json]) -> list[str]:
    """Return values for use in a list: texts without quotes, any other value as JSON."""
    return [value if isinstance(value, str) else shown(value) for value in values]


def breach(error: ValidationError) -> str:
    """Return a description of how a value violates a keyword of its schema."""
    value: Any = error.instance
    limit: Any = error.validator_value
    keyword = str(error.validator)
    if keyword in _BOUNDS:
        return f"{shown(value)} {_BOUNDS[keyword]} {shown(limit)}"
    if keyword in _COUNTS:
        return _COUNTS[keyword].format(limit)
    match keyword:
        case "const":
            return f"must be {shown(limit)}, not {shown(value)}"
        case "enum":
            return f"{shown(value)} is not one of {', '.join(map(shown, limit))}"
        case "type":
            return f"{shown(value)} is not of the type {' or '.join([limit] if isinstance(limit, str) else limit)}"
        case "required":
            return f"lacks {', '.join(name for name in limit if name not in value)}"
        case "additionalProperties":
            unknown = [name for name in value if name not in error.schema.get("properties", {})]  # type: ignore[union-attr]
            return f"has unknown fields: {_cut(', '.join(unknown))}"
        case "dependentRequired":
            lacks = [name for given, names in limit.items() if given in value for name in names if name not in value]
            return f"lacks {', '.join(dict.fromkeys(lacks))}, which its other fields need"
        case "pattern":
            return f"{shown(value)} does not have the form {limit}"
        case "uniqueItems":
            return f"{shown(value)} has non-unique elements"
        case "oneOf":
            many = "none" if error.context else "more than one"
            return f"has {many} of the schemas of which it must match exactly one"
        case "None":
            return "must not be here"
    return _OTHERS.get(keyword, f"does not fit `{keyword}`")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
