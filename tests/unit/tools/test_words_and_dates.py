"""Dates, numbers and the matching of words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools.story import dates, matching


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 12 October 1893 it came", ["12 October 1893"]),
        ("on October 12, 1893, it came", ["12 October 1893"]),
        ("the 3rd of March", ["3 March"]),
        ("the twelfth of October", ["12 October"]),
        ("the twenty-first of June 1900", ["21 June 1900"]),
        ("1894-03-06 and 2 March", ["6 March 1894", "2 March"]),
        ("March the first", ["1 March"]),
        ("Twelfth of May", ["12 May"]),
        ("it may 12 times march 3 miles", []),
        ("32 October, 0 May, 1894-13-01", []),
        ("October 1893", []),
        ("", []),
    ],
)
def test_dates_are_read_as_stories_write_them(text, expected):
    """Dates are read in figures and words, in several orders; months only with a capital letter."""
    assert [str(date) for date in dates.find(text)] == expected


def test_bare_years_are_read_only_when_asked_for():
    """A year alone is a date only if bare years are requested."""
    assert dates.find("founded 1702") == []
    assert [str(date) for date in dates.find("founded 1702", bare_years=True)] == ["1702"]
    assert [str(date) for date in dates.find("12 October 1893", bare_years=True)] == ["12 October 1893"]


@pytest.mark.parametrize(
    ("one", "other", "contradicts"),
    [
        ("12 October 1893", "14 October", True),
        ("12 October 1893", "12 October", False),
        ("12 October 1893", "12 October 1894", True),
        ("12 October 1893", "1893", False),
        ("1702", "1703", True),
    ],
)
def test_dates_contradict_in_what_both_state(one, other, contradicts):
    """Dates contradict only in parts that both state."""
    first, second = (dates.find(text, bare_years=True)[0] for text in (one, other))

    assert first.contradicts(second) is contradicts
    assert second.contradicts(first) is contradicts


@pytest.mark.parametrize(
    ("one", "other", "before"),
    [
        ("3 March 1894", "4 March 1894", True),
        ("4 March 1894", "3 March 1894", False),
        ("3 March", "4 March", True),
        ("3 March", "4 March 1894", False),
        ("1893", "3 March 1894", True),
        ("1894", "3 March 1894", False),
        ("3 March 1894", "3 March 1894", False),
    ],
)
def test_a_date_is_before_another_only_if_that_is_certain(one, other, before):
    """A date is before another only if the parts that both state prove it."""
    first, second = (dates.find(text, bare_years=True)[0] for text in (one, other))

    assert first.is_before(second) is before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("34", 34),
        ("thirty-four", 34),
        ("Seventeen", 17),
        (" ninety ", 90),
        ("one", 1),
        ("x", None),
        ("", None),
        ("²", None),
    ],
)
def test_numbers_are_read_in_figures_and_words(text, value):
    """Numbers are read in figures and words, and other texts are not numbers."""
    assert dates.number(text) == value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("opens", "opened"), ("opening", "open"), ("keys", "key"), ("hides", "hidden"), ("planned", "planning"),
        ("carries", "carry"), ("dies", "dead"), ("gave", "gives"), ("looked", "look"), ("hoped", "hope"),
        ("lamp", "lamps"),
    ],
)  # fmt: skip
def test_forms_of_a_word_have_one_stem(one, other):
    """Forms of a word with common endings or irregular verbs have one stem."""
    assert matching.stem(one) == matching.stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("key", "keen"), ("rock", "rocket"), ("tower", "town"), ("ring", "rung bell")]
)
def test_different_words_keep_different_stems(one, other):
    """Different words that look alike have different stems."""
    assert matching.stem(one) != matching.stem(other)


def test_terms_are_distinct_words_without_stop_words():
    """Terms are folded words in order, without stop words and repetitions."""
    assert matching.terms("The Ärger of the árger: Kael's KEY, the key!") == ["arger", "kael", "key"]


def test_overlap_is_the_share_of_wanted_terms():
    """The overlap is the share of wanted terms that are found, and zero without wanted terms."""
    assert matching.overlap(["a", "b"], {"a", "c"}) == 0.5
    assert matching.overlap([], {"a"}) == 0.0


@settings(deadline=None)
@given(st.text(max_size=60))
def test_stemming_and_date_reading_take_any_text(text):
    """Stemming and date reading accept any text, and a stem is never empty."""
    assert all(matching.stem(token) for token in matching.tokens(text))
    dates.find(text, bare_years=True)
    dates.number(text)
