"""Tests of the parser: every rule of the document, the fields of later versions, and the places of faults."""

from __future__ import annotations

import json
import re
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from app.dialects.amplifier import parse, rules, schema, walk
from tests.examples import examples
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import flaws, later, own_flaws, parsed, recipe, staged, step

SPEC_STEP = step(
    "full",
    mode="ANALYZE",
    condition="{{x}} == 'y'",
    foreach="{{list}}",
    collect="all",
    max_iterations=5,
    output="last",
    agent_config={"role": "r"},
    timeout=30,
    retry={"max_attempts": 2, "backoff": "linear", "initial_delay": 1, "max_delay": 9},
    on_error="continue",
    depends_on=["a"],
    **{"as": "one"},
)


def test_every_field_of_the_document():
    """A recipe that uses each field of the first version is valid."""
    made = parsed(
        recipe(
            step(),
            SPEC_STEP,
            author="Jane Doe <jane@example.com>",
            created="2025-11-18T14:30:00Z",
            updated="2025-11-18T14:30:00-08:00",
            tags=["python"],
            context={"x": "y", "list": [1], "must": ""},
        )
    )

    assert (made.recipe_id, made.label, made.total_steps, made.leads_to) == ("small", "small", 2, ())
    assert made.document["steps"][1]["as"] == "one"


def test_the_parsed_document_parses_again():
    """A run's frozen recipe can be read again, with the same result."""
    made = parsed(later(step(), {"id": "b", "type": "bash", "command": "ls"}, context={"x": 1}))

    assert parsed(json.dumps(made.document)) == made


# -- recipe-level validation


@pytest.mark.parametrize("name", ["name", "description", "version", "steps"])
def test_a_recipe_needs_name_description_version_and_steps(name):
    """A recipe has a name, a description, a version and steps."""
    document = recipe(step())
    del document[name]

    assert (f"$.{name}", "missing_field") in flaws(document)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "with space"),
        ("name", "a.b"),
        ("name", "x" * 101),
        ("description", ""),
        ("description", "  "),
        ("description", "x" * 501),
        ("version", "1.0"),
        ("version", "v1.0.0"),
        ("version", "01.0.0"),
        ("version", "1.0.0-"),
        ("created", "yesterday"),
        ("updated", "2025-13-01T00:00:00Z"),
        ("author", ""),
        ("tags", [""]),
        ("steps", []),
        ("context", {"a b": 1}),
    ],
)
def test_forms_of_a_recipes_fields(field, value):
    """Names, lengths, versions and times must have their form."""
    assert [flaw.code for flaw in own_flaws(recipe(step()) | {field: value})] == ["invalid_value"]


@pytest.mark.parametrize("version", ["1.0.0", "2.3.1", "0.1.0-beta", "0.5.0-alpha.1", "1.0.0-rc.1+build.5"])
def test_semantic_versions(version):
    """Versions may be pre-releases and name a build."""
    assert own_flaws(recipe(step(), version=version)) == ()


@pytest.mark.parametrize("moment", ["2025-11-18T14:30:00Z", "2025-11-18T14:30:00-08:00", "2025-11-18"])
def test_moments(moment):
    """Times are ISO 8601."""
    assert own_flaws(recipe(step(), created=moment, updated=moment)) == ()


def test_ids_are_unique():
    """No two steps share an id, wherever they are."""
    group = {"id": "g", "substeps": [step("a")]}

    assert flaws(recipe(step("a"), step("a"))) == {("$.steps[1].id", "duplicate_id")}
    assert flaws(later(step("a"), group)) == {("$.steps[1].substeps[0].id", "duplicate_id")}
    both = staged({"name": "one", "steps": [step("a")]}, {"name": "two", "steps": [step("a")]})
    assert flaws(both) == {("$.stages[1].steps[0].id", "duplicate_id")}


def test_no_approval_has_the_key_of_a_step():
    """The stage `result` and a step `approval` exclude one another: both would write the line `approval:result`."""
    result = {"name": "result", "steps": [step("approval")], "approval": {"required": True, "prompt": "Well?"}}

    assert flaws(staged(result)) == {("$.stages[0].name", "duplicate_name")}
    assert flaws(staged(result | {"steps": [step("approved")]})) == set()


