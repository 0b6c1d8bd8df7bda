"""Tests of the dialect beside a project's library: what fits, how it is drawn, and what is published."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.dialects import registry
from app.domain import library
from tests.unit.dialects import bench, reference

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference" / "control_room.md"

TOOL, READ = bench.RECIPE["phase_a"]
AGENT, WRITE = bench.RECIPE["phase_b"]

STRICT = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "mode": {"enum": ["fast", "deep"]},
        "paths": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "count": {"type": "integer"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def _check(document, **changes):
    found = bench.DIALECT.check(bench.parsed(document), dataclasses.replace(bench.stock(), **changes))
    return {(flaw.path, flaw.code) for flaw in found}


def _with_strict_reader(args, **document):
    tools = dict(bench.stock().tools) | {"reader": library.ToolSpec(name="reader", description="", args_schema=STRICT)}
    return _check(bench.recipe(phase_a=[TOOL, READ | {"args": args}], **document), tools=tools)


def test_a_recipe_that_fits():
    """A recipe whose tools, agents and prompts exist has no flaw."""
    assert _check(bench.RECIPE) == set()


def test_unknown_tools_archetypes_and_types_are_reported():
    """Unknown tools, archetypes and prompt types are all reported."""
    assert _check(bench.RECIPE, tools={}, agents=(), prompts={}) == {
        ("$.phase_a[0].tool", "unknown_tool"),
        ("$.phase_a[1].tool", "unknown_tool"),
        ("$.phase_b[0].agent_archetype", "unknown_archetype"),
        ("$.phase_b[0].prompt_type", "unknown_prompt_type"),
        ("$.phase_b[1].agent_archetype", "unknown_archetype"),
        ("$.phase_b[1].prompt_type", "unknown_prompt_type"),
    }


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"path": "a.md", "mode": "fast"}, set()),
        ({"path": {"$ref": "found.a"}, "paths": [{"$ref": "found.b"}], "count": {"$ref": "found.c"}}, set()),
        ({"path": "a", "paths": {"$ref": "found.b"}}, set()),
        ({}, {("$.phase_a[1].args.path", "missing_field")}),
        ({"paths": {"$ref": "found.b"}}, {("$.phase_a[1].args.path", "missing_field")}),
        ({"path": {"$ref": "found.a"}, "mod": "fast"}, {("$.phase_a[1].args.mod", "unknown_field")}),
        ({"path": {"$ref": "found.a"}, "mode": "quick"}, {("$.phase_a[1].args.mode", "invalid_value")}),
        ({"path": 3}, {("$.phase_a[1].args.path", "wrong_type")}),
        ({"path": "a", "paths": []}, {("$.phase_a[1].args.paths", "invalid_value")}),
        ({"path": "a", "paths": [{"$ref": "found.b"}, 3]}, {("$.phase_a[1].args.paths[1]", "wrong_type")}),
    ],
)
def test_literal_arguments_are_held_against_the_tool(args, told):
    """Literal arguments are checked before a run; references are not."""
    assert _with_strict_reader(args) == told


def test_an_optional_argument_cannot_fill_a_required_one():
    """An omitted optional argument would make the tool fail."""
    args = {"path": {"$ref": "task.args.where"}}
    optional = {"properties": {"where": {"type": "string"}}}
    given = {"properties": {"where": {"type": "string", "default": "a.md"}}}

    assert _with_strict_reader(args, args_schema=optional) == {("$.phase_a[1].args.path", "optional_arg")}
    assert _with_strict_reader(args, args_schema=given) == set()
    assert _with_strict_reader(args) == set()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ({"type": "array"}, {("$.phase_a[1].args.path", "wrong_type")}),
        ({"type": ["array", "string"]}, set()),
        ({}, set()),
    ],
)
def test_an_argument_must_have_the_type_that_the_tool_takes(kind, told):
    """An argument of exactly one other type would make the tool fail."""
    schema = {"properties": {"where": kind}, "required": ["where"]}

    assert _with_strict_reader({"path": {"$ref": "task.args.where"}}, args_schema=schema) == told


def test_a_template_that_does_not_fit_its_step():
    """The flaw is reported at the step that uses the template, and names the variant."""
    prompts = bench.stock({"make_plan": {"t3": "{{found}} {{plan}}"}}).prompts
    found = bench.DIALECT.check(bench.parsed(bench.RECIPE), dataclasses.replace(bench.stock(), prompts=prompts))

    assert [(flaw.path, flaw.code) for flaw in found] == [("$.phase_b[0].prompt_type", "unknown_slot")]
    assert "the t3 template of make_plan names plan" in found[0].message


def test_the_graph_has_steps_in_order_and_slots_between_them():
    """Nodes are the steps and what follows them; edges are their order and the flow of slots."""
    document = bench.recipe(
        outputs=[{"slot": "prose", "path": "{{found.where}}/x.md"}],
        findings={"$ref": "text.findings"},
        dod=[{"check": "slot_not_null", "slot": "plan"}, {"check": "file_exists", "path": {"$ref": "found.x"}}],
    )
    graph = bench.DIALECT.graph(bench.parsed(document).document, {})
    ids = [node.id for node in graph.nodes]
    flows = {(edge.source, edge.target, edge.label) for edge in graph.edges if edge.kind == "data"}

    assert ids == ["find", "read", "brief", "draft", "commit.prose", "findings", "dod[0]", "dod[1]"]
    assert [node.kind for node in graph.nodes] == ["tool"] * 2 + ["agent"] * 2 + ["step"] * 2 + ["check"] * 2
    assert [node.phase for node in graph.nodes] == ["a"] * 2 + ["b"] * 2 + ["dod"] * 4
    assert [edge.target for edge in graph.edges if edge.kind == "next"] == ids[1:]
    assert flows == {
        ("find", "read", "found"),
        ("find", "brief", "found"),
        ("read", "brief", "text"),
        ("brief", "draft", "plan"),
        ("draft", "commit.prose", "prose"),
        ("find", "commit.prose", "found"),
        ("read", "findings", "text"),
        ("brief", "dod[0]", "plan"),
        ("find", "dod[1]", "found"),
    }


@pytest.mark.parametrize("name", sorted(registry.DIALECTS))
def test_the_published_schema_is_the_one_in_use(name):
    """recipes/schema/ contains the newest output of `scripts/publish_schemas.py`, which is a valid schema."""
    folder, made = ROOT / "recipes" / "schema", registry.DIALECTS[name].json_schema()
    newest = folder / f"{name}-{made['$id'].rpartition(':')[2]}.json"
    path = newest if newest.exists() else folder / f"{name}.json"
    published = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)

    assert published == made
    assert registry.DIALECTS[name].name == name


def test_every_object_of_the_schema_is_strict():
    """No object of a recipe accepts unknown fields, except for arguments."""
    schema = bench.DIALECT.json_schema()
    parts = [schema, *schema["$defs"].values()]
    checks = [rule["then"] for rule in schema["$defs"]["check"]["allOf"]]
    loose = [part for part in (*parts, *checks) if part.get("additionalProperties") is not False]

    assert loose == [schema["$defs"]["check"]]


def test_the_reference_documents_every_field():
    """The field tables of docs/reference/control_room.md have the fields of the schema, with type and necessity."""
    schema = bench.DIALECT.json_schema()
    tables = reference.tables(REFERENCE.read_text(encoding="utf-8"))
    parts = {"Recipe": schema} | {
        title: schema["$defs"][name]
        for title, name in {"Tool step": "tool_step", "Agent step": "agent_step", "Output": "output"}.items()
    }
    checks: dict[str, Any] = {}
    for rule in schema["$defs"]["check"]["allOf"]:
        checks |= {name: {**part, "required": False} for name, part in rule["then"]["properties"].items()}

    for title, part in parts.items():
        expected = {
            name: (reference.kind(rule), "yes" if name in part["required"] else "no")
            for name, rule in part["properties"].items()
        }
        assert {row[0]: (row[1], row[2]) for row in tables[title]} == expected, title
    assert {row[0] for row in tables["Check"]} == set(checks)


def test_the_reference_names_every_code():
    """docs/reference/control_room.md contains each code that the dialect gives to a flaw or a failure."""
    shared = [path for path in (ROOT / "app/dialects").glob("*.py") if path.name != "yaml_text.py"]
    sources = [*shared, *(ROOT / "app/dialects/control_room").glob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    text += (ROOT / "app/domain/json_text.py").read_text(encoding="utf-8")
    # A limit of request bodies only.
    codes = {"too_many_values"} ^ set(
        re.findall(r'(?:flaw\([^"\n]*?|_code = |code=|yield |return )"([a-z]+_[a-z_]+|syntax)"', text)
    )
    told = set(re.findall(r"`([a-z_]+)`", REFERENCE.read_text(encoding="utf-8")))

    assert len(codes) > 20
    assert codes - told == set()
