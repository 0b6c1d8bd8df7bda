"""Tests of the parser: the form of a workflow, and every fault with its path and line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.dialects.orchestrate import parse, schema
from tests.unit.dialects.orchestrate.workflow_harness import all_flaws, flaws, loop, parsed, step, workflow

INBOX = """\
version: "1.1.1"
name: Inbox
context: {dataset: customers}
providers:
  model:
    command: [model, -p, "${PROMPT}", --model, "${model}"]
    defaults: {model: small}
steps:
  - name: Look
    command: [find, inbox, -name, "*.task"]
    output_capture: lines
    on:
      failure: {goto: _end}
  - name: Work
    for_each:
      items_from: steps.Look.lines
      as: task_file
      steps:
        - name: Implement
          provider: model
          input_file: "${task_file}"
          depends_on:
            required: ["docs/${context.dataset}.md"]
            inject: {mode: content}
        - name: Assert
          command: ["true"]
          when: {equals: {left: "${steps.Implement.exit_code}", right: 0}}
          on: {failure: {goto: Mourn}, success: {goto: _end}}
  - name: Mourn
    wait_for: {glob: "*.txt"}
"""


def test_a_workflow():
    """Its id is the name of its file, and unset fields have defaults."""
    made = parsed(INBOX)
    document = made.document

    assert (made.recipe_id, made.dialect, made.label, made.total_steps) == ("file", "orchestrate", "Inbox", None)
    assert made.args_schema == {
        "type": "object",
        "properties": {"dataset": {"default": "customers"}},
        "additionalProperties": True,
    }
    assert {name: document[name] for name in document if name not in ("steps", "providers")} == {
        "version": "1.1.1",
        "name": "Inbox",
        "strict_flow": True,
        "context": {"dataset": "customers"},
        "inbox_dir": "inbox",
        "processed_dir": "processed",
        "failed_dir": "failed",
        "task_extension": ".task",
    }
    assert document["providers"]["model"]["input_mode"] == "argv"
    assert document["steps"][0]["allow_parse_error"] is False
    inner = document["steps"][1]["for_each"]["steps"]
    assert inner[0]["output_capture"] == "text"
    assert inner[0]["depends_on"]["inject"] == {"mode": "content", "position": "prepend"}
    assert document["steps"][2]["wait_for"] == {"glob": "*.txt", "timeout_sec": 300, "poll_ms": 500, "min_count": 1}


def test_a_filled_workflow_stays_as_it_is():
    """Defaults are filled in once: the document of a recipe is a workflow with the same meaning."""
    made = parsed(INBOX)

    assert parsed(dict(made.document)).document == made.document


def test_a_name_is_optional():
    """A workflow without a name is shown with the name of its file."""
    assert parsed(workflow(step())).label == "file"


@pytest.mark.parametrize(
    ("steps", "total"),
    [
        ([step("A"), step("B", on={"success": {"goto": "_end"}})], 2),
        ([step("A", on={"success": {"goto": "B"}}), step("B")], 2),
        ([step("A"), step("B", on={"failure": {"goto": "A"}})], None),
        ([step("A", on={"failure": {"goto": "A"}})], None),
        ([loop("A", step("B")), step("C")], None),
    ],
)
def test_steps_are_counted_where_the_flow_cannot_come_back(steps, total):
    """The outermost steps are counted, unless a step can repeat."""
    assert parsed(workflow(*steps)).total_steps == total


def test_all_flaws_are_reported_in_the_order_of_lines():
    """All flaws of a text are reported, in the order of their lines."""
    text = (
        'version: "1.1"\nnmae: x\nsteps:\n  - name: A\n    command: [echo, "${env.HOME}"]\n    provider: p\n'
        "  - name: A\n    command_override: [x]\n    depends_on:\n      inject: true\n    on: {failure: {goto: B}}\n"
    )
    found = all_flaws(text)

    assert [(flaw.line, flaw.path, flaw.code) for flaw in found] == [
        (2, "$.nmae", "unknown_field"),
        (4, "$.steps[0]", "exclusive_fields"),
        (5, "$.steps[0].command[1]", "env_namespace"),
        (6, "$.steps[0].provider", "unknown_provider"),
        (7, "$.steps[1].name", "duplicate_name"),
        (7, "$.steps[1]", "missing_field"),
        (8, "$.steps[1].command_override", "removed_field"),
        (10, "$.steps[1].depends_on.inject", "needs_version"),
        (11, "$.steps[1].on.failure.goto", "unknown_step"),
    ]
    assert "did you mean name?" in found[0].message
    assert '"1.1.1" or higher' in found[7].message


def test_yaml_that_cannot_be_read():
    """An error in the YAML itself is reported as a fault of the workflow."""
    assert [(flaw.code, flaw.line) for flaw in all_flaws("version: '1.1'\nsteps: []\nsteps: []\n")] == [
        ("repeated_name", 3)
    ]
    assert [(flaw.code, flaw.line) for flaw in all_flaws("version: '1.1'\nsteps: [}\n")] == [("syntax", 2)]


@pytest.mark.parametrize("document", ["", "[]", "7", "text", "{}"])
def test_an_invalid_workflow_document_is_a_fault(document):
    """An empty text, a list or a word is a fault."""
    assert all_flaws(document)


@pytest.mark.parametrize(
    ("version", "path", "code", "hint"),
    [
        (
            "2.0",
            "$.version",
            "unknown_version",
            "that the language has upstream; Control Room runs 1.1, 1.1.1, 1.2, 1.3",
        ),
        ("7", "$.version", "unknown_version", "not a version of the language; Control Room runs 1.1,"),
        (1.1, "$.version", "unknown_version", 'write it in quotes: "1.1"'),
    ],
)
def test_versions(version, path, code, hint):
    """A version is a text, and a known one."""
    found = all_flaws({**workflow(step()), "version": version})

    assert [(flaw.path, flaw.code) for flaw in found] == [(path, code)]
    assert hint in found[0].message


@pytest.mark.parametrize("version", [True, ["1.1"], None])
def test_a_version_is_a_text(version):
    """A version that is neither a text nor a number meant as one has the wrong type."""
    assert ("$.version", "wrong_type") in flaws({**workflow(step()), "version": version})


def test_a_workflow_needs_a_version():
    """Without a version the set of fields is unknown, so it is a fault."""
    assert flaws({"steps": [step()]}) == {("$.version", "missing_field")}


LATER = {
    "1.1.1": ("depends_on.inject", step(input_file="x", depends_on={"inject": True})),
    "1.2": ("for_each.on_item_complete", loop("A", step("B"), on_item_complete={"success": {"move_to": "done"}})),
    "1.3": ("output_schema", step(output_capture="json", output_schema="x.json")),
}


@pytest.mark.parametrize("since", LATER)
@pytest.mark.parametrize("version", schema.VERSIONS)
def test_fields_belong_to_versions(version, since):
    """A field is refused below its version, which the message names; from then on it is known."""
    path, given = LATER[since]
    document = workflow(given, version=version)

    if schema.VERSIONS.index(version) >= schema.VERSIONS.index(since):
        assert flaws(document) == set()
    else:
        assert flaws(document) == {(f"$.steps[0].{path}", "needs_version")}
        assert f'"{since}" or higher' in all_flaws(document)[0].message


def test_a_later_field_elsewhere_is_unknown():
    """A field of a later version is reported as such only where that version has it."""
    assert flaws(workflow(step(inject=True), version="1.1")) == {("$.steps[0].inject", "unknown_field")}


AT = "$.steps[0]"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        # the work of a step
        ({"name": "A"}, {(AT, "missing_field")}),
        (step(provider="echo", command=["x"]), {(AT, "exclusive_fields")}),
        (step(wait_for={"glob": "x"}, command=["x"]), {(AT, "exclusive_fields")}),
        (step(wait_for={"glob": "x"}, provider="echo"), {(AT, "exclusive_fields")}),
        (step(wait_for={"glob": "x"}, for_each={"items": [], "steps": [step()]}), {(AT, "exclusive_fields")}),
        (step(command=["x"], for_each={"items": [], "steps": [step()]}), {(AT, "exclusive_fields")}),
        (step(command=["x"], provider_params={}), {(f"{AT}.provider_params", "misplaced_field")}),
        (step(wait_for={"glob": "x"}, timeout_sec=1), {(f"{AT}.timeout_sec", "misplaced_field")}),
        (step(wait_for={"glob": "x"}, output_file="y"), {(f"{AT}.output_file", "misplaced_field")}),
        (loop("A", step("B")) | {"retries": {"max": 1}}, {(f"{AT}.retries", "misplaced_field")}),
        (loop("A", step("B")) | {"secrets": ["X"]}, {(f"{AT}.secrets", "misplaced_field")}),
        # names and simple fields
        (step("_end"), {(f"{AT}.name", "invalid_value")}),
        (step("a.b"), {(f"{AT}.name", "invalid_value")}),
        (step("a/b"), {(f"{AT}.name", "invalid_value")}),
        (step(""), {(f"{AT}.name", "invalid_value")}),
        (step("x" * 65), {(f"{AT}.name", "invalid_value")}),
        (step() | {"name": 3}, {(f"{AT}.name", "wrong_type")}),
        (step(command="ls -l"), {(f"{AT}.command", "wrong_type")}),
        (step(command=[]), {(f"{AT}.command", "invalid_value")}),
        (step(command=[""]), {(f"{AT}.command[0]", "invalid_value")}),
        (step(command=["sleep", 5]), {(f"{AT}.command[1]", "wrong_type")}),
        (step(env={"A": 1}), {(f"{AT}.env.A", "wrong_type")}),
        (step(env={"A=B": "1"}), {(f"{AT}.env", "invalid_value")}),
        (step(secrets=["X", "X"]), {(f"{AT}.secrets", "invalid_value")}),
        (step(timeout_sec=0), {(f"{AT}.timeout_sec", "invalid_value")}),
        (step(timeout_sec="5"), {(f"{AT}.timeout_sec", "wrong_type")}),
        (step(retries={}), {(f"{AT}.retries.max", "missing_field")}),
        (step(retries={"max": -1}), {(f"{AT}.retries.max", "invalid_value")}),
        (step(retries={"max": 1, "delay": 1}), {(f"{AT}.retries.delay", "unknown_field")}),
        (step(output_capture="xml"), {(f"{AT}.output_capture", "invalid_value")}),
        (step(wait_for={}), {(f"{AT}.wait_for.glob", "missing_field")}),
        (step(wait_for={"glob": "x", "min_count": 0}), {(f"{AT}.wait_for.min_count", "invalid_value")}),
        (step(wait_for={"glob": "x", "poll_ms": 0}), {(f"{AT}.wait_for.poll_ms", "invalid_value")}),
        (step(when={}), {(f"{AT}.when", "invalid_value")}),
        (step(when={"equals": {"left": "a"}}), {(f"{AT}.when.equals.right", "missing_field")}),
        (step(when={"equals": {"left": [], "right": "a"}}), {(f"{AT}.when.equals.left", "wrong_type")}),
        (step(on={}), {(f"{AT}.on", "invalid_value")}),
        (step(on={"failure": {}}), {(f"{AT}.on.failure.goto", "missing_field")}),
        (step(on={"error": {"goto": "_end"}}), {(f"{AT}.on.error", "unknown_field")}),
        # captures
        (step(allow_parse_error=True), {(f"{AT}.allow_parse_error", "needs_json_capture")}),
        (step(output_schema="s.json"), {(f"{AT}.output_schema", "needs_json_capture")}),
        (
            step(output_capture="lines", output_require=[{"pointer": ""}]),
            {(f"{AT}.output_require", "needs_json_capture")},
        ),
        (
            step(output_capture="json", allow_parse_error=True, output_schema="s", output_require=[{"pointer": ""}]),
            {(f"{AT}.output_schema", "exclusive_fields"), (f"{AT}.output_require", "exclusive_fields")},
        ),
        (
            step(output_capture="json", output_require=[{"pointer": "a"}]),
            {(f"{AT}.output_require[0].pointer", "invalid_pointer")},
        ),
        (
            step(output_capture="json", output_require=[{"pointer": "/~2"}]),
            {(f"{AT}.output_require[0].pointer", "invalid_pointer")},
        ),
        (
            step(output_capture="json", output_require=[{"pointer": "/a", "type": "integer"}]),
            {(f"{AT}.output_require[0].type", "invalid_value")},
        ),
        (
            step(output_capture="json", output_require=[{"pointer": "/a", "equals": []}]),
            {(f"{AT}.output_require[0].equals", "wrong_type")},
        ),
        (
            step(output_capture="json", output_require=[{"pointer": "/a", "exists": False, "equals": 1}]),
            {(f"{AT}.output_require[0].equals", "exclusive_fields")},
        ),
        # injection
        (step(depends_on={"inject": True}), {(f"{AT}.depends_on.inject", "misplaced_field")}),
        (
            step(wait_for={"glob": "x"}, depends_on={"inject": {"mode": "list"}}),
            {(f"{AT}.depends_on.inject", "misplaced_field")},
        ),
        (step(provider="echo", depends_on={"inject": "list"}), {(f"{AT}.depends_on.inject", "wrong_type")}),
        (
            step(provider="echo", depends_on={"inject": {"mode": "all"}}),
            {(f"{AT}.depends_on.inject.mode", "invalid_value")},
        ),
        # providers
        (step(provider="ehco"), {(f"{AT}.provider", "unknown_provider")}),
        # variables
        (step(command=["x", "${a"]), {(f"{AT}.command[1]", "open_variable")}),
        (step(command=["x", "${env.HOME}"]), {(f"{AT}.command[1]", "env_namespace")}),
        (step(output_file="a/.Git/${context.x}"), {(f"{AT}.output_file", "unsafe_path")}),
        (step(output_file="a/"), {(f"{AT}.output_file", "unsafe_path")}),
        (step(output_file=".orchestrate/runs/x/artifacts/a"), set()),
        (step(env={"A": "${env.HOME}"}), {(f"{AT}.env.A", "env_namespace")}),
        (
            step(provider="echo", provider_params={"a": [{"b": "${env.X}"}]}),
            {(f"{AT}.provider_params.a[0].b", "env_namespace")},
        ),
        # loops
        (step(for_each={"steps": [step("B")]}), {(f"{AT}.for_each", "missing_field")}),
        (
            loop("A", step("B"), items=[], items_from="steps.A.lines"),
            {(f"{AT}.for_each", "exclusive_fields"), (f"{AT}.for_each.items_from", "wrong_capture")},
        ),
        (loop("A", items=[]), {(f"{AT}.for_each.steps", "invalid_value")}),
        (loop("A", step("B"), **{"as": "run"}), {(f"{AT}.for_each.as", "reserved_name")}),
        (loop("A", step("B"), **{"as": "a-b"}), {(f"{AT}.for_each.as", "invalid_value")}),
        (loop("A", step("B"), step("B")), {(f"{AT}.for_each.steps[1].name", "duplicate_name")}),
        (loop("A", step("B"), items_from="Look.lines"), {(f"{AT}.for_each.items_from", "invalid_pointer")}),
        (loop("A", step("B"), items_from="steps.Look.lines"), {(f"{AT}.for_each.items_from", "unknown_step")}),
        (loop("A", step("B"), on_item_complete={}), {(f"{AT}.for_each.on_item_complete", "invalid_value")}),
        (
            loop("A", step("B"), on_item_complete={"always": {"move_to": "x"}}),
            {(f"{AT}.for_each.on_item_complete.always", "unknown_field")},
        ),
    ],
)
def test_rules_of_steps(given, found):
    """Each broken rule is reported at its exact place."""
    assert flaws(workflow(given)) == found


@pytest.mark.parametrize(
    "given",
    [
        step(provider="echo"),
        step(provider="cat", input_file="a", provider_params={"x": {"y": [1, None]}}),
        step(input_file="a", depends_on={"inject": True}),
        step(depends_on={"required": ["*.csv"], "inject": False}),
        step(depends_on={"optional": ["*.csv"], "inject": {"mode": "none"}}),
        step(wait_for={"glob": "x"}, retries={"max": 1}, depends_on={"required": ["y"]}, when={"exists": "z"}),
        step(output_capture="json", allow_parse_error=True),
        step(output_capture="text", allow_parse_error=False),
        step(output_capture="json", output_require=[{"pointer": ""}, {"pointer": "/a~1b/0", "exists": False}]),
        step(command=["x", "$${env.HOME} $$ $(pwd) $x"], env={"A": "${b}"}),
        step(when={"equals": {"left": True, "right": "true"}, "exists": "*.a", "not_exists": "*.b"}),
        loop("A", loop("B", step("C", on={"always": {"goto": "A"}})), items=[1, {"a": None}, [True]]),
    ],
)
def test_every_allowed_combination_of_fields_is_valid(given):
    """Every combination of fields that the language allows is valid."""
    assert parsed(workflow(given)).document["steps"][0]["name"] == "A"


PATHS = ["/etc/passwd", "../x", "a/../../b", "a\\b", "C:/x", " ", "a/.."]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("where", "make"),
    [
        ("steps[0].input_file", lambda path: workflow(step(input_file=path))),
        ("steps[0].output_file", lambda path: workflow(step(output_file=path))),
        ("steps[0].output_schema", lambda path: workflow(step(output_capture="json", output_schema=path))),
        ("steps[0].depends_on.required[0]", lambda path: workflow(step(depends_on={"required": [path]}))),
        ("steps[0].depends_on.optional[1]", lambda path: workflow(step(depends_on={"optional": ["a", path]}))),
        ("steps[0].wait_for.glob", lambda path: workflow(step(wait_for={"glob": path}))),
        ("steps[0].when.exists", lambda path: workflow(step(when={"exists": path}))),
        ("steps[0].when.not_exists", lambda path: workflow(step(when={"not_exists": path}))),
        (
            "steps[0].for_each.on_item_complete.failure.move_to",
            lambda path: workflow(loop("A", step(), on_item_complete={"failure": {"move_to": path}})),
        ),
        (
            "steps[0].for_each.steps[0].input_file",
            lambda path: workflow(loop("A", step(input_file=path))),
        ),
        ("inbox_dir", lambda path: workflow(step(), inbox_dir=path)),
        ("processed_dir", lambda path: workflow(step(), processed_dir=path)),
        ("failed_dir", lambda path: workflow(step(), failed_dir=path)),
    ],
)
def test_paths_stay_inside(path, where, make):
    """No field that names a path takes one that is absolute, leads upwards or is written with backslashes."""
    assert flaws(make(path)) == {(f"$.{where}", "unsafe_path")}


@pytest.mark.parametrize("path", ["/${item}", "${item}/../x", "${a}/..", "..", "./../${x}"])
def test_variables_do_not_hide_an_escape(path):
    """An escape that is certain before variables are substituted is refused at load."""
    assert flaws(workflow(step(input_file=path))) == {(f"{AT}.input_file", "unsafe_path")}


def test_globs_do_not_recurse():
    """`**` is not supported as a folder; a name with two dots or two stars is valid."""
    assert flaws(workflow(step(wait_for={"glob": "a/**/b"}))) == {(f"{AT}.wait_for.glob", "unsafe_path")}
    assert flaws(workflow(step(input_file="a..b/c...", depends_on={"required": ["a**b", "..c"]}))) == set()


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([step("A", on={"success": {"goto": "B"}}), step("B")], set()),
        ([step("A", on={"success": {"goto": "_end"}})], set()),
        ([loop("A", step("B", on={"failure": {"goto": "C"}})), step("C")], set()),
        ([loop("A", step("B", on={"failure": {"goto": "_end"}}))], set()),
        ([step("A", on={"always": {"goto": "X"}})], {("$.steps[0].on.always.goto", "unknown_step")}),
        (
            [step("A", on={"always": {"goto": "C"}}), loop("B", step("C"))],
            {("$.steps[0].on.always.goto", "goto_into_loop")},
        ),
        (
            [loop("A", step("C", on={"always": {"goto": "D"}})), loop("B", step("D"))],
            {("$.steps[0].for_each.steps[0].on.always.goto", "goto_into_loop")},
        ),
    ],
)
def test_gotos(steps, found):
    """A `goto` leads to a step beside it, out of its loops or to the end, but not into a loop."""
    document = workflow(*steps)

    assert flaws(document) == found


@pytest.mark.parametrize(
    ("source", "reference", "code"),
    [
        ({"output_capture": "lines"}, "steps.Look.lines", None),
        ({"output_capture": "json"}, "steps.Look.json", None),
        ({"output_capture": "json"}, "steps.Look.json.a.b-c.0", None),
        ({"output_capture": "text"}, "steps.Look.lines", "wrong_capture"),
        ({"output_capture": "json"}, "steps.Look.lines", "wrong_capture"),
        ({}, "steps.Look.output", "invalid_pointer"),
        ({"output_capture": "lines"}, "steps.Look.lines.0", "invalid_pointer"),
        ({"output_capture": "json"}, "steps.Look.json.", "invalid_pointer"),
        ({"output_capture": "json"}, "steps.Look.json..a", "invalid_pointer"),
        ({"output_capture": "json"}, "steps.Look.json.a.*", "invalid_pointer"),
        ({"output_capture": "json"}, "steps.Look.json.a[*].b", "invalid_pointer"),
        ({"output_capture": "json"}, "steps.Look.json.a[0]", "invalid_pointer"),
        ({"output_capture": "json"}, "${steps.Look.json}", "invalid_pointer"),
        ({"output_capture": "json"}, "steps.Lok.json", "unknown_step"),
    ],
)
def test_items_from(source, reference, code):
    """Items come from the lines or the JSON of a visible step that produces them."""
    document = workflow(step("Look", **source), loop("A", step("B"), items_from=reference))
    inside = workflow(loop("Outer", step("Look", **source), loop("A", step("B"), items_from=reference)))
    places = ("$.steps[1].for_each.items_from", "$.steps[0].for_each.steps[1].for_each.items_from")

    for made, place in zip((document, inside), places, strict=True):
        assert flaws(made) == ({(place, code)} if code else set())


def test_providers():
    """Every provider has a template, which does not name the prompt if the provider reads it from standard input."""
    providers = {
        "a": {"command": ["x", "${PROMPT}"], "input_mode": "stdin"},
        "b": {"command": ["x", "$${PROMPT}"], "input_mode": "stdin"},
        "c": {"input_mode": "file"},
        "d": {"command": ["", "${env.X}", "${"]},
    }
    at = "$.providers"

    assert flaws(workflow(step(), providers=providers)) == {
        (f"{at}.a.command[1]", "invalid_prompt_placeholder"),
        (f"{at}.c.command", "missing_field"),
        (f"{at}.c.input_mode", "invalid_value"),
        (f"{at}.d.command[0]", "invalid_value"),
        (f"{at}.d.command[1]", "env_namespace"),
        (f"{at}.d.command[2]", "open_variable"),
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "A", "B", "_end", "1.1", "${item}", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([field.name for kind in schema.KINDS.values() for field in kind] + ["x"]), inner, max_size=5
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_no_value_breaks_the_parser(value):
    """Any value in any place gives a workflow or flaws."""
    with contextlib.suppress(errors.RecipeInvalid):
        parsed(workflow(step(), step("B"), **value) if isinstance(value, dict) and "steps" not in value else value)
    list(parse.flaws({"version": "1.3", "steps": [value, {"name": "A", "for_each": value}], "providers": value}))


def test_many_flaws_take_bounded_time():
    """A workflow with many faults is answered with the first two hundred, after a few passes."""
    steps = [step(f"S{index}", unknown=1, on={"failure": {"goto": f"T{index}"}}) for index in range(900)]

    assert len(all_flaws(workflow(*steps, version="1.1"))) == 200


def test_names_that_lead_nowhere():
    """A step cannot have the reserved name of an item's state, or be so deep in loops that its key is too long."""
    moves = {"success": {"move_to": "done"}}
    deep = step("S" * 64)
    for name in ("A" * 64, "B" * 64):
        deep = loop(name, deep)

    assert flaws(workflow(loop("L", step("lifecycle"), on_item_complete=moves))) == {
        ("$.steps[0].for_each.steps[0].name", "reserved_name")
    }
    assert flaws(workflow(loop("L", step("lifecycle")))) == set()
    assert flaws(workflow(deep)) == {("$.steps[0].for_each.steps[0].for_each.steps[0].name", "too_deep_loops")}