# -- step-level validation


@pytest.mark.parametrize("name", ["id", "agent", "prompt"])
def test_a_step_needs_an_id_an_agent_and_a_prompt(name):
    """A step has an id, an agent and a prompt."""
    made = step()
    del made[name]

    assert (f"$.steps[0].{name}", "missing_field") in flaws(recipe(made))
    assert (f"$.steps[0].{name}", "missing_field") in flaws(later(made))


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("id", "a b", "invalid_value"),
        ("id", "a.b", "invalid_value"),
        ("id", "x" * 51, "invalid_value"),
        ("agent", "", "invalid_value"),
        ("prompt", "", "invalid_value"),
        ("prompt", " \n", "invalid_value"),
        ("condition", "'x' == 'x'", "invalid_condition"),
        ("condition", "{{x}} = 'x'", "invalid_condition"),
        ("timeout", 0, "invalid_value"),
        ("timeout", -1, "invalid_value"),
        ("timeout", 1.5, "wrong_type"),
        ("timeout", "60", "wrong_type"),
        ("output", "a-b", "invalid_value"),
        ("output", "recipe", "reserved_name"),
        ("output", "step", "reserved_name"),
        ("output", "session", "reserved_name"),
        ("on_error", "ignore", "invalid_value"),
        ("mode", "", "invalid_value"),
        ("agent_config", [], "wrong_type"),
        ("depends_on", ["nobody"], "unknown_step"),
        ("depends_on", ["a"], "circular_dependency"),
        ("depends_on", ["b"], "later_dependency"),
        ("retry", {"max_attempts": 0}, "invalid_value"),
        ("retry", {"max_attempts": -3}, "invalid_value"),
        ("retry", {"backoff": "random"}, "invalid_value"),
        ("retry", {"initial_delay": -1}, "invalid_value"),
        ("retry", {"delay": 1}, "unknown_field"),
    ],
)
def test_forms_of_a_steps_fields(field, value, code):
    """Every constraint of a step is checked, and each fault reported once."""
    document = recipe(step() | {field: value}, step("b"), context={"x": 1})

    assert [flaw.code for flaw in own_flaws(document)] == [code]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("as", "a-b", "invalid_value"),
        ("as", "recipe", "reserved_name"),
        ("collect", "session", "reserved_name"),
        ("collect", "a.b", "invalid_value"),
        ("max_iterations", 0, "invalid_value"),
        ("max_iterations", "many", "wrong_type"),
        ("foreach", "files", "no_variable"),
        ("foreach", "{{files}} {{files}}", "no_variable"),
        ("foreach", "{{", "invalid_template"),
        ("foreach", ["a"], "wrong_type"),
        ("foreach", "{{nothing}}", "undefined_variable"),
    ],
)
def test_forms_of_loops(field, value, code):
    """A loop goes over one variable, and its names are names of variables."""
    looped = step(foreach="{{files}}") | {field: value}

    assert [flaw.code for flaw in own_flaws(recipe(looped, context={"files": []}))] == [code]


@pytest.mark.parametrize("field", ["as", "collect", "max_iterations"])
def test_fields_of_loops_need_one(field):
    """A field of loops is misplaced in a step without a loop."""
    values: dict[str, Any] = {"as": "x", "collect": "x", "max_iterations": 3}

    assert flaws(recipe(step(**{field: values[field]}))) == {(f"$.steps[0].{field}", "misplaced_field")}


def test_dependencies_on_earlier_steps():
    """A step can depend on every earlier step, also in other stages and groups."""
    group = {"id": "g", "substeps": [step("inner"), step("next", depends_on=["a", "inner"])]}

    assert own_flaws(recipe(step("a"), step("b", depends_on=["a"]))) == ()
    assert own_flaws(later(step("a"), group, step("c", depends_on=["a", "g", "inner"]))) == ()
    assert flaws(later({**group, "parallel": True}, step("a"))) == {
        ("$.steps[0].substeps[1].depends_on[0]", "later_dependency"),
        ("$.steps[0].substeps[1].depends_on[1]", "later_dependency"),
    }


