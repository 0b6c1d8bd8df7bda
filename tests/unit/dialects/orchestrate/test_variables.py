"""Tests of variables: values of names, escapes, and missing names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.orchestrate import variables
from tests.unit.dialects.orchestrate.workflow_harness import scope

LOOK = {"status": "completed", "exit_code": 0, "lines": ["a", "b"], "duration_ms": 12, "truncated": False}
PARSE = {"exit_code": 0, "json": {"ok": True, "n": 1.5, "none": None, "files": [{"name": "f"}], "a b": "x"}}
FULL = scope(
    context={"name": "Ann", "n": 3, "deep": {"list": [1, [2]], "item": "own"}, "tricky": "${context.name} $$ ${"},
    loops=(
        variables.Loop(alias="file", item={"path": "p"}, index=1, total=2),
        variables.Loop(alias="item", item="outer", index=0, total=9),
        variables.Loop(alias="file", item="hidden", index=0, total=1),
    ),
    steps=({"Look": None, "Skip": {"status": "skipped", "exit_code": 0}}, {"Look": LOOK, "Parse": PARSE, "Loop": [{}]}),
)


def _filled(template, at=FULL):
    filler = variables.Filler(at)
    return filler.text(template), [gap.name for gap in filler.gaps]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("${run.id} ${run.root} ${run.timestamp_utc}", "20260102T030405Z-abc123 .orchestrate/runs/x 20260102T030405Z"),
        ("${loop.index}/${loop.total} ${item} ${file.path}", "1/2 outer p"),
        ("${context.name}${context.n}${context.deep.list.1.0}", "Ann32"),
        ("${context.deep}", '{"list":[1,[2]],"item":"own"}'),
        ("${steps.Parse.json.ok} ${steps.Parse.json.n} ${steps.Parse.json.none}", "true 1.5 null"),
        ("${steps.Parse.json.files.0.name} ${steps.Parse.json.a b}", "f x"),
        ("${steps.Parse.json.files}", '[{"name":"f"}]'),
        ("${steps.Parse.exit_code} ${steps.Skip.status}", "0 skipped"),
        ("$$ $${context.name} $$$${context.name} $$${context.name}", "$ ${context.name} $${context.name} $Ann"),
        ("$ $x $(pwd) {} $", "$ $x $(pwd) {} $"),
        ("${context.tricky}", "${context.name} $$ ${"),
        ("", ""),
    ],
)
def test_a_name_is_replaced_once_by_text_or_json(template, text):
    """Values are inserted once, as text or as JSON; escapes give the characters themselves."""
    assert _filled(template) == (text, [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("context.missing", "there is no 'missing'"),
        ("context.name.x", "there is no 'x' in a text"),
        ("context.deep.list.2", "there is no '2' in a list"),
        ("context.deep.list.01", "there is no '01'"),
        ("context.deep.list.-1", "there is no '-1'"),
        ("context", "must name something inside"),
        ("run.name", "there is no 'name'"),
        ("loop.key", "there is no 'key'"),
        ("steps.Look.lines", "Look has no result yet"),
        ("steps.Nope.output", "there is no step Nope here"),
        ("steps.Loop.output", "is a loop"),
        ("steps.Skip.output", "the result of Skip has no output"),
        ("steps.Parse.error", "the result of Parse has no error"),
        ("steps.Parse.json.bad", "there is no 'bad' in an object"),
        ("steps.Parse", "must be steps.NAME.FIELD"),
        ("env.HOME", "the environment is not a namespace"),
        ("PROMPT", "only providers have a prompt"),
        ("HOME", "write `$${`"),
        ("HOME:-x", "no such variable"),
        (" context.name", "no such variable"),
        ("", "no such variable"),
        ("file.name", "there is no 'name' in an object"),
    ],
)
def test_a_name_without_a_value_is_kept_and_reported(name, reason):
    """A name without a value stays, and is reported with the reason."""
    filler = variables.Filler(FULL)

    assert filler.text(f"<${{{name}}}>") == f"<${{{name}}}>"
    assert [gap.name for gap in filler.gaps] == [name]
    assert reason in filler.gaps[0].reason


def test_outside_of_loops():
    """Outside of a loop its item and index are undefined."""
    assert _filled("${item} ${loop.index}", scope())[1] == ["item", "loop.index"]


def test_results_have_an_old_name():
    """`duration` has the value of `duration_ms`."""
    at = scope(steps=({"Look": LOOK},))

    assert _filled("${steps.Look.duration} ${steps.Look.duration_ms}", at) == ("12 12", [])


def test_all_gaps_are_collected():
    """All texts are filled before a refusal, so that each missing name is reported once."""
    filler = variables.Filler(FULL)
    filler.value({"a": ["${context.x}", "${steps.Nope.output}"], "${context.key}": "${context.x} ${y} ${"})

    assert variables.error_context(filler.gaps) == {
        "undefined_vars": ["${context.x}", "${steps.Nope.output}", "${y}", "${}"],
        "invalid_reference": [{"reference": "steps.Nope.output", "reason": "there is no step Nope here"}],
    }
    assert variables.error_context(filler.gaps, template=True) == {
        "missing_placeholders": ["context.x", "steps.Nope.output", "y", ""],
        "undefined_vars": ["${context.x}", "${steps.Nope.output}"],
        "invalid_reference": [{"reference": "steps.Nope.output", "reason": "there is no step Nope here"}],
    }
    assert variables.error_context([]) == {}


def test_values_are_filled_inside():
    """Texts in lists and objects are filled at any depth; names and other values are unchanged."""
    value = {"${run.id}": ["${context.n}", 3, None, {"a": "${item}"}]}

    assert variables.Filler(FULL).value(value) == {"${run.id}": ["3", 3, None, {"a": "outer"}]}


@given(st.text(max_size=40))
def test_a_value_is_never_read_as_a_variable(text):
    """The value of a variable is inserted unchanged, and no name in it is missing."""
    at = scope(context={"a": text, "secret": "s"}, loops=(variables.Loop(alias="it", item=text, index=0, total=1),))

    assert _filled("${context.a}|${it}", at) == (f"{text}|{text}", [])


@given(st.text(max_size=40))
def test_escaping_is_undone(text):
    """A text with doubled dollars is restored."""
    assert _filled(text.replace("$", "$$")) == (text, [])


@given(st.text(st.sampled_from("${}ax. "), max_size=30))
def test_no_text_breaks_the_filler(text):
    """Any text is filled, or some name in it is missing; a text without `$` is unchanged."""
    filled, gaps = _filled(text)

    assert "$" in text or filled == text
    assert set(gaps) - {""} <= set(variables.names(text))
    assert "" in gaps or not variables.is_open(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_value_that_is_not_text_becomes_json(value):
    """A value is inserted unchanged if it is a text, and as JSON otherwise."""
    text = variables.written(value)

    assert text == value if isinstance(value, str) else json.loads(text) == value


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("steps.Look.lines", ["a", "b"]),
        ("steps.Parse.json.files", [{"name": "f"}]),
        ("steps.Parse.json", "is an object, not a list"),
        ("steps.Parse.json.ok", "is true or false, not a list"),
        ("steps.Parse.json.none", "is null, not a list"),
        ("steps.Parse.json.missing", "there is no 'missing' in an object"),
        ("steps.Parse.lines", "the result of Parse has no lines"),
        ("steps.Nope.lines", "there is no step Nope here"),
        ("context.list", "must be steps.NAME.lines"),
        ("steps.Look.output", "must be steps.NAME.lines"),
    ],
)
def test_items(reference, found):
    """Items must be an existing list; anything else is reported."""
    got = variables.items(reference, scope(context={"list": []}, steps=({"Look": LOOK, "Parse": PARSE},)))

    if isinstance(found, list):
        assert got == found
    else:
        assert isinstance(got, variables.Gap)
        assert found in got.reason
        assert variables.error_context([got]).keys() >= {"undefined_vars"}


def test_a_list_that_was_cut_off_is_not_looped_over():
    """A list that was cut is refused, since lines would be missing; only the driver's first version accepted it."""
    at = scope(steps=({"Look": {**LOOK, "truncated": True}},))
    got = variables.items("steps.Look.lines", at)

    assert isinstance(got, variables.Gap)
    assert got.reason.startswith("was cut off after 2 lines")
    assert variables.items("steps.Look.lines", at, whole=False) == ["a", "b"]


def test_pointers():
    """A pointer contains a step, its list and the path inside."""
    assert variables.pointer("steps.A-1.json.x.y z") == variables.Pointer(step="A-1", field="json", path=("x", "y z"))
    assert variables.pointer("steps.A.lines") == variables.Pointer(step="A", field="lines", path=())
    assert variables.pointer("steps.A.jsonx") is None
