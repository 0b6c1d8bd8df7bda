"""Lines that a person types at a question."""

from __future__ import annotations

import pytest

from app.cli import asking

USUAL = ("approve", "deny")


@pytest.mark.parametrize(
    ("said", "options", "understood"),
    [
        ("approve", USUAL, ("approve", "")),
        ("  Deny  the tests are red \n", USUAL, ("deny", "the tests are red")),
        ("a", USUAL, ("approve", "")),
        ("y go on", USUAL, ("approve", "go on")),
        ("NO", USUAL, ("deny", "")),
        ("yes", ("yes", "no"), ("yes", "")),
        ("n", ("now", "never"), (None, "")),
        ("no", ("now", "never"), ("now", "")),
        ("y", ("red", "blue"), (None, "")),
        ("b", ("red", "blue"), ("blue", "")),
        ("now", ("now", "nowhere"), ("now", "")),
        ("", USUAL, (None, "")),
        ("   ", USUAL, (None, "")),
        ("perhaps", USUAL, (None, "")),
    ],
)
def test_a_line_names_an_option(said: str, options: tuple[str, ...], understood: tuple[str | None, str]) -> None:
    """The first word names an option, a unique beginning of one, or yes or no; the rest is the message."""
    assert asking.understood(said, options) == understood