# -- variable validation


@pytest.mark.parametrize("prompt", ["{{", "{{a b}}", "See {{}}."])
def test_templates_have_a_syntax(prompt):
    """Braces without a name are a fault."""
    assert flaws(recipe(step(prompt=prompt))) == {("$.steps[0].prompt", "invalid_template")}


@pytest.mark.parametrize("name", ["recipe", "session", "step"])
def test_reserved_names_in_the_context(name):
    """The context cannot set reserved names."""
    assert flaws(recipe(step(), context={name: 1})) == {(f"$.context.{name}", "reserved_name")}


def test_approval_is_reserved_later():
    """The name `approval` is free in the first version, and reserved in versions with approvals."""
    assert own_flaws(recipe(step(output="approval"))) == ()
    assert flaws(later(step(output="approval"))) == {("$.steps[0].output", "reserved_name")}


@pytest.mark.parametrize(
    "name",
    [
        "recipe.name",
        "recipe.version",
        "recipe.description",
        "session.id",
        "session.started",
        "session.project",
        "step.id",
        "step.index",
    ],
)
def test_reserved_variables_are_there(name):
    """Every reserved variable of the document can be named in every step."""
    assert own_flaws(recipe(step(prompt=f"{{{{{name}}}}}"))) == ()


@pytest.mark.parametrize("name", ["recipe", "recipe.nam", "session.user", "step.index.x", "approval.message"])
def test_reserved_names_have_certain_parts(name):
    """An unknown part of a reserved name is a fault."""
    assert flaws(recipe(step(prompt=f"{{{{{name}}}}}"))) == {("$.steps[0].prompt", "undefined_variable")}


def test_variables_are_set_before_they_are_named():
    """A prompt can name the context and outputs of earlier steps; for any other name the nearest is suggested."""
    sound = recipe(
        step("a", prompt="{{given}}", output="made"), step("b", prompt="{{made.deep.er}}"), context={"given": "x"}
    )
    early = recipe(step("a", prompt="{{made}}"), step("b", output="made"))
    (near,) = own_flaws(recipe(step("a", output="analysis"), step("b", prompt="{{analysys}}")))

    assert own_flaws(sound) == ()
    assert "set only later" in own_flaws(early)[0].message
    assert (near.path, near.code) == ("$.steps[1].prompt", "undefined_variable")
    assert near.message == "{{analysys}} is set nowhere before; did you mean analysis?"


def test_loop_variables_end_with_the_loop():
    """Only the loop's prompt can name the item: not its list, not its condition, no later step."""
    context = {"files": ["a"]}
    looped = step("a", foreach="{{files}}", prompt="{{file}}", collect="all", **{"as": "file"})

    assert own_flaws(recipe(looped, step("b", prompt="{{all}}"), context=context)) == ()
    assert flaws(recipe(looped, step("b", prompt="{{file}}"), context=context)) == {
        ("$.steps[1].prompt", "undefined_variable")
    }
    assert flaws(recipe({**looped, "condition": "{{file}} == 'a'"}, context=context)) == {
        ("$.steps[0].condition", "undefined_variable")
    }


def test_a_condition_names_only_variables_set_before():
    """Variables in conditions must be set before."""
    assert flaws(recipe(step(condition="{{nothing}} == 'x'"))) == {("$.steps[0].condition", "undefined_variable")}


# -- arguments


def test_values_of_the_context_are_defaults():
    """Values of the context are defaults, empty ones must be given, and arguments may also set steps' variables."""
    made = parsed(recipe(step(output="found"), context={"file": "", "none": None, "limit": 3, "flag": False, "l": []}))

    assert made.args_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["file", "none"],
        "properties": {"limit": {"default": 3}, "flag": {"default": False}, "l": {"default": []}}
        | {"file": {}, "none": {}, "found": {"description": "Set by a step of the recipe.", "readOnly": True}},
    }


