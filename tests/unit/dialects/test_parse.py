"""Tests of the parser: the form of a recipe, and every fault with its place."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.dialects.control_room import parse
from tests.examples import examples
from tests.unit.dialects import bench

TOOL, READ = bench.RECIPE["phase_a"]
AGENT, WRITE = bench.RECIPE["phase_b"]


def _paths_and_codes(found):
    return {(flaw.path, flaw.code) for flaw in found}


def test_a_sound_recipe():
    """A parsed recipe is its document, with the facts that other parts need."""
    document = bench.recipe(task_patterns=["do it"])
    recipe = bench.parsed(document)

    assert (recipe.recipe_id, recipe.dialect, recipe.label) == ("small", "control_room", "Small")
    assert recipe.document == document
    assert recipe.task_patterns == ("do it",)
    assert recipe.total_steps == 4


def test_the_label_is_the_id_by_default():
    """A recipe needs only an id and one step."""
    recipe = bench.parsed({"recipe_id": "r", "phase_a": [TOOL]})

    assert recipe.label == "r"
    assert recipe.args_schema == {"type": "object", "additionalProperties": False, "properties": {}, "required": []}


def test_without_a_schema_each_argument_that_is_named_is_required():
    """Each name in references of tool arguments and paths is required once."""
    recipe = bench.parsed(
        {
            "recipe_id": "r",
            "phase_a": [TOOL | {"args": {"a": {"$ref": "task.args.one"}, "b": [{"$ref": "task.initial_args.two[0]"}]}}],
            "phase_b": [AGENT | {"input_slots": []}],
            "outputs": [{"slot": "plan", "path": "{{task.args.three}}/x.md"}],
            "dod": [{"check": "file_exists", "path": {"$ref": "task.args.one"}}],
        }
    )

    assert recipe.args_schema["required"] == ["one", "two", "three"]
    assert recipe.args_schema["additionalProperties"] is False


def test_a_declared_schema_wins():
    """A declared schema sets defaults and types; an undeclared argument is refused unless the schema allows it."""
    schema = {"properties": {"one": {"type": "string", "default": "x"}}, "required": []}
    args = {"a": {"$ref": "task.args.one"}}
    recipe = bench.parsed({"recipe_id": "r", "args_schema": schema, "phase_a": [TOOL | {"args": args}]})

    assert recipe.args_schema == {"type": "object", "additionalProperties": False, **schema}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"phase_a": [TOOL, READ | {"step_id": "find"}]}, {("$.phase_a[1].step_id", "duplicate_step_id")}),
        (
            {"phase_b": [AGENT | {"step_id": "read"}, WRITE]},
            {("$.phase_b[0].step_id", "duplicate_step_id")},
        ),
        ({"phase_a": [TOOL | {"step_id": "commit"}, READ]}, {("$.phase_a[0].step_id", "reserved_name")}),
        ({"phase_a": [TOOL | {"step_id": "a.b"}, READ]}, {("$.phase_a[0].step_id", "invalid_value")}),
        (
            {"phase_a": [TOOL, READ, TOOL | {"step_id": "x", "output_slot": "text"}]},
            {("$.phase_a[2].output_slot", "duplicate_slot")},
        ),
        ({"phase_a": [TOOL | {"evidence": True}, READ]}, {("$.phase_a[0].evidence", "unknown_field")}),
        ({"fase_a": []}, {("$.fase_a", "unknown_field")}),
        ({"phase_a": [TOOL, {"step_id": "x", "output_slot": "text"}]}, {("$.phase_a[1].tool", "missing_field")}),
        ({"phase_a": [TOOL, READ | {"output_slot": None}]}, {("$.phase_a[1].output_slot", "wrong_type")}),
        ({"phase_a": [TOOL, 3]}, {("$.phase_a[1]", "wrong_type")}),
        ({"phase_a": {"0": TOOL}}, {("$.phase_a", "wrong_type")}),
        ({"label": None}, {("$.label", "wrong_type")}),
        ({"recipe_id": "a/b"}, {("$.recipe_id", "invalid_value")}),
        ({"phase_a": [], "phase_b": [], "dod": []}, {("$", "no_steps")}),
        ({"task_patterns": ["/(/"]}, {("$.task_patterns[0]", "invalid_pattern")}),
        ({"task_patterns": ["ok", "  "]}, {("$.task_patterns[1]", "invalid_pattern")}),
        ({"task_patterns": ["/x(?P<scene>a)/"]}, {("$.task_patterns[0]", "undeclared_arg")}),
        ({"args_schema": {"type": "strin"}}, {("$.args_schema.type", "invalid_value")}),
        (
            {"args_schema": {"properties": {"a": {"$ref": "http://example.org/x"}}}},
            {("$.args_schema.properties.a.$ref", "unsupported_keyword")},
        ),
        (
            {"args_schema": {"properties": {"a": {"type": "integer", "default": "x"}}}},
            {("$.args_schema.properties.a.default", "wrong_type")},
        ),
        (
            {"args_schema": {"properties": {"a": {"pattern": "(?!x)"}}}},
            {("$.args_schema.properties.a.pattern", "invalid_pattern")},
        ),
        (
            {"phase_b": [AGENT | {"reply_schema": {"properties": {"a": {"type": "strin"}}}}, WRITE]},
            {("$.phase_b[0].reply_schema.properties.a.type", "invalid_value")},
        ),
        ({"phase_b": [AGENT | {"reply_schema": "object"}, WRITE]}, {("$.phase_b[0].reply_schema", "wrong_type")}),
        ({"dod": [{"check": "file_exist", "path": "x"}]}, {("$.dod[0].check", "unknown_check")}),
        ({"dod": [{"check": "file_exists"}]}, {("$.dod[0].path", "missing_field")}),
        ({"dod": [{"check": "slot_not_null", "slot": "prose", "path": "x"}]}, {("$.dod[0].path", "unknown_field")}),
        ({"dod": [{"check": "slot_not_null", "slot": "nothing"}]}, {("$.dod[0].slot", "unknown_slot")}),
        (
            {"dod": [{"check": "slot_field_equals", "slot": "prose", "field": "a..b", "expected": 1}]},
            {("$.dod[0].field", "invalid_ref")},
        ),
        (
            {"dod": [{"check": "file_exists", "path": {"$ref": "nothing.x"}}]},
            {("$.dod[0].path.$ref", "unreachable_ref_root")},
        ),
        ({"dod": [{"check": "file_exists", "path": "{{nothing.x}}"}]}, {("$.dod[0].path", "unreachable_ref_root")}),
        ({"dod": [{"check": "file_exists", "path": "/x"}]}, {("$.dod[0].path", "unsafe_path")}),
        ({"dod": [{"check": "file_exists", "path": "./"}]}, {("$.dod[0].path", "unsafe_path")}),
        (
            {"dod": [{"check": "file_exists", "path": {"$ref": "task.args"}}]},
            {("$.dod[0].path.$ref", "wrong_type")},
        ),
        (
            {"dod": [{"check": "file_exists", "path": "{{task.run_id.x}}"}]},
            {("$.dod[0].path", "unreachable_ref_root")},
        ),
        ({"outputs": [{"slot": "plan", "path": "../x"}]}, {("$.outputs[0].path", "unsafe_path")}),
        (
            {"outputs": [{"slot": "plan", "path": "x", "otherwise": "{{task.run_id}}/../x"}]},
            {("$.outputs[0].otherwise", "unsafe_path")},
        ),
        ({"outputs": [{"slot": "nothing", "path": "x"}]}, {("$.outputs[0].slot", "unknown_slot")}),
        ({"outputs": [{"slot": "found", "path": "x"}]}, {("$.outputs[0].slot", "not_an_artifact")}),
        ({"outputs": [{"slot": "plan", "path": p} for p in "xy"]}, {("$.outputs[1].slot", "duplicate_slot")}),
        ({"outputs": [{"slot": "plan", "path": "{{x"}]}, {("$.outputs[0].path", "invalid_template")}),
        ({"outputs": [{"slot": "plan", "path": 3}]}, {("$.outputs[0].path", "wrong_type")}),
        (
            {"outputs": [{"slot": "plan", "path": "x", "otherwise": "../x"}]},
            {("$.outputs[0].otherwise", "unsafe_path")},
        ),
        (
            {"outputs": [{"slot": "plan", "path": "x"}, {"slot": "prose", "path": "x"}]},
            {("$.outputs[1].path", "duplicate_path")},
        ),
        ({"outputs": [{"slot": "plan", "path": "x"}, {"slot": "prose", "path": "x", "overwrite": True}]}, set()),
        ({"findings": {"$ref": "found.*.x"}}, {("$.findings.$ref", "invalid_ref")}),
        ({"findings": {"$ref": "nothing.x"}}, {("$.findings.$ref", "unreachable_ref_root")}),
        ({"findings": ["x"]}, {("$.findings", "wrong_type")}),
    ],
)
def test_each_fault_has_its_exact_path_and_kind(changes, told):
    """Path and kind of each fault are exact, and no other fault is reported."""
    assert _paths_and_codes(bench.flaws(bench.recipe(**changes))) == told


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        (["prose"], {("$.phase_b[0].input_slots[0]", "slot_before_written")}),
        (["plan"], {("$.phase_b[0].input_slots[0]", "slot_before_written")}),
        (["found", "nothing"], {("$.phase_b[0].input_slots[1]", "unknown_slot")}),
        (["found", "text", "found"], {("$.phase_b[0].input_slots[2]", "duplicate_slot")}),
        ([3], {("$.phase_b[0].input_slots[0]", "wrong_type")}),
        ("found", {("$.phase_b[0].input_slots", "wrong_type")}),
    ],
)
def test_a_slot_is_written_before_it_is_read(slots, told):
    """Input slots are filled by earlier steps."""
    assert _paths_and_codes(bench.flaws(bench.recipe(phase_b=[AGENT | {"input_slots": slots}, WRITE]))) == told


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("text.x", "slot_before_written"),
        ("found.x", "slot_before_written"),
        ("plan", "slot_before_written"),
        ("nothing.x", "unreachable_ref_root"),
        ("find.x", "unreachable_ref_root"),
        ("task", "unreachable_ref_root"),
        ("task.arg.x", "unreachable_ref_root"),
        ("task[0]", "unreachable_ref_root"),
        ("a..b", "invalid_ref"),
        ("", "invalid_ref"),
    ],
)
def test_references_lead_to_the_task_or_to_earlier_slots(ref, code):
    """A reference that can never be resolved is a fault of the recipe."""
    steps = [TOOL | {"args": {"deep": [{"x": {"$ref": ref}}]}}, READ]

    assert _paths_and_codes(bench.flaws(bench.recipe(phase_a=steps))) == {("$.phase_a[0].args.deep[0].x.$ref", code)}


@pytest.mark.parametrize(
    "reference", [{"$ref": 3}, {"$ref": None}, {"$ref": "task.description", "default": 1}, {"$ref": ["a"]}]
)
def test_a_ref_object_holds_one_text(reference):
    """A `$ref` object has no other field, and its value is a text."""
    steps = [TOOL | {"args": {"x": reference}}, READ]

    assert _paths_and_codes(bench.flaws(bench.recipe(phase_a=steps))) == {("$.phase_a[0].args.x", "invalid_ref")}


def test_an_undeclared_argument_is_reported():
    """If a schema is declared, a reference may name only its arguments."""
    args = {"a": {"$ref": "task.args.one"}, "b": {"$ref": "task.args.two"}}
    document = bench.recipe(args_schema={"properties": {"one": {}}}, phase_a=[TOOL | {"args": args}, READ])

    assert _paths_and_codes(bench.flaws(document)) == {("$.phase_a[0].args.b.$ref", "undeclared_arg")}


def test_all_faults_are_reported_together():
    """All faults are reported at once, including those found beside the project's library."""
    document = bench.recipe(
        phase_a=[TOOL | {"colour": "red"}, READ | {"step_id": "find", "tool": "reeder"}],
        phase_b=[AGENT | {"agent_archetype": "plannr"}, WRITE | {"input_slots": ["nothing"], "prompt_type": "writ"}],
        dod=[{"check": "slot_is_null", "slot": "prose"}],
    )
    found = bench.DIALECT.flaws(json.dumps(document), "recipe", bench.stock())

    assert _paths_and_codes(found) == {
        ("$.phase_a[0].colour", "unknown_field"),
        ("$.phase_a[1].step_id", "duplicate_step_id"),
        ("$.phase_a[1].tool", "unknown_tool"),
        ("$.phase_b[0].agent_archetype", "unknown_archetype"),
        ("$.phase_b[1].input_slots[0]", "unknown_slot"),
        ("$.phase_b[1].prompt_type", "unknown_prompt_type"),
        ("$.dod[0].check", "unknown_check"),
    }
    assert all(
        "did you mean" in flaw.message
        for flaw in found
        if flaw.code in ("unknown_tool", "unknown_archetype", "unknown_prompt_type")
    )


