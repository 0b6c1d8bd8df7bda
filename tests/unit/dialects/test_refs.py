"""Tests of references: how they are read and resolved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.control_room import refs

NAMES = st.text(st.characters(exclude_characters=".[]{}", exclude_categories=("C", "Z")), min_size=1, max_size=8)
STEPS = st.lists(NAMES | st.integers(0, 30), max_size=6)


def _text(root, steps):
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _around(steps, value):
    for step in reversed(steps):
        value = [*range(step), value] if isinstance(step, int) else {"other": 1, step: value}
    return value


@given(NAMES, STEPS)
def test_a_reference_is_read_as_it_is_written(root, steps):
    """Names and positions are returned in order."""
    reference = refs.read(_text(root, steps))

    assert (reference.root, list(reference.steps)) == (root, steps)


@given(NAMES, STEPS, st.integers() | st.text() | st.booleans() | st.just([]) | st.just({}))
def test_a_reference_leads_to_the_value_at_its_place(root, steps, value):
    """Any value is found, including empty ones."""
    assert refs.follow(refs.read(_text(root, steps)), _around(steps, value)) == value


@given(NAMES, STEPS, STEPS)
def test_a_null_breaks_a_reference_at_its_segment(root, before, after):
    """A null as the value or on the way is reported with its exact segment."""
    text = _text(root, [*before, *after])
    with pytest.raises(refs.BrokenReference) as caught:
        refs.follow(refs.read(text), _around(before, None))

    assert caught.value.detail["ref"] == text
    assert caught.value.detail["segment"] == _text(root, before)


@given(NAMES, st.lists(NAMES | st.integers(0, 30), min_size=1, max_size=5), st.data())
def test_a_missing_part_breaks_a_reference_at_its_segment(root, steps, data):
    """The first missing segment is named, not the last."""
    cut = data.draw(st.integers(0, len(steps) - 1))
    value = _around(steps[:cut], [] if isinstance(steps[cut], int) else {})
    with pytest.raises(refs.BrokenReference) as caught:
        refs.follow(refs.read(_text(root, steps)), value)

    assert caught.value.detail["segment"] == _text(root, steps[: cut + 1])


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    """Reading any text either raises ValueError or returns a reference that is written in the same way."""
    try:
        reference = refs.read(text)
    except ValueError:
        return

    assert _text(reference.root, reference.steps).replace("0", "") == text.replace("0", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "[0]",
        "a[",
        "a[]",
        "a[-1]",
        "a[x]",
        "a[0]b",
        "a[*]",
        "a.b[?(@.c)]",
        "$..a",
        "a" * 501,
        "a[12345678901]",
        "a b .c",
        "a. b",
        "{{a}}",
        "a\x00b",
        "a[٣]",
    ],
)
def test_no_expressions(text):
    """JSONPath, and negative, foreign or huge positions, are refused."""
    with pytest.raises(ValueError, match=r".+"):
        refs.read(text)


@pytest.mark.parametrize(
    ("text", "source", "arg"),
    [
        ("task.description", "task.description", None),
        ("task.args", "task.args", None),
        ("task.args.scene_path", "task.args", "scene_path"),
        ("task.initial_args.scene_path[0]", "task.args", "scene_path"),
        ("task.run_id", "task.run_id", None),
        ("discovery.matches[0].path", "discovery", None),
        ("args.x", "args", None),
    ],
)
def test_sources_as_journal_lines_name_them(text, source, arg):
    """`args` and `initial_args` are one source; a slot's source is its name."""
    assert refs.read(text).source == source
    assert refs.read(text).arg == arg


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5).filter(lambda name: name != "$ref"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_values_without_references_pass_unchanged(value):
    """Literal values are unchanged."""
    assert list(refs.found_in(value)) == []
    assert refs.replaced(value, {}) == value


@given(st.lists(JSON, max_size=4), JSON)
def test_references_at_any_place_are_replaced(items, value):
    """Each `$ref` object is found with its place and replaced by its value, which is not searched again."""
    inside = {"a": [*items, {"$ref": "x"}], "b": {"c": {"$ref": "y"}}}
    found = {place: item["$ref"] for place, item in refs.found_in(inside)}

    assert found == {("a", len(items)): "x", ("b", "c"): "y"}
    assert refs.replaced(inside, {"x": value, "y": {"$ref": "x"}}) == {"a": [*items, value], "b": {"c": {"$ref": "x"}}}


def test_half_a_character_breaks_a_reference_into_a_text():
    """A text with half of a surrogate pair is not read as JSON; runs of the first version keep their reading."""
    reference, text = refs.read("report.x"), '{"x": "\\ud800"}'
    with pytest.raises(refs.BrokenReference) as caught:
        refs.parsed(reference, text, 2)

    assert caught.value.detail["problem"] == "the text holds half of a surrogate pair"
    with pytest.raises(refs.BrokenReference, match=r"\$\.x holds half of a surrogate pair"):
        refs.parsed(reference, text, refs.WORDING_VERSION)
    assert refs.parsed(reference, text, 1) == {"x": "?"}