def test_declared_arguments():
    """A declared schema gives arguments their types, and the context their defaults."""
    own = {"properties": {"file": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}
    made = parsed(later(step(prompt="{{file}} {{n}}"), args_schema=own, context={"n": 3, "must": ""}))

    assert made.args_schema["required"] == ["must"]
    assert made.args_schema["properties"] == {
        "file": {"type": "string"},
        "n": {"type": "integer", "default": 3},
        "must": {},
    }
    assert flaws(later(step(), args_schema={"type": "array"})) == {("$.args_schema.type", "invalid_value")}
    assert flaws(later(step(), args_schema={"properties": {"step": {}}})) == {
        ("$.args_schema.properties.step", "reserved_name")
    }


def test_an_empty_value_is_required_also_where_it_is_described():
    """A description of an argument does not make its empty value a value; only a default of its own does."""
    described = {"file": {"type": "string"}, "note": {"type": "string", "default": ""}}
    made = parsed(later(step(), args_schema={"properties": described}, context={"file": "", "note": ""}))

    assert made.args_schema["required"] == ["file"]


# -- versions


LATER_STEPS = {
    "type": "bash",
    "command": "ls",
    "cwd": ".",
    "env": {},
    "secrets": ["A_TOKEN"],
    "output_exit_code": "x",
    "idle_seconds": 60,
    "recipe": "r",
    "context": {},
    "substeps": [step("b")],
    "steps": [step("b")],
    "max_while_iterations": 3,
    "index_as": "n",
    "parallel": True,
    "continue_on_error": True,
    "break_if": "{{x}} == 'y'",
    "nested_foreach": {"foreach": "{{x}}"},
    "while_condition": "{{x}} == 'y'",
    "update_context": {"x": 1},
    "break_when": "{{x}} == 'y'",
    "parse_json": True,
    "provider": "p",
    "model": "m",
    "provider_preferences": [{"provider": "p"}],
    "max_tokens": 5,
    "reply_schema": {},
}


@pytest.mark.parametrize("field", LATER_STEPS)
def test_later_fields_of_steps_need_their_version(field):
    """Each deferred, future or later field is refused in the first version, with a hint at its version."""
    made = recipe(step() | {field: LATER_STEPS[field]}, context={"x": "y"})
    found = [flaw for flaw in own_flaws(made) if flaw.path == f"$.steps[0].{field}" and flaw.code != "misplaced_field"]

    assert [flaw.code for flaw in found] == ["needs_schema"]
    assert found[0].message.startswith('needs schema: "1.7"; write schema: "1.7" at the top of the recipe')


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("args_schema", {}),
        ("recursion", {}),
        ("rate_limiting", {}),
        ("stages", [{"name": "s", "steps": [step("b")]}]),
        ("final_output", "x"),
        ("output", "x"),
    ],
)
def test_later_fields_of_recipes_need_their_version(field, value):
    """Each later field of the recipe itself is refused in the first version."""
    found = [
        flaw.code for flaw in own_flaws(recipe(step(), context={"x": 1}, **{field: value})) if flaw.path == f"$.{field}"
    ]

    assert found == ["needs_schema"]


def test_every_later_field_is_tried_here():
    """The two lists above contain every later field."""
    newer = {field.name for field in schema.KINDS["step"] if field.since != "1.1"}

    assert newer == set(LATER_STEPS)


@pytest.mark.parametrize(
    ("named", "code"),
    [("2.0", "unknown_version"), (1.7, "unknown_version"), (1.1, "unknown_version"), (True, "unknown_version")],
)
def test_versions_are_named_in_quotes(named, code):
    """A version is a text, and a known one."""
    assert ("$.schema", code) in flaws(recipe(step(), schema=named))


def test_unknown_fields_are_refused_by_name():
    """A field that no version has is reported with the nearest one."""
    (flaw,) = own_flaws(recipe(step(promt="x")))
    (other,) = own_flaws(recipe(step(), descripton="x"))

    assert (flaw.path, flaw.code, flaw.message) == (
        "$.steps[0].promt",
        "unknown_field",
        "is not a known field; did you mean prompt?",
    )
    assert other.message == "is not a known field; did you mean description?"


