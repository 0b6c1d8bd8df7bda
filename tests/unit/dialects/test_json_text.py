"""Tests of strict reading of JSON."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import json_text

# U+0000 is refused and lone surrogates are replaced, both on purpose.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


def _flaws(text):
    with pytest.raises(errors.InputRefused) as caught:
        json_text.read(text)
    return [(flaw.path, flaw.code) for flaw in caught.value.flaws]


@given(JSON)
def test_json_comes_out_as_it_went_in(value):
    """Every JSON value is read."""
    assert json_text.read(json.dumps(value)) == value


@given(st.text())
def test_any_text_is_read_or_refused(text):
    """Any text is either read or refused."""
    with contextlib.suppress(errors.InputRefused):
        json_text.read(text)


def test_every_flaw_of_a_json_text_has_its_path():
    """Repeated names, invalid numbers and NUL characters are found at any place."""
    text = '{"a": [{"x": 1, "x": 2}, NaN, {"b c": -1e400}], "\\u0000": 1, "d": "\\u0000", "x y": {"$ref": Infinity}}'

    assert set(_flaws(text)) == {
        ("$.a[0].x", "repeated_name"),
        ("$.a[1]", "bad_number"),
        ('$.a[2]["b c"]', "bad_number"),
        ('$["\\u0000"]', "nul_character"),
        ("$.d", "nul_character"),
        ('$["x y"].$ref', "bad_number"),
    }


def test_sixty_four_levels_are_read_and_no_more():
    """Exactly sixty-four levels are read; deeper texts are refused, however deep they are."""
    assert json_text.read("[" * 64 + "]" * 64)
    for depth in (65, 500, 200_000):
        assert [code for _, code in _flaws("[" * depth + "]" * depth)] == ["too_deep"]


def test_lone_surrogates_are_replaced():
    """A character that cannot be written as UTF-8 is replaced."""
    assert json_text.read('"a\\ud800b"') == "a?b"


def test_lone_surrogates_are_reported_if_not_replaced():
    """A caller that allows no replacement gets each place of a lone surrogate, in names and texts; pairs are valid."""
    with pytest.raises(errors.InputRefused) as refused:
        json_text.read('{"a": ["\\ud800", "\\ud83d\\ude00"], "\\udfff": "\\u00e9"}', exact=True)

    assert {(flaw.path, flaw.code) for flaw in refused.value.flaws} == {
        ("$.a[0]", "lone_surrogate"),
        ('$["?"]', "lone_surrogate"),
    }
    assert json_text.read('\ufeff"\\ud83d\\ude00"', exact=True) == "\U0001f600"


def test_many_flaws_are_cut_off():
    """The list of flaws stays short, however broken the text is."""
    assert len(_flaws("[" + "NaN," * 1000 + "NaN]")) == 50


def test_long_names_do_not_swell_the_answer():
    """Names in paths are shortened."""
    ((path, code),) = _flaws(json.dumps({"k" * 100_000: 1})[:-2] + "NaN}")

    assert code == "bad_number"
    assert len(path) < 100
