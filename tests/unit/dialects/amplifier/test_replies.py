"""Tests of replies: which are data, and which remain text."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from app.dialects.amplifier import replies

PROSE = 'Here it is:\n\n```json\n{"severity": "high"}\n```\n\nThat is all.'


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"severity": "high"}', {"severity": "high"}),
        (' \n["a.py", "b.py"]\n', ["a.py", "b.py"]),
        ('```json\n{"x": 1}\n```', {"x": 1}),
        ("```\n[1, 2]\n```\n", [1, 2]),
        (PROSE, PROSE),
        ("Fine.", "Fine."),
        ("", ""),
        ("42", "42"),
        ("true", "true"),
        ('"quoted"', '"quoted"'),
        ('{"x": 1', '{"x": 1'),
        ('{"x": 1, "x": 2}', '{"x": 1, "x": 2}'),
        ("{'x': 1}", "{'x': 1}"),
        ('```json\n{"x": 1}\n```\n```json\n{"y": 1}\n```', '```json\n{"x": 1}\n```\n```json\n{"y": 1}\n```'),
        ('```python\n{"x": 1}\n```', '```python\n{"x": 1}\n```'),
    ],
)
def test_a_reply_that_is_json_is_data(said, expected):
    """A whole reply that is an object or a list, fenced or not, is data; any other is text."""
    assert replies.read(said, None) == expected


HALF = '{"x": "\\ud800"}'


@pytest.mark.parametrize("said", [HALF, f"```json\n{HALF}\n```", f"Here: {HALF}"])
def test_half_a_character_is_not_json(said):
    """JSON with half of a surrogate pair is text, and a fault if JSON is required; version 1 replaced the half."""
    assert replies.read(said, None) == said
    with pytest.raises(replies.NoData) as refused:
        replies.read(said, True)

    assert refused.value.code == "not_json"
    assert replies.read(said, True, version=1) == {"x": "?"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (PROSE, {"severity": "high"}),
        ('The answer is {"x": [1, 2]} as you see.', {"x": [1, 2]}),
        ("I looked at [them] and found [1, 2].", [1, 2]),
        ("42", 42),
        ("false", False),
        ("null", None),
        ('{"x": 1}', {"x": 1}),
    ],
)
def test_json_is_looked_for(said, expected):
    """With `parse_json: true` JSON is found among words, a fenced block first, and may be any value."""
    assert replies.read(said, True) == expected


@pytest.mark.parametrize(
    "said",
    [
        '{"verdict": "bad", "issues": [{"id": 1}, {"id": 2',
        '{"a": {"b": 1}, "c": [1, 2],}',
        '{"a": {"b": 1} "c": [1, 2]}',
        '{"note": "first [1, 2] and then',
        '{"a": NaN, "b": {"c": 1}}',
    ],
)
def test_parts_of_broken_json_are_not_the_reply(said):
    """If a reply breaks off or its JSON has a fault, no smaller object in it is taken for the whole."""
    with pytest.raises(replies.NoData, match="no valid JSON"):
        replies.read(said, True)


@pytest.mark.parametrize("said", ["Fine.", "", "[them]", "{x}", "[" * 5000])
def test_json_that_must_be_there(said):
    """With `parse_json: true` a reply without JSON is refused."""
    with pytest.raises(replies.NoData):
        replies.read(said, True)


@hypothesis.given(st.text())
def test_text_stays_text(said):
    """With `parse_json: false` a reply always stays text."""
    assert replies.read(said, False) == said
    assert replies.read('{"x": 1}', False) == '{"x": 1}'


@pytest.mark.parametrize("piece", ["{", '{"', "[1,", '["a" ', '{"a":1 x', "[ "])
def test_openings_without_end_are_given_up(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many brackets open, the search for JSON reads the text a bounded number of times."""
    read: list[int] = []

    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            read.append(idx)
            return super().raw_decode(s, idx)

    monkeypatch.setattr(json, "JSONDecoder", Decoder)
    text = piece * 20_000

    with pytest.raises(replies.NoData):
        replies.read(text, True)
    assert sum(read) < 200 * len(text)


def test_links_among_words_hide_no_json() -> None:
    """JSON behind a thousand bracketed links is found."""
    text = "see [[a link]] " * 1_000 + '{"score": 3}'

    assert replies.read(text, True) == {"score": 3}
