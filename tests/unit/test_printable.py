"""Tests of printable text: sentences, counts and amounts."""

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


@pytest.mark.parametrize(
    ("value", "amount", "dollars"),
    [
        (0, "0", "$0.00"),
        (1_234_567, "1,234,567", "$1,234,567.00"),
        (0.035, "0.035", "$0.035"),
        (0.1 + 0.2, "0.3", "$0.30"),
        (2_592_000.5, "2,592,000.5", "$2,592,000.50"),
        (0.0000004, "0", "$0.0000004"),
    ],
)
def test_an_amount_is_neither_rounded_nor_shortened(value: float, amount: str, dollars: str) -> None:
    """An amount has all its digits, separators for readers, and no error of binary fractions."""
    assert (printable.amount(value), printable.dollars(value)) == (amount, dollars)