def test_faults_have_lines():
    """Every fault has its path and its line, in the order of the lines."""
    source = (
        'name: "x y"\ndescription: d\nversion: "1.0.0"\nsteps:\n  - id: a\n    agent: b\n    prompt: "{{c}}"\n'
        "    timeout: 0\n  - id: a\n    agent: b\n    promt: p\n"
    )

    assert [(flaw.line, flaw.path, flaw.code) for flaw in own_flaws(source)] == [
        (1, "$.name", "invalid_value"),
        (7, "$.steps[0].prompt", "undefined_variable"),
        (8, "$.steps[0].timeout", "invalid_value"),
        (9, "$.steps[1].prompt", "missing_field"),
        (9, "$.steps[1].id", "duplicate_id"),
        (11, "$.steps[1].promt", "unknown_field"),
    ]


@pytest.mark.parametrize(
    "source", ["", "- a\n- b\n", "text", "a: [", "{}", "steps: 5", "steps: [5, {}]", "stages: {a: b}"]
)
def test_a_text_that_is_not_a_recipe_is_refused(source):
    """Any other text is refused with a flaw that has a line."""
    found = own_flaws(source)

    assert found
    assert all(flaw.line for flaw in found)


# -- the later language


def test_types_of_steps():
    """A step asks an agent, executes a command, runs a recipe, or contains other steps."""
    made = parsed(
        later(
            step("a", type="agent", agent="foundation:zen-architect", prompt="p"),
            {"id": "b", "type": "bash", "command": 'echo "{{x}}"', "cwd": "{{x}}", "env": {"A": "{{x}}"}},
            {"id": "c", "type": "recipe", "recipe": "other", "context": {"y": "{{x}}"}},
            {"id": "d", "substeps": [step("e")], "parallel": 2},
            context={"x": "1"},
        )
    )

    assert (made.leads_to, made.total_steps) == (("other",), 4)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"id": "a", "type": "bash"}, {("command", "missing_field")}),
        ({"id": "a", "type": "recipe"}, {("recipe", "missing_field")}),
        ({"id": "a", "type": "bash", "command": "ls", "prompt": "p"}, {("prompt", "misplaced_field")}),
        ({"id": "a", "type": "recipe", "recipe": "r", "retry": {}}, {("retry", "misplaced_field")}),
        (step(command="ls"), {("command", "misplaced_field")}),
        (step(substeps=[step("b")], prompt="p"), {("prompt", "misplaced_field")}),
        ({"id": "a", "type": "agent", "substeps": [step("b")]}, {("type", "exclusive_fields")}),
        ({"id": "a", "type": "python", "command": "ls"}, {("type", "invalid_value")}),
        ({"id": "a", "type": []}, {("type", "wrong_type"), ("type", "invalid_value")}),
        ({"id": "a", "type": "bash", "command": "echo '{{x}}'"}, set()),
        ({"id": "a", "type": "bash", "command": "echo $(( {{x}} + 1 ))"}, {("command", "evaluated_variable")}),
        (
            {"id": "a", "type": "bash", "command": "if (( 2 < {{x}} )); then ls; fi"},
            {("command", "evaluated_variable")},
        ),
        ({"id": "a", "type": "bash", "command": "[[ {{x}} -gt 3 ]] && ls"}, {("command", "evaluated_variable")}),
        ({"id": "a", "type": "bash", "command": 'eval "{{x}}"'}, {("command", "evaluated_variable")}),
        ({"id": "a", "type": "bash", "command": '[ "{{x}}" -gt 3 ] && [[ "{{x}}" == b ]]; (cd "{{x}}")'}, set()),
        (step(foreach="{{l}}", while_condition="{{x}} == 'a'"), {("", "exclusive_fields")}),
        (step(parallel=True), {("parallel", "misplaced_field")}),
        (step(while_condition="{{x}} == 'a'", parallel=True), {("parallel", "misplaced_field")}),
        (step(foreach="{{l}}", parallel=True, break_if="{{item}} == 'a'"), {("break_if", "exclusive_fields")}),
        (step(foreach="{{l}}", parallel=0), {("parallel", "invalid_value")}),
        (step(foreach="{{l}}", index_as="item"), {("index_as", "exclusive_fields")}),
        (step(break_if="{{x}} == 'a'"), {("break_if", "misplaced_field")}),
        (step(break_when="{{x}} == 'a'"), {("break_when", "misplaced_field")}),
        (step(update_context={"x": "b"}), {("update_context", "misplaced_field")}),
        (step(foreach="{{l}}", break_when="{{x}} == 'a'"), set()),
        (step(foreach="{{l}}", break_when="{{x}} == 'a'", break_if="{{x}} == 'a'"), {("", "exclusive_fields")}),
        (step(foreach="{{l}}", max_while_iterations=3), {("max_while_iterations", "misplaced_field")}),
        (step(substeps=[step("b")], steps=[step("c")]), {("", "exclusive_fields")}),
        ({"id": "a", "type": "recipe", "recipe": "r", "timeout": 5}, set()),
        (step(nested_foreach={"foreach": "{{l}}"}), {("nested_foreach", "misplaced_field")}),
        (step(continue_on_error=True), {("continue_on_error", "misplaced_field")}),
        (step(provider="p", provider_preferences=[{"provider": "q"}]), {("", "exclusive_fields")}),
        (step(reply_schema={"type": "array"}), {("reply_schema.type", "invalid_value")}),
        (step(reply_schema={}, parse_json=False), {("", "exclusive_fields")}),
        (step(model="claude-*"), set()),
        (step(model="two words"), {("model", "invalid_value")}),
        (
            step(while_condition="{{x}} == 'a'", update_context={"recipe": 1}),
            {("update_context.recipe", "reserved_name")},
        ),
        (step(foreach="{{l}}", break_if="{{nothing}} == 'a'"), {("break_if", "undefined_variable")}),
        (
            step(foreach="{{l}}", nested_foreach={"foreach": "{{nothing}}"}),
            {("nested_foreach.foreach", "undefined_variable")},
        ),
    ],
)
def test_incompatible_fields_are_faults_at_their_places(made, expected):
    """Each field that has no meaning beside another one is a fault, at its place."""
    found = flaws(later(made, context={"x": "a", "l": []}))

    assert found == {(f"$.steps[0].{name}".rstrip("."), code) for name, code in expected}


