"""Layout: no name leads out of its folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.storage import layout


@given(st.text(max_size=400))
def test_a_text_becomes_a_name_in_its_folder(text: str) -> None:
    """Any text becomes a short, plain and visible name, which is its own name when it is asked for again."""
    name = layout.file_name(text)

    assert 0 < len(name.encode()) <= 200
    assert name.isascii()
    assert "/" not in name
    assert "\0" not in name
    assert not name.startswith(".")
    assert layout.file_name(name) == name


@given(st.from_regex(r"[A-Za-z0-9_#@+=,~\[\]-][A-Za-z0-9._#@+=,~\[\]-]{0,80}", fullmatch=True))
def test_a_safe_text_is_its_own_name(text: str) -> None:
    """A text that is a safe file name stays unchanged."""
    assert layout.file_name(text) == text


@given(st.text(max_size=300), st.text(max_size=300))
def test_different_texts_have_different_names(one: str, other: str) -> None:
    """Two names are equal only if one text is the other's name."""
    if layout.file_name(one) == layout.file_name(other):
        assert one == other or other == layout.file_name(one) or one == layout.file_name(other)


def test_a_long_name_keeps_its_ending() -> None:
    """The beginning and the ending of a long name, which people read first, are kept."""
    name = layout.file_name("a" * 500 + ".1.prompt.md")

    assert name.startswith("aaaa")
    assert name.endswith(".md")
    assert name != layout.file_name("a" * 501 + ".1.prompt.md")


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "a" * 65, "ü", "a\n", "a b", "\0", "latest"])
def test_an_invalid_run_id_is_not_found(run_id: str) -> None:
    """An invalid run id is not found, and reaches no path."""
    with pytest.raises(errors.NotFound):
        layout.run_folder(run_id)


def test_other_names_among_run_folders_are_skipped() -> None:
    """Other names among the run folders are skipped."""
    names = [".trash", ".new-a", ".room", "a b", "20260210T143000Z-abc123", "run_abc"]

    assert layout.run_ids(names) == ["20260210T143000Z-abc123", "run_abc"]
    assert layout.unfinished_folders(names) == ["runs/.new-a"]


def test_the_link_to_the_newest_run_is_skipped() -> None:
    """A list of the run folders skips the link to the newest run, which a command line keeps beside them."""
    assert layout.run_ids(["r1", "latest", ".trash", ".new-r2"]) == ["r1"]
