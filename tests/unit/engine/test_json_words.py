"""Messages about JSON values use the words of JSON, not of Python."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.agents import json_files
from app.domain import json_schemas, json_words, library
from app.services import arguments
from app.tools import arguments as tool_arguments

ODD: tuple[Any, ...] = (None, True, False, 0, 1.5, "", "a'b", [], [None, True], {}, {"a": None}, {"a": {"b": [False]}})
SCHEMAS: tuple[dict[str, Any], ...] = (
    *({"type": kind} for kind in ("object", "array", "string", "integer", "boolean", "null")),
    *({"const": value} for value in ODD),
    *({"enum": [value, {"never": None}]} for value in ODD),
    *({keyword: 7} for keyword in ("minimum", "exclusiveMinimum", "multipleOf", "minLength", "minItems")),
    *({keyword: -7} for keyword in ("maximum", "exclusiveMaximum")),
    *({keyword: 0} for keyword in ("maxLength", "maxItems", "maxProperties")),
    {"minProperties": 7},
    {"pattern": "^x$"},
    {"not": {}},
    {"anyOf": [{"const": None}, {"const": {"x": True}}]},
    {"oneOf": [{}, {}]},
    {"oneOf": [{"const": {"x": None}}]},
    {"contains": {"const": {"x": True}}},
    {"prefixItems": [{}], "items": False},
    {"properties": {"a": False}},
    {"required": ["x"]},
    {"dependentRequired": {"a": ["x", "y"]}},
    {"additionalProperties": False},
    {"propertyNames": {"const": None}},
    {"unevaluatedProperties": False},
    {"unevaluatedItems": False},
)
PYTHON = re.compile(r"\b(None|True|False|dict|str|bool|NoneType)\b|\{'|\['|': ")


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_messages_are_in_the_words_of_json(schema: dict[str, Any]) -> None:
    """No validator's message about an odd value contains None, True, a dict or quotes in Python's form."""
    told = []
    around = {"type": "object", "properties": {"v": schema}}
    recipe = library.Recipe(recipe_id="r", dialect="prompt", label="R", document={}, args_schema=around)
    for value in ODD:
        told += json_schemas.flaws(schema, value)
        told += json_files.flaws(schema, value)
        told += tool_arguments.flaws(around, {"v": value}) if "oneOf" not in schema else ()
        told += _refused(recipe, value)

    assert told
    assert [flaw.message for flaw in told if PYTHON.search(flaw.message)] == []


def _refused(recipe: library.Recipe, value: Any) -> list[Any]:
    holding = Draft202012Validator(recipe.args_schema)
    return list(arguments._unfit({"v": value}, recipe, holding))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "null"),
        (True, "true"),
        (1.0, "1.0"),
        ("it", "'it'"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ("x" * 81, f"'{'x' * 80}…'"),
        (["é" * 81], f'["{"é" * 78}…'),
    ],
)
def test_values_are_shown(value: Any, told: str) -> None:
    """A text is shown in quotes and other values as JSON; long ones are cut."""
    assert json_words.shown(value) == told