def test_inner_loops_see_the_items_of_outer_ones():
    """Inner loops see the items of outer ones; a condition after an iteration sees its result."""
    nested = {"foreach": "{{row.cells}}", "as": "cell", "index_as": "n"}
    made = later(
        step("a", foreach="{{rows}}", nested_foreach=nested, prompt="{{row}} {{cell}} {{n}}", **{"as": "row"}),
        step("b", foreach="{{rows}}", output="found", break_if="{{found.done}} and {{item}} == 'x'"),
        step(
            "c",
            while_condition="{{text}} != 'good'",
            prompt="{{text}} {{i}}",
            output="better",
            index_as="i",
            update_context={"text": "{{better}}"},
            break_when="{{better}} == 'best'",
        ),
        step("d", prompt="{{better}} {{text}} {{found}}"),
        context={"rows": [], "text": "bad"},
    )

    assert own_flaws(made) == ()


def test_parallel_steps_do_not_see_one_another():
    """Sub-steps in sequence see earlier variables, and parallel ones do not; later steps see all of them."""
    inner = [step("a", output="one"), step("b", prompt="{{one}}", output="two")]
    after = step("c", prompt="{{one}} {{two}}")

    assert own_flaws(later({"id": "g", "substeps": inner}, after)) == ()
    assert flaws(later({"id": "g", "substeps": inner, "parallel": True}, after)) == {
        ("$.steps[0].substeps[1].prompt", "undefined_variable")
    }


def test_stages_and_approvals():
    """Stages contain steps and may ask before or after them; later steps can name the answer."""
    made = staged(
        {
            "name": "Phase 1: look",
            "steps": [step("a", output="found")],
            "approval": {"required": True, "prompt": "Go on with {{found}}?", "timeout": 60, "default": "approve"},
        },
        {
            "name": "act",
            "steps": [step("b", prompt="{{approval.message}} {{answer.message}}")],
            "approval": {"required": True, "prompt": "Sure?", "when": "before", "output": "answer"},
        },
    )

    assert own_flaws(made) == ()
    assert parsed(made).total_steps == 2


