"""Tests of conditions."""

from __future__ import annotations

import pytest

from app.dialects.orchestrate import steps, variables
from tests.unit.dialects.orchestrate.workflow_harness import scope

AT = scope(context={"a": "x", "glob": "*.txt"}, steps=({"A": {"json": {"ok": True, "n": 3, "t": "true"}}},))


def _condition(**when):
    filler = variables.Filler(AT)
    return steps.read(when, filler), filler.gaps


@pytest.mark.parametrize(
    ("left", "right", "holds"),
    [
        ("x", "x", True),
        ("x", "y", False),
        ("${context.a}", "x", True),
        ("${steps.A.json.ok}", "true", True),
        ("${steps.A.json.ok}", True, True),
        ("${steps.A.json.ok}", "True", False),
        ("${steps.A.json.n}", 3, True),
        ("${steps.A.json.n}", "3.0", False),
        (None, "null", True),
        ("true", "${steps.A.json.t}", True),
        ("", "", True),
        ("x", "x ", False),
    ],
)
def test_equals(left, right, holds):
    """Both sides are compared as texts; numbers and booleans are written as in JSON."""
    condition, gaps = _condition(equals={"left": left, "right": right})

    assert (condition.holds({}), condition.patterns, gaps) == (holds, (), ())


@pytest.mark.parametrize(
    ("fitting", "holds"),
    [((1, 0), True), ((3, 0), True), ((0, 0), False), ((1, 1), False), ((0, 1), False)],
)
def test_files(fitting, holds):
    """`exists` needs a file, `not_exists` needs its absence, and both must be true."""
    condition, _ = _condition(exists="a/${context.glob}", not_exists="b")

    assert condition.patterns == ("a/*.txt", "b")
    assert condition.holds(dict(zip(condition.patterns, fitting, strict=True))) is holds


def test_no_file_is_searched_if_the_texts_differ():
    """If the texts differ, no file is searched."""
    condition, _ = _condition(equals={"left": "a", "right": "b"}, exists="x")
    other, _ = _condition(equals={"left": "a", "right": "a"}, exists="x", not_exists="x")

    assert (condition.patterns, condition.holds({})) == ((), False)
    assert (other.patterns, other.holds({"x": 1}), other.holds({"x": 0})) == (("x",), False, False)


def test_a_condition_collects_all_undefined_names():
    """The condition collects all undefined names, so that its step can fail with all of them."""
    _, gaps = _condition(equals={"left": "${context.b}", "right": "${steps.A.json.x}"}, exists="${nope}")

    assert [gap.name for gap in gaps] == ["context.b", "steps.A.json.x", "nope"]