def test_near_names_are_offered():
    """A misspelt name is answered with the nearest one."""
    steps = [TOOL, READ | {"args": {"path": {"$ref": "fond.files[0].path"}}}]
    messages = [flaw.message for flaw in bench.flaws(bench.recipe(phase_a=steps, lable="x"))]

    assert any("did you mean found?" in message for message in messages)
    assert any("did you mean label?" in message for message in messages)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", "syntax"),
        ("nonsense", "syntax"),
        ("{'recipe_id': 1}", "syntax"),
        ('{"recipe_id": "a",}', "syntax"),
        ("[]", "wrong_type"),
        ("null", "wrong_type"),
        ('"text"', "wrong_type"),
        ('{"recipe_id": "a", "recipe_id": "b"}', "repeated_name"),
        ('{"recipe_id": NaN}', "bad_number"),
        ('{"recipe_id": -Infinity}', "bad_number"),
        ('{"recipe_id": 1e999}', "bad_number"),
        ('{"recipe_id": ' + "9" * 5000 + "}", "bad_number"),
        ("[" * 100_000, "too_deep"),
        ("[" * 80 + "]" * 80, "too_deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "too_deep"),
        ('{"recipe_id": "a\\u0000"}', "nul_character"),
        ('{"recipe_id": "a\x00"}', "syntax"),
        ("\ufeff\ufeff{}", "syntax"),
        (" " * 10_000_000, "too_large"),
        ('{"label": "' + "x" * 10_000_000 + '"}', "too_large"),
    ],
)
def test_hostile_texts_are_refused(source, code):
    """Any content of a file is answered with a flaw and its code."""
    assert code in {flaw.code for flaw in bench.flaws(source)}