@pytest.mark.parametrize(
    ("approval", "path", "code"),
    [
        ({"required": True}, "prompt", "missing_field"),
        ({"required": True, "prompt": "{{later}}", "when": "before"}, "prompt", "undefined_variable"),
        ({"required": True, "prompt": "{{step.id}}"}, "prompt", "undefined_variable"),
        ({"required": True, "prompt": "{{"}, "prompt", "invalid_template"),
        ({"prompt": "Go on?"}, "required", "missing_field"),
        ({"required": False, "default": "maybe"}, "default", "invalid_value"),
        ({"required": False, "timeout": -1}, "timeout", "invalid_value"),
        ({"required": False, "when": "between"}, "when", "invalid_value"),
        ({"required": False, "output": "session"}, "output", "reserved_name"),
        ({"required": False, "message": "x"}, "message", "unknown_field"),
    ],
)
def test_forms_of_approvals(approval, path, code):
    """A required approval has a prompt; decisions, times and places must have their form."""
    made = staged({"name": "s", "steps": [step(output="later")], "approval": approval})

    assert flaws(made) == {(f"$.stages[0].approval.{path}", code)}


def test_steps_or_stages():
    """A recipe has steps or stages, stages have unique names, and its result is a variable that is set."""
    stage = {"name": "s", "steps": [step("b")]}

    assert flaws(later(step(), stages=[stage])) == {("$", "exclusive_fields")}
    assert flaws(later(steps=None)) == {("$", "missing_field")}
    assert flaws(staged(stage, {"name": "s", "steps": [step("c")]})) == {("$.stages[1].name", "duplicate_name")}
    assert own_flaws(later(step(output="x"), final_output="x")) == ()
    assert flaws(later(step(output="x"), final_output="y")) == {("$.final_output", "undefined_variable")}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("recursion", {"max_depth": 0}),
        ("recursion", {"max_depth": 21}),
        ("recursion", {"max_total_steps": 0}),
        ("rate_limiting", {"max_concurrent_llm": 0}),
        ("rate_limiting", {"min_delay_ms": -1}),
        ("rate_limiting", {"backoff": {"multiplier": 0.5}}),
    ],
)
def test_forms_of_limits(field, value):
    """Limits must be positive."""
    assert [flaw.code for flaw in own_flaws(later(step(), **{field: value}))] == ["invalid_value"]


def test_very_many_steps_are_refused():
    """A recipe has a bounded number of steps, including nested ones."""
    inner = [{"id": f"s{number}", "agent": "a", "prompt": "p"} for number in range(900)]
    outer = [{"id": f"g{number}", "substeps": inner} for number in range(3)]

    assert ("$", "too_many_steps") in {(flaw.path, flaw.code) for flaw in parse.flaws(later(*outer))}
    assert len(walk.ids(later(*outer))) > rules.MOST_STEPS


# -- the document's own recipes, and any text


def test_the_recipes_of_the_examples_folder():
    """Every recipe in recipes/amplifier is valid, and its id is the name of its file."""
    for path in sorted((recipe_harness.ROOT / "recipes" / "amplifier").glob("*.yaml")):
        assert parsed(path.read_text(encoding="utf-8")).recipe_id == path.stem


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.text(alphabet="ab{} .'=", max_size=8) | st.just("{{x}}"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*LATER_STEPS, "id", "agent", "foreach", "as", "steps", "approval"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@hypothesis.settings(max_examples=examples(50), deadline=None)
@hypothesis.given(
    st.sampled_from(["steps", "stages", "context", "args_schema", "recursion", "schema", "final_output"]), _VALUES
)
def test_any_document_is_a_recipe_or_is_refused(field, value):
    """Any value of any field gives a recipe or flaws, and never another error."""
    for document in (recipe(step(), context={"x": 1}), later(step(), context={"x": 1})):
        assert all(re.fullmatch(r"[a-z_]+", flaw.code) for flaw in own_flaws(document | {field: value}))
