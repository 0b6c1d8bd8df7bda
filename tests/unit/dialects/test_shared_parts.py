"""Tests of the dialects' shared parts: task patterns, and schemas of recipes."""

from __future__ import annotations

import pathlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects import registry
from app.domain import json_schemas, task_patterns


@pytest.mark.parametrize(
    ("pattern", "text", "length", "parts"),
    [
        ("draft scene", "Please DRAFT SCENE 21", 11, {}),
        ("straße", "in der STRASSE", 6, {}),
        ("/scene (?P<number>[0-9]+)/", "Draft Scene 21 now", 8, {"number": "21"}),
        ("/(?P<a>x)|(?P<b>y)/", "y", 1, {"b": "y"}),
        ("/", "a/b", 1, {}),
        ("a.c", "a.c", 3, {}),
    ],
)
def test_a_pattern_that_occurs(pattern, text, length, parts):
    """Phrases and expressions match in any case, and matched named groups are returned."""
    match = task_patterns.read(pattern).match(text)

    assert match is not None
    assert (match.length, dict(match.parts)) == (length, parts)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("draft scene", "draft a scene"), ("a.c", "abc"), ("/^a/", "ba"), (r"/\b/", "draft"), (r"/\bx*/", "draft")],
)
def test_a_pattern_that_does_not_occur(pattern, text):
    """A phrase is taken literally, and an expression must match at least one character."""
    assert task_patterns.read(pattern).match(text) is None


@pytest.mark.parametrize("pattern", ["", " ", "//", "/a*/", "/(/", "/(?=a)/", r"/(a)\1/", "x" * 501, "/\ud800/"])
def test_a_pattern_that_cannot_be_used(pattern):
    """Blank, empty, broken and backtracking patterns are refused with a reason."""
    with pytest.raises(ValueError, match=r".+"):
        task_patterns.read(pattern)


@pytest.mark.parametrize("pattern", ["/(a+)+b/", "/(a|aa)+b/", "/(.*a){20}b/", "/(x+x+)+y/", "/^(a?){30}a{30}$/"])
def test_catastrophic_patterns_take_linear_time(pattern):
    """Expressions that are catastrophic for other matchers are matched at once."""
    read = task_patterns.read(pattern)
    began = time.process_time()
    read.match("a" * 20_000)
    read.match("x" * 20_000)

    assert time.process_time() - began < 10


@given(st.text(), st.text())
def test_any_pattern_is_read_or_refused_and_matches_any_text(pattern, text):
    """Any pattern is read or refused, and a read one matches any text without an exception."""
    try:
        read = task_patterns.read(pattern)
    except ValueError:
        return
    read.match(text.encode("utf-8", "replace").decode())


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "pattern": "^x+$"},
        "either": {"type": ["string", "null"]},
        "name": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 3},
        "list": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["text", "either"],
    "additionalProperties": False,
}


SOUND = {"text": "x", "either": None}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (SOUND, []),
        ({}, [("$.text", "missing_field", "is missing"), ("$.either", "missing_field", "is missing")]),
        ([], [("$", "wrong_type", "must be an object, not a list")]),
        ({"text": 3, "either": True}, [
            ("$.text", "wrong_type", "must be a text, not a number"),
            ("$.either", "wrong_type", "must be a text or null, not true or false"),
        ]),
        ({"text": "y", "either": None}, [("$.text", "invalid_value", "'y' does not have the form ^x+$")]),
        (SOUND | {"name": "gren"}, [("$.name", "invalid_value", "'gren' is not allowed; did you mean green?")]),
        (SOUND | {"texd": 1}, [("$.texd", "unknown_field", "is not a known field; did you mean text?")]),
        (SOUND | {"count": 1}, [("$.count", "invalid_value", "1 is less than the minimum of 3")]),
        (SOUND | {"list": ["a", 1]}, [("$.list[1]", "wrong_type", "must be a text, not a number")]),
    ],
)  # fmt: skip
def test_flaws_of_a_value(value, told):
    """Each violation is reported in words, with its path."""
    found = json_schemas.flaws(SCHEMA, value)

    assert [(flaw.path, flaw.code, flaw.message) for flaw in found] == told


def test_a_schema_is_never_fetched():
    """A reference to an external schema is not followed."""
    with pytest.raises(Exception, match="example"):
        json_schemas.flaws({"$ref": "http://example.invalid/schema"}, {})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({}, []),
        ({"properties": {"$ref": {"type": "string"}, "patternProperties": {}}}, []),
        ({"properties": {"a": {"default": {"$ref": "x"}}}}, []),
        (3, [("$.args_schema", "wrong_type")]),
        ({"type": "array"}, [("$.args_schema.type", "invalid_value")]),
        ({"required": "a"}, [("$.args_schema.required", "wrong_type")]),
        ({"allOf": [{"$ref": "#"}]}, [("$.args_schema.allOf[0].$ref", "unsupported_keyword")]),
        ({"properties": {"a": {}}, "required": ["a", "b"]}, [("$.args_schema.required", "undeclared_arg")]),
        ({"required": ["b"], "additionalProperties": {"type": "string"}}, []),
        ({"patternProperties": {"(a+)+": {}}}, [("$.args_schema.patternProperties", "unsupported_keyword")]),
        ({"properties": {"a": {}, "b": True, "c": {"items": True}}}, [("$.args_schema.properties.b", "wrong_type")]),
    ],
)
def test_flaws_of_a_schema_of_arguments(schema, told):
    """A recipe's schema must be valid, describe an object with an object for each argument, and be self-contained."""
    found = json_schemas.args_schema_flaws(schema, ("args_schema",))

    assert [(flaw.path, flaw.code) for flaw in found] == told


def test_catastrophic_patterns_of_a_schema_take_linear_time():
    """`pattern` is matched by RE2 too."""
    began = time.process_time()
    found = json_schemas.flaws({"type": "string", "pattern": "^(a+)+$"}, "a" * 20_000 + "b")

    assert len(found) == 1
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("name", "source", "dialect"),
    [
        ("a.json", '{"id": "a", "label": "", "description": 1, "steps": {"one": {"prompt": 1}}}', "agent_recipes"),
        ("a.json", '{"recipe_id": "a", "label": "", "phase_a": [{"tool": 1, "x": 1, "y": 1, "z": 1}]}', "control_room"),
        ("a.yaml", "{name: a, description: b, version: 1, steps: [{command: c, on: 1, for_each: 2}]}", "amplifier"),
        ("a.yaml", "{version: 1.1, strict_flow: 1, steps: [{id: a, agent: b, prompt: c, x: 1}]}", "orchestrate"),
    ],
)
def test_a_faulty_recipes_language_is_found_by_its_fields(name, source, dialect):
    """The language of a faulty recipe is recognised by its top-level fields, however many flaws its steps have."""
    assert registry.likely(pathlib.PurePath("elsewhere", name), source) == dialect
