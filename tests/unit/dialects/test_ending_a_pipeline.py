"""Tests of how a pipeline ends: files are written, issues opened, and the definition of done checked."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects import control_room
from app.dialects.control_room import done
from app.domain.states import RunState
from tests.unit.dialects import bench

OUTPUT = {"slot": "prose", "path": "Drafts/{{task.run_id}}.md"}


async def test_outputs_are_written_before_the_definition_of_done():
    """The text of a slot is committed under its own key, and a check may look for the file."""
    document = bench.recipe(outputs=[OUTPUT], dod=[{"check": "file_exists", "path": OUTPUT["path"]}])
    pipeline = bench.Pipeline(document)

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded()[4:] == ["commit.prose", "dod[0]"]
    assert pipeline.tables.files == {"Drafts/20260210T143000Z-abcdef.md": "draft said"}
    assert pipeline.asked("commit.prose").overwrite is False
    commit, check = pipeline.lines()[4:]
    assert (commit["phase"], commit["step_index"]) == ("dod", None)
    assert commit["input_slot_refs"] == ["prose", "task.run_id"]
    assert (check["phase"], check["step_id"]) == ("dod", "dod[0]")


@pytest.mark.parametrize("exists", [False, True])
async def test_an_output_has_a_second_path(exists):
    """An output uses its second path if the first has a file; a check looks for the written path."""
    output = {"slot": "prose", "path": "scene.md", "otherwise": OUTPUT["path"]}
    document = bench.recipe(outputs=[output], dod=[{"check": "file_exists", "path": {"$ref": "task.outputs.prose"}}])
    pipeline = bench.Pipeline(document)
    pipeline.tables.files = {"scene.md": "mine"} if exists else {}

    assert await pipeline.run() is RunState.DONE
    written = "Drafts/20260210T143000Z-abcdef.md" if exists else "scene.md"
    assert pipeline.tables.files[written] == "draft said"
    assert pipeline.tables.files["scene.md"] == ("mine" if exists else "draft said")
    assert pipeline.asked("dod[0]").subject == written


@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({"outputs": [OUTPUT | {"otherwise": "{{task.outputs.prose}}"}]}, "$.outputs[0].otherwise", None),
        ({"outputs": [OUTPUT], "dod": [{"check": "file_exists", "path": {"$ref": "task.outputs.plan"}}]}, None, None),
        ({"outputs": [OUTPUT | {"otherwise": "a.md", "overwrite": True}]}, None, "exclusive_fields"),
    ],
)
def test_a_written_path_is_named_where_it_is_known(changes, path, code):
    """`task.outputs` contains the slots of outputs, and is known in the definition of done only."""
    flaws = control_room.ControlRoom().flaws(json.dumps(bench.recipe(**changes)), "x", bench.stock())

    assert [flaw.code for flaw in flaws] == [code or "unreachable_ref_root"]
    assert path is None or flaws[0].path == path


async def test_an_output_path_may_be_a_reference():
    """A `$ref` in a path refers to an argument or a value in a payload."""
    document = bench.recipe(outputs=[{"slot": "plan", "path": {"$ref": "found.files[1].path"}, "overwrite": True}])
    pipeline = bench.Pipeline(document)

    assert await pipeline.run() is RunState.DONE
    assert pipeline.tables.files == {"b.md": "brief said"}
    assert pipeline.asked("commit.plan").overwrite is True


@pytest.mark.parametrize("value", [None, 3, "", " ", ["a"]])
async def test_an_invalid_output_path_fails_its_step(value):
    """If the path of an output cannot be built, no file is written and the step has a record."""
    document = bench.recipe(outputs=[{"slot": "plan", "path": {"$ref": "found.where"}}])
    pipeline = bench.Pipeline(document)
    pipeline.tables.payloads["finder"] = {"files": [{"path": "a.md"}], "where": value}

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["key"] == "commit.plan"
    assert pipeline.error["detail"]["segment"] == "found.where"
    assert pipeline.lines()[-1]["status"] == "failed"


async def test_a_failed_write_fails_the_run():
    """After a failed write the definition of done is not checked."""
    pipeline = bench.Pipeline(bench.recipe(outputs=[OUTPUT]))
    pipeline.tables.failing = {"commit.prose"}

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["key"] == "commit.prose"


async def test_each_finding_becomes_an_issue():
    """A finding may be an object or a text, and its issue has the receipt that proves it."""
    pipeline = bench.Pipeline(bench.recipe(findings={"$ref": "found.conflicts"}))
    finding = {"kind": "attribute", "message": "Eyes differ.", "path": "a.md", "line": 3}
    pipeline.tables.payloads["finder"] = {"files": [{"path": "a.md"}], "conflicts": [finding, "Dates differ."]}

    assert await pipeline.run() is RunState.DONE
    first, second = pipeline.asked("finding[0]"), pipeline.asked("finding[1]")
    assert (first.title, second.title) == ("Eyes differ.", "Dates differ.")
    assert first.facts == {"kind": "finding", "finding": finding}
    assert first.receipts == (pipeline.lines()[0]["receipt_id"],)
    assert pipeline.lines()[4]["input_slot_refs"] == ["found"]


async def test_findings_are_read_from_an_agents_json():
    """A reference into an artifact reads the artifact's text as JSON."""
    pipeline = bench.Pipeline(bench.recipe(findings={"$ref": "prose.issues"}))
    pipeline.tables.replies["draft"] = '{"issues": ["one", "two"]}'

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded()[4:] == ["finding[0]", "finding[1]"]


