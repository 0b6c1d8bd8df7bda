"""Tests of conditions: the grammar, its two orders of precedence, and values that never change the condition."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from app.dialects.amplifier import conditions

VALUES = {
    "a": "x",
    "b": "y",
    "c": "z",
    "yes": "true",
    "no": "false",
    "n": "10",
    "big": "9007199254740993",
    "m": "9.5",
    "word": "ten",
}


def _holds(text, version="1.1", values=VALUES):
    return conditions.holds(conditions.parse(text, version), values.__getitem__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{a}} == 'x'", True),
        ("{{a}} == 'y'", False),
        ("{{a}} != 'y'", True),
        ("{{a}} != 'x'", False),
        ('{{a}} == "x"', True),
        ("'x' == {{a}}", True),
        ("{{a}}=='x'", True),
        ("{{ a }} == {{b}}", False),
        ("{{a}} == 'x' and {{b}} == 'y'", True),
        ("{{a}} == 'x' and {{b}} == 'z'", False),
        ("{{a}} == 'q' or {{b}} == 'y'", True),
        ("{{a}} == 'q' or {{b}} == 'q'", False),
        ("{{a}} == 'x or y'", False),
        ("{{yes}} == 'true'", True),
    ],
)
def test_operators(text, expected):
    """Conditions have equality, inequality, `and`, `or`, and texts in either quotes."""
    assert _holds(text) is expected
    assert _holds(text, "1.7") is expected


@pytest.mark.parametrize(
    ("text", "first", "later"),
    [
        # true or true and false
        ("{{a}} == 'x' or {{b}} == 'y' and {{c}} == 'q'", False, True),
        ("{{a}} == 'q' and {{b}} == 'y' or {{c}} == 'z'", True, True),
        ("{{a}} == 'x' or {{b}} == 'q' and {{c}} == 'q' or {{a}} == 'q'", False, True),
    ],
)
def test_precedence(text, first, later):
    """The first version evaluates from left to right; in the later one `and` binds closer."""
    assert (_holds(text), _holds(text, "1.7")) == (first, later)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{n}} > 9", True),
        ("{{n}} > {{m}}", True),
        ("{{n}} < '9'", False),
        ("{{n}} >= 10.0", True),
        ("{{n}} <= 9", False),
        ("{{n}} == 10", True),
        ("{{n}} == 10.0", False),
        ("not {{a}} == 'x'", False),
        ("not not {{a}} == 'x'", True),
        ("not {{no}}", True),
        ("{{yes}}", True),
        ("{{yes}} == true", True),
        ("{{yes}} and not ({{no}} or {{a}} == 'q')", True),
        ("({{a}} == 'x' or {{b}} == 'q') and {{c}} == 'z'", True),
        ("(({{a}} == 'x'))", True),
        ("{{n}} > -1 and {{n}} < 1e3", True),
        ("{{big}} > 9007199254740992 and {{big}} < 9007199254740994", True),
        ("{{big}} > 9007199254740992.0", True),
    ],
)
def test_the_later_version_has_more_conditions(text, expected):
    """The later version has comparisons of numbers, `not`, parentheses, and variables that are true or false."""
    assert _holds(text, "1.7") is expected
    with pytest.raises(conditions.ConditionInvalid):
        conditions.parse(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "ends where a value must stand"),
        ("{{a}}", "ends where == or != must stand"),
        ("{{a}} ==", "ends where a value must stand"),
        ("{{a}} = 'x'", "cannot be read from \"= 'x'\" on"),
        ("{{a}} == x", "put texts in quotes"),
        ("{{a}} == 'x", "cannot be read"),
        ("{{a}} == 'x' {{b}} == 'y'", "`and` or `or` would"),
        ("{{a}} == 'x' and", "ends where a value must stand"),
        ("and {{a}} == 'x'", "'and' is not a value"),
        ("{{a}} == 'x' AND {{b}} == 'y'", "does not follow"),
        ("'x' == 'x'", "names no variable"),
        ("'{{a}}' == 'x'", "write a variable without quotes"),
        ("{{a b}} == 'x'", "cannot be read"),
        ("{{a}} < 'x'", 'needs schema: "1.7"'),
        ("not {{a}} == 'x'", 'needs schema: "1.7"'),
        ("({{a}} == 'x')", 'needs schema: "1.7"'),
        ("{{a}} in 'x'", "has 'in' where == or != must stand"),
        ("{{a}} == 'it's'", "cannot be read"),
    ],
)
def test_a_faulty_condition_names_the_text_at_its_fault(text, told):
    """The message for a faulty condition names the text at the fault."""
    with pytest.raises(conditions.ConditionInvalid) as caught:
        conditions.parse(text)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text", ["({{a}} == 'x'", "{{a}} == 'x')", "()", "not", "(" * 40 + "{{a}}" + ")" * 40, "true == true"]
)
def test_a_malformed_compound_condition_is_refused(text):
    """Parentheses must close, `not` needs an operand, and the depth is limited."""
    with pytest.raises(conditions.ConditionInvalid):
        conditions.parse(text, "1.7")


@pytest.mark.parametrize("text", ["{{word}} > 9", "{{n}} < {{a}}", "not {{a}}", "{{n}} and {{yes}}"])
def test_an_undecidable_condition_is_refused(text):
    """Words have no order, and only true and false are conditions by themselves."""
    with pytest.raises(conditions.Undecidable):
        _holds(text, "1.7")


def test_every_variable_is_looked_up():
    """An undefined variable is found after any other part of the condition."""
    with pytest.raises(KeyError):
        _holds("{{a}} == 'x' or {{missing}} == 'y'")
    with pytest.raises(KeyError):
        _holds("{{a}} == 'q' and {{missing}} == 'y'")


def test_variables_in_order():
    """The variables of a condition are listed in the order of the text."""
    condition = conditions.parse("not ({{a.b}} == {{c}} or {{d}}) and {{e}} > 1", "1.7")

    assert list(conditions.variables(condition)) == ["a.b", "c", "d", "e"]


_HOSTILE = st.one_of(
    st.text(),
    st.sampled_from(["x' or 'a' == 'a", 'x" or "a" == "a', "}} == 'x' or {{a}}", "{{b}}", "true or true", "') or ('"]),
    st.text(alphabet="'\"{} or=ax"),
)


@hypothesis.given(_HOSTILE, _HOSTILE)
def test_a_value_never_changes_the_condition(held, other):
    """A condition is evaluated as it is written, for any values of its variables."""
    values = {"a": held, "b": other}

    assert _holds("{{a}} == {{b}}", values=values) is (held == other)
    assert _holds("{{a}} == 'x'", values=values) is (held == "x")
    assert _holds("{{a}} == 'x' and {{b}} == 'y'", values=values) is (held == "x" and other == "y")
    assert _holds("{{a}} != 'x' or {{b}} == 'y'", "1.7", values) is (held != "x" or other == "y")


@hypothesis.given(st.text(alphabet="{}ab'\" =!<>()andortruefalse0.", max_size=60), st.sampled_from(["1.1", "1.7"]))
def test_any_text_is_a_condition_or_is_refused(text, version):
    """Any text is either a condition or refused."""
    try:
        condition = conditions.parse(text, version)
    except conditions.ConditionInvalid:
        return
    assert list(conditions.variables(condition))