def test_a_syntax_error_names_its_line():
    """The error contains the line in the file."""
    (flaw,) = bench.flaws('{\n  "recipe_id": "a",\n  "label" "b"\n}')

    assert (flaw.path, flaw.code, flaw.line) == ("$", "syntax", 3)


def test_a_byte_order_mark_is_accepted():
    """A byte order mark, which editors on Windows write, is accepted."""
    assert bench.flaws("\ufeff" + json.dumps(bench.RECIPE)) == []


@settings(max_examples=examples(30), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["find", "found", "$ref"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["recipe_id", "phase_a", "phase_b", "dod", "step_id", "args", "$ref", "slot", "path", "x"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_any_value_is_a_recipe_or_a_list_of_faults(value):
    """No value causes an exception in the parser, or in the check beside a library."""
    bench.flaws(value)
    bench.DIALECT.flaws(json.dumps(value), "recipe", bench.stock())


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_a_recipe_with_any_part_replaced_is_a_recipe_or_a_list_of_faults(data):
    """A value of the wrong kind at any place of a sound recipe is reported as a flaw."""
    document = bench.recipe(outputs=[{"slot": "plan", "path": "x"}], findings={"$ref": "found.x"}, args_schema={})
    parent: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(parent, key=str) if isinstance(parent, dict) else range(len(parent))))
        inner = parent[key]
        if not (isinstance(inner, dict | list) and inner) or data.draw(st.booleans()):
            break
        parent = inner
    parent[key] = data.draw(st.sampled_from([None, 3, "", "x", [], {}, [3], {"$ref": "x"}, {"$ref": 1}, True, 1.5]))
    found = bench.DIALECT.flaws(json.dumps(document), "recipe", bench.stock())

    assert all(flaw.path.startswith("$") and flaw.message for flaw in found)


def test_a_flood_of_faults_is_answered_in_time():
    """A megabyte of wrong steps is checked within seconds, with a bounded answer."""
    document = {"recipe_id": "r", "phase_a": [{"step_id": "a", "x": 1}] * 40_000}
    began = time.process_time()
    found = bench.flaws(document)

    assert time.process_time() - began < 20
    assert len(found) >= 1


def test_parse_raises_one_error_with_all_flaws():
    """The error is a refused recipe whose message contains the first fault."""
    with pytest.raises(errors.RecipeInvalid, match=r"\$\.phase_a\[0\]\.tool") as caught:
        bench.DIALECT.parse('{"recipe_id": "r", "phase_a": [{"step_id": "a", "output_slot": "b"}]}', "x")

    assert caught.value.code == "recipe_invalid"
    assert len(caught.value.flaws) == 1


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/etc/x.md", "is not a path inside the workspace: it is absolute"),
        ("~/x.md", "is not a path inside the workspace: it is absolute"),
        ("a/../x.md", "is not a path inside the workspace: it holds '..'"),
        ("{{task.run_id}}/../x.md", "is not a path inside the workspace: it holds '..'"),
        (".git/hooks/{{task.run_id}}", "is not a path inside the workspace: .git does not belong to it"),
        ("a/.Control-Room/x", "is not a path inside the workspace: .Control-Room does not belong to it"),
        ("/".join("a" * 65), "is not a path inside the workspace: it has more than 64 components"),
        ("Drafts/", "names a folder; write the name of a file"),
        ("{{task.run_id}}/", "names a folder; write the name of a file"),
        (".", "names a folder; write the name of a file"),
        (" ", "is blank"),
        ("{{task.run_id}}", None),
        ("Drafts/{{task.run_id}}..md", None),
        ("a//./b.md", None),
        (".github/x.md", None),
    ],
)
def test_paths_that_cannot_lead_to_a_file(path, problem):
    """A path that no values of its placeholders can save is refused before a step is paid."""
    document = bench.recipe(outputs=[{"slot": "plan", "path": path}], dod=[{"check": "file_exists", "path": path}])
    found = [(flaw.path, flaw.code, flaw.message) for flaw in bench.flaws(document)]
    message = f"{path!r:.80} {problem}"

    assert found == (
        [] if problem is None else [(f"$.{at}[0].path", "unsafe_path", message) for at in ("outputs", "dod")]
    )


