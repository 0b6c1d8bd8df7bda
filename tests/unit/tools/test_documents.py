"""Documents: front matter, headings, lists, fields and paragraphs with their lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools.story import documents

SCENE = """---
title: The Arrival
scene: 21
characters: [Kael, "Tamsin"]
plants:
  - the key
  - the bell
note: 'quoted'
empty:
---

# Scene 21: The Arrival

Dusk came early.
The rock was wet.

- Eyes: grey
* **Hand:** left
1. first
   and more

> A quotation.

```
# not a heading
Eyes: not a field
```

---

## Second ##
The end.
"""


def test_front_matter_holds_scalars_and_lists():
    """Front matter has scalars, bracketed lists and dashed lists, with the line of each name."""
    document = documents.parse(SCENE, path="s.md")

    assert document.front_matter == {
        "title": "The Arrival",
        "scene": "21",
        "characters": ("Kael", "Tamsin"),
        "plants": ("the key", "the bell"),
        "note": "quoted",
        "empty": "",
    }
    assert document.front_matter_lines["scene"] == 3
    assert document.body_line == 11


def test_scalars_and_entries_take_the_first_name_that_is_set():
    """A lookup by several names takes the first one that is set and not empty."""
    document = documents.parse(SCENE)

    assert document.scalar("empty", "scene") == "21"
    assert document.scalar("characters") == "Kael, Tamsin"
    assert document.scalar("nothing") is None
    assert document.entries("nothing", "plants") == ("the key", "the bell")
    assert document.entries("title") == ("The Arrival",)
    assert document.entries("nothing") == ()


def test_headings_have_level_text_and_line_and_code_has_none():
    """Headings have level, text and line, and headings inside code are ignored."""
    found = documents.headings(documents.parse(SCENE))

    assert [(heading.level, heading.text, heading.line) for heading in found] == [
        (1, "Scene 21: The Arrival", 12),
        (2, "Second", 31),
    ]


def test_fields_are_read_from_front_matter_and_body():
    """`Name: value` lines are fields in front matter and body, with or without list marks or bold type."""
    found = {field.name: (field.value, field.line) for field in documents.fields(documents.parse(SCENE))}

    assert found["eyes"] == ("grey", 17)
    assert found["hand"] == ("left", 18)
    assert found["scene"] == ("21", 3)
    assert "empty" in found


def test_items_know_their_depth_and_line():
    """Entries of lists with dash, star or number have depth and line."""
    found = documents.items(documents.parse("- a\n  - b\n3) c\n4. d\n-no\n"))

    assert [(item.depth, item.text, item.line) for item in found] == [
        (0, "a", 1),
        (2, "b", 2),
        (0, "c", 3),
        (0, "d", 4),
    ]


def test_blocks_are_paragraphs_and_list_entries():
    """Blocks are paragraphs and list entries; headings, rules and code are left out."""
    found = [(block.line, block.lines) for block in documents.blocks(documents.parse(SCENE))]

    assert found == [
        (14, ("Dusk came early.", "The rock was wet.")),
        (17, ("Eyes: grey",)),
        (18, ("**Hand:** left",)),
        (19, ("first", "and more")),
        (22, ("A quotation.",)),
        (32, ("The end.",)),
    ]


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_of_every_kind_give_the_same_document(end):
    """A file with any kind of line ends gives the same document with the same line numbers."""
    document = documents.parse(SCENE.replace("\n", end))

    assert document == documents.parse(SCENE)


@pytest.mark.parametrize(
    "text", ["", "\n", "   ", "---", "---\n---", "---\n", "\n---\na: b\n---\n", "---\nnever closed: yes\n"]
)
def test_odd_texts_are_documents_too(text):
    """Empty texts and unfinished front matter are documents without headings."""
    document = documents.parse(text, path="odd.md")

    assert document.body_line >= 1
    assert documents.headings(document) == []
    assert document.title == "odd"


def test_front_matter_must_be_closed_and_first():
    """Front matter must be at the beginning and closed; a rule further down does not open it."""
    assert documents.parse("---\na: b\n").front_matter == {}
    assert documents.parse("text\n---\na: b\n---\n").front_matter == {}
    assert documents.parse("---\na: b\n...\ntext").front_matter == {"a": "b"}


def test_deeper_yaml_is_left_out():
    """Nested maps and comments are left out, and the names around them are read."""
    document = documents.parse("---\n# a comment\na:\n  nested: 1\nb: 2 # two\n---\n")

    assert document.front_matter == {"a": "", "b": "2"}


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: T\nname: N\n---\n# H", "T"),
        ("---\nname: N\n---\n# H", "N"),
        ("# H\n## I", "H"),
        ("text", "SCN-x"),
        ("---\ntitle: [a, b]\n---\ntext", "SCN-x"),
    ],
)
def test_a_title_is_stated_or_the_first_heading_or_the_files_name(text, title):
    """A title comes from the front matter, the first heading or the file's name."""
    assert documents.parse(text, path="Story/SCN-x.md").title == title


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("Eyes: grey", "eyes", "grey"),
        ("**Lives in:** Varn", "lives_in", "Varn"),
        ("**Date of birth**: 3 March", "date_of_birth", "3 March"),
        ("Pays off:", "pays_off", ""),
        ("eye-colour:   blue", "eye_colour", "blue"),
        ("Größe: 1,80 m", "größe", "1,80 m"),
        ("When: 10:30", "when", "10:30"),
    ],
)
def test_a_field_is_a_name_a_colon_and_a_value(line, name, value):
    """Names of fields are lower case, with `_` between their words."""
    field = documents.field_of(line, 3)

    assert field is not None
    assert (field.name, field.value, field.line) == (name, value, 3)


@pytest.mark.parametrize("line", ["no colon", ": value", "http://example.org/x", "10:30", "a" * 60 + ": long", ""])
def test_other_lines_are_not_fields(line):
    """An address, a time of day and a sentence are not fields."""
    assert documents.field_of(line, 1) is None


def test_lists_are_split_at_commas_and_semicolons():
    """Lists are split at commas and semicolons, without blanks, brackets and quotation marks."""
    assert documents.split_list(' Kael, "Mira";  , [Tamsin] ') == ("Kael", "Mira", "Tamsin")
    assert documents.split_list("") == ()


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:-#*>`~ \n\r\t1.[]'\"—"), max_size=200))
def test_every_line_of_a_document_exists_in_its_text(text):
    """Any text can be read, and every line that the document names exists."""
    document = documents.parse(text, path="x.md")
    lines = len(document.lines)

    assert all(1 <= heading.line <= lines for heading in documents.headings(document))
    assert all(1 <= item.line <= lines for item in documents.items(document))
    assert all(1 <= field.line <= lines for field in documents.fields(document))
    for block in documents.blocks(document):
        assert 1 <= block.line <= block.line + len(block.lines) - 1 <= lines
