"""Tests of printable text: sentences and counts."""

from __future__ import annotations

import pytest

from app import printable


@pytest.mark.parametrize(
    ("text", "clause", "sentence"),
    [
        ("it is null", "it is null", "it is null."),
        ("It is null.", "It is null", "It is null."),
        ("did you mean fix?", "did you mean fix?", "did you mean fix?"),
        ("and so on...", "and so on...", "and so on..."),
        ("and so on…", "and so on…", "and so on…"),
        ("", "", "."),
    ],
)
def test_texts_are_joined_with_one_full_stop(text: str, clause: str, sentence: str) -> None:
    """A clause can be followed by other text, and a sentence ends once."""
    assert (printable.clause(text), printable.sentence(text)) == (clause, sentence)


def test_only_one_is_singular() -> None:
    """Zero and more are plural."""
    assert [printable.counted(count, "issue") for count in (0, 1, 2)] == ["0 issues", "1 issue", "2 issues"]