@pytest.mark.parametrize("reply", ["no JSON at all", '{"issues": 3}', '{"issues": null}', "[]", '{"issues": []} {}'])
async def test_findings_that_are_not_a_list_fail_the_run(reply):
    """The agent's step is a cause of the failure, so that a resume asks the agent again."""
    pipeline = bench.Pipeline(bench.recipe(findings={"$ref": "prose.issues"}))
    pipeline.tables.replies["draft"] = reply

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["key"] == "findings"
    assert json.loads(pipeline.disk.control[-1])["causes"] == [3, 4]


async def test_findings_that_are_a_text_of_a_tool_are_not_a_list():
    """The message names the value, and does not ask a tool for JSON; an old run keeps its wording."""
    pipeline = bench.Pipeline(bench.recipe(findings={"$ref": "found.files[0].path"}))
    old = bench.Pipeline(bench.recipe(findings={"$ref": "found.files[0].path"}))
    old.disk.start = dataclasses.replace(old.disk.start, driver_version=2)
    await asyncio.gather(pipeline.run(), old.run())

    wanted = "The reference found.files[0].path breaks at found.files[0].path: it is not a list."
    assert pipeline.lines()[-1]["error"]["message"] == wanted
    assert "breaks at found: the text is not JSON" in old.lines()[-1]["error"]["message"]


async def test_messages_of_checks_are_joined_to_sentences():
    """A message that is a sentence loses its full stop where other text follows; a list of one has `1 element`."""
    checks = [{"check": "slot_field_equals", "slot": "found", "field": "files[9].path", "expected": 1}]
    pipeline = bench.Pipeline(bench.recipe(dod=checks))
    await pipeline.run()

    told = [pipeline.error["message"], pipeline.asked("dod[0].issue").body]
    assert all(text.endswith(("element.", "elements.")) for text in told), told
    assert not any(".." in text or "1 elements" in text for text in told), told


CHECKS = [
    {"check": "slot_field_equals", "slot": "text", "field": "pass", "expected": False},
    {"check": "slot_not_null", "slot": "prose"},
    {"check": "file_exists", "path": "Drafts/none.md"},
    {"check": "slot_field_equals", "slot": "prose", "field": "pass", "expected": True},
]


async def test_a_failed_definition_of_done_fails_the_run_with_an_issue_for_each_check():
    """All checks are evaluated; the error lists the failed ones, and each of them gets an issue."""
    pipeline = bench.Pipeline(bench.recipe(dod=CHECKS))

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.disk.recorded()[4:] == ["dod[2]", "dod[0].issue", "dod[2].issue", "dod[3].issue"]
    assert pipeline.error["code"] == "dod_failed"
    failed = pipeline.error["detail"]["failed_checks"]
    assert [(check["key"], check["check"], check["issue"]["issue_id"]) for check in failed] == [
        ("dod[0]", CHECKS[0], "iss_dod[0].issue"),
        ("dod[2]", CHECKS[2], "iss_dod[2].issue"),
        ("dod[3]", CHECKS[3], "iss_dod[3].issue"),
    ]
    assert failed[0]["message"] == "text.pass is true, not false"
    assert failed[1]["message"] == "there is no file Drafts/none.md"
    assert "prose: the text is not JSON" in failed[2]["message"]
    issue = pipeline.asked("dod[0].issue")
    assert issue.facts["check"] == CHECKS[0]
    assert issue.receipts == (pipeline.lines()[1]["receipt_id"],)
    assert pipeline.disk.files["run.json"]["current_step_index"] == 4


