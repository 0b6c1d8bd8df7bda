"""Parsing the keys of steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.orchestrate import keys


@pytest.mark.parametrize(
    ("key", "step", "name", "outermost", "loops", "part"),
    [
        ("Build", "Build", "Build", "Build", (), ""),
        ("Build#2", "Build#2", "Build", "Build", (), ""),
        ("Build#2.files", "Build#2", "Build", "Build", (), "files"),
        ("Each.moved[3]", "Each", "Each", "Each", (), "moved[3]"),
        ("Each[3].Say", "Each[3].Say", "Say", "Each", (("Each", 3),), ""),
        ("Each#2[3].Say.when", "Each#2[3].Say", "Say", "Each", (("Each#2", 3),), "when"),
        ("A[0].B[12].C-1#4.read", "A[0].B[12].C-1#4", "C-1", "A", (("A", 0), ("A[0].B", 12)), "read"),
    ],
)
def test_a_key_is_parsed_into_loops_and_part(
    key: str, step: str, name: str, outermost: str, loops: tuple[tuple[str, int], ...], part: str
):
    """A key is parsed into step, visit, loops with indices, and part."""
    assert keys.read(key) == keys.Key(step=step, name=name, outermost=outermost, loops=loops, part=part)


@given(st.text(max_size=40))
def test_no_text_breaks_it(text: str):
    """Any text is parsed as a key."""
    found = keys.read(text)

    assert text.startswith(found.step)
    assert found.name is not None