@pytest.mark.parametrize("form", ["$ref", "template"])
@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("task.args.count", "a whole number"),
        ("task.args", "an object"),
        ("task.session_plan_task_id", "a number"),
        ("task.args.name", None),
        ("task.args.any", None),
        ("task.args.list[0]", None),
        ("task.run_id", None),
    ],
)
def test_values_that_cannot_be_part_of_a_path(form, reference, kind):
    """A path consists of texts; an argument of an unknown or a mixed type may be one."""
    types = {"count": "integer", "name": "string", "list": "array", "any": ["string", "null"]}
    rules = {name: {"type": given} for name, given in types.items()}
    path = {"$ref": reference} if form == "$ref" else f"Drafts/{{{{{reference}}}}}.md"
    outputs = [{"slot": "plan", "path": path}]
    found = bench.flaws(bench.recipe(outputs=outputs, args_schema={"properties": rules}))

    wanted = [] if kind is None else [("wrong_type", f"{reference} is {kind}; a path consists of texts")]
    assert [(flaw.code, flaw.message) for flaw in found] == wanted


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "The recipe is not valid: the text is empty"),
        (" \n", "The recipe is not valid: the text is empty"),
        (
            '{"phase_a": [{"tool": 1, "tool": 2}]}',
            "The recipe is not valid: $.phase_a[0].tool occurs more than once in",
        ),
        ("{", "The recipe is not valid: the text is not JSON: "),
    ],
)
def test_a_text_that_is_not_a_recipe(source, message):
    """The message names the place in the text, and says so if the text is empty."""
    with pytest.raises(errors.RecipeInvalid) as caught:
        parse.parse(source)

    assert caught.value.message.startswith(message)