async def test_a_resume_repeats_the_steps_of_a_failed_check():
    """Causes are the steps that wrote the slots, and the check that looked for the file."""
    pipeline = bench.Pipeline(bench.recipe(dod=CHECKS))
    await pipeline.run()

    assert json.loads(pipeline.disk.control[-1])["causes"] == [1, 3, 4]


async def test_a_broken_path_is_one_failed_check():
    """A broken reference in the definition of done is one failed check among the others, recorded under its key."""
    checks = [
        {"check": "file_exists", "path": {"$ref": "found.files[9].path"}},
        {"check": "slot_not_null", "slot": "text"},
    ]
    pipeline = bench.Pipeline(bench.recipe(dod=checks))

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.disk.recorded()[4:] == ["dod[0]", "dod[0].issue"]
    assert "found.files[9]" in pipeline.error["message"]
    assert json.loads(pipeline.disk.control[-1])["causes"] == [0, 4]


async def test_a_check_that_cannot_look_counts_as_failed():
    """A check whose path the workspace refuses fails, with the reason."""
    pipeline = bench.Pipeline(bench.recipe(dod=[{"check": "file_exists", "path": "out.md"}]))
    pipeline.tables.failing = {"dod[0]"}

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["detail"]["failed_checks"][0]["message"] == "dod[0] broke"


async def test_a_recipe_without_definition_of_done_is_done_at_its_last_step():
    """`dod`, `outputs` and `findings` are optional, and so is either phase."""
    pipeline = bench.Pipeline({"recipe_id": "tools_only", "phase_a": [bench.RECIPE["phase_a"][0]]})

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded() == ["find"]


@pytest.mark.parametrize("empty", [None, "", " \n\t", "null", " null\n"])
def test_null_means_missing_json_null_or_blank(empty):
    """An empty slot fails `slot_not_null`."""
    assert done.judge({"check": "slot_not_null", "slot": "s"}, empty) == "the slot s is empty"


@pytest.mark.parametrize("full", [{}, [], {"a": None}, "x", "{}", "[]", "0", "false", 0, False])
def test_empty_and_false_values_are_present(full):
    """Empty objects and lists, zero and false are values."""
    assert done.judge({"check": "slot_not_null", "slot": "s"}, full) is None


@pytest.mark.parametrize(
    ("value", "field", "expected", "passes"),
    [
        ({"a": True}, "a", True, True),
        ({"a": True}, "a", 1, False),
        ({"a": 1}, "a", True, False),
        ({"a": 1}, "a", 1.0, True),
        ({"a": "1"}, "a", 1, False),
        ({"a": {"x": 1, "y": [2]}}, "a", {"y": [2], "x": 1}, True),
        ({"a": [1, 2]}, "a", [2, 1], False),
        ({"a": None}, "a", None, True),
        ({"a": 1}, "a", None, False),
        ({}, "a", None, False),
        ({"a": [{"b": "c"}]}, "a[0].b", "c", True),
        ([{"b": "c"}], "[0].b", "c", True),
        ('{"a": true}', "a", True, True),
        ('"a"', "a", "a", False),
        ("pass: true", "pass", True, False),
        ('{"a": NaN}', "a", None, False),
        ({"a": [True]}, "a", [1], False),
    ],
)
def test_fields_are_compared_as_strict_json(value, field, expected, passes):
    """Types matter, the order of names does not; an artifact is read as JSON."""
    check = {"check": "slot_field_equals", "slot": "s", "field": field, "expected": expected}

    assert (done.judge(check, value) is None) is passes


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_equals_itself_after_a_round_trip(value):
    """A value equals itself after it was written and read."""
    assert done.same(value, json.loads(json.dumps(value)))


@given(VALUES, VALUES)
def test_equality_is_that_of_the_written_form(one, other):
    """Two values are equal if and only if their sorted JSON is, except for the two forms of a whole number."""
    written = [json.dumps(_whole(value), sort_keys=True) for value in (one, other)]

    assert done.same(one, other) is (written[0] == written[1])


def _whole(value):
    match value:
        case bool():
            return value
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {name: _whole(item) for name, item in value.items()}
    return value


@pytest.mark.parametrize("args", [{}, {"report_file": "Reports/a.md"}])
async def test_an_output_for_an_optional_argument_is_written_on_request(args):
    """If the argument that names the file is missing, no file is written and the run is done."""
    schema = {"type": "object", "properties": {"report_file": {"type": "string"}}}
    outputs = [{"slot": "plan", "path": {"$ref": "task.args.report_file"}}]
    pipeline = bench.Pipeline(bench.recipe(args_schema=schema, outputs=outputs), args=args)

    assert await pipeline.run() is RunState.DONE
    assert pipeline.tables.files == ({"Reports/a.md": "brief said"} if args else {})
