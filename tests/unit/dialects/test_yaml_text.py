"""Tests of strict reading of YAML 1.2 with JSON values only."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.dialects import yaml_text
from app.domain import json_text

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
# YAML limits the key of a flow mapping to 1,024 characters; JSON writes one character as up to twelve.
KEY = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=80).filter(lambda name: name != "<<")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3),
    max_leaves=10,
)
SYNTAX = st.text(st.sampled_from("ab1 \n\t-:?,[]{}&*!|>'\"%@`#~.<\\\r\ufeff\x85é"), max_size=60)


def _read(text):
    return yaml_text.read(text).value


def _flaws(text):
    with pytest.raises(errors.InputRefused) as caught:
        yaml_text.read(text)
    return [(flaw.path, flaw.code, flaw.line) for flaw in caught.value.flaws]


@given(JSON)
def test_json_is_yaml(value):
    """Every JSON value is read from its JSON text."""
    assert _read(json.dumps(value)) == value


@given(SYNTAX | st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    """Any text is read or refused, and every flaw has a line."""
    flaws: tuple[errors.Flaw, ...] = ()
    try:
        yaml_text.read(text)
    except errors.InputRefused as error:
        flaws = error.flaws

    assert all(flaw.line for flaw in flaws)


@given(st.binary(max_size=60))
def test_any_content_is_read_or_refused(content):
    """Any bytes are read or refused."""
    with contextlib.suppress(errors.InputRefused):
        yaml_text.read(content)


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "no", "y", "n", "On", "YES", "1_000", "1:30", "2026-01-31", "0b1", "="]
)
def test_words_of_older_yaml_are_texts(word):
    """A switch, a date or a number in base sixty of YAML 1.1 is a text, also as a name."""
    assert _read(f"{word}: {word}") == {word: word}


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("true", True),
        ("FALSE", False),
        ("012", 12),
        ("-7", -7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.10", 1.1),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.1.1", "1.1.1"),
        ("'true'", "true"),
        ('"1"', "1"),
        ('"\\ud83d\\ude00"', "😀"),
        ("|\n  x\n  y", "x\ny\n"),
        (">-\n  x\n  y", "x y"),
        ("<<", "<<"),
    ],
)
def test_scalars(scalar, value):
    """Plain scalars have the meaning of the core schema of YAML 1.2; quoted ones and blocks are texts."""
    found = _read(f"a: {scalar}\n")["a"]

    assert (type(found), found) == (type(value), value)


def test_lines():
    """A place has the line of its name or element; a missing place has the line of its parent."""
    document = yaml_text.read("a: 1\n\nb:\n  - x\n  -\n    c d: 1\n    e:\n      f: 2\n")

    assert [document.line_of(path) for path in ("$", "$.a", "$.b", "$.b[0]", '$.b[1]["c d"]', "$.b[1].e.f")] == [
        1, 1, 3, 4, 6, 8,
    ]  # fmt: skip
    assert [document.line_of(path) for path in ("$.b[7].x", "$.b[1].e.g", "$.zz", "nonsense")] == [3, 7, 1, 1]
    assert document.placed([errors.Flaw(path="$.b[1].e.g", message="is missing")])[0].line == 7


@given(JSON)
def test_every_place_has_its_line(value):
    """Paths with any names have the form that other parts of the program use."""
    document = yaml_text.read(f"\n\n{json.dumps([value])}")

    def places(item, parts):
        yield parts
        for part, below in (
            item.items() if isinstance(item, dict) else enumerate(item if isinstance(item, list) else ())
        ):
            yield from places(below, (*parts, part))

    assert {document.line_of(json_text.json_path(parts)) for parts in places([value], ())} == {3}


def test_aliases_are_copies():
    """An alias has the value of its anchor, and a change of one does not affect the other."""
    value = _read("a: &x {b: [1]}\nc: *x\nd: [*x, &y k]\n*y : 1\n")

    assert value == {"a": {"b": [1]}, "c": {"b": [1]}, "d": [{"b": [1]}, "k"], "k": 1}
    assert value["a"] is not value["c"]


def test_every_flaw_is_reported_with_path_and_line():
    """All flaws of single values are reported at once."""
    text = (
        'a: {x: 1, x: 2}\nb:\n  - .nan\n  - "\\0"\n  - -.INF\n  - 1e400\nc: !!str x\n1: y\n? [z]\n: !thing {}\n<<: {}\n'
        f"d: {'9' * 65}\n" + 'e: ["\\ud800", {"\\udc00\\ud83d": 1}]\n'
    )

    assert _flaws(text) == [
        ("$.a.x", "repeated_name", 1),
        ("$.b[0]", "bad_number", 3),
        ("$.b[1]", "nul_character", 4),
        ("$.b[2]", "bad_number", 5),
        ("$.b[3]", "bad_number", 6),
        ("$.c", "tag", 7),
        ("$", "name_not_text", 8),
        ("$", "name_not_text", 9),
        ('$["?"]', "tag", 10),
        ("$", "merge_key", 11),
        ("$.d", "bad_number", 12),
        ("$.e[0]", "lone_surrogate", 13),
        ("$.e[1]", "lone_surrogate", 13),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\n---\nb: 2\n", ("$", "several_documents", 2)),
        ("%YAML 1.1\n---\na: 1\n", ("$", "unsupported_version", 1)),
        ("a: *b\n", ("$.a", "unknown_alias", 1)),
        ("a:\n  &b\n  - *b\n", ("$.a[0]", "recursive_alias", 3)),
        ("a:\n\tb: 1\n", ("$", "syntax", 2)),
        ("a: 1\nb: c: d\n", ("$", "syntax", 2)),
        ("a: 'x\n", ("$", "syntax", 2)),
        ('a: 1\nb: "\\UFFFFFFFF"\n', ("$", "syntax", 2)),
        ("a: 1\nb: \x01\n", ("$", "bad_character", 2)),
        ("a: \ud800\n", ("$", "bad_character", 1)),
        (b"a: 1\nb: \xff\n", ("$", "not_utf8", 2)),
        ("a: 1".encode("utf-16"), ("$", "not_utf8", 1)),
        ("a: 1".encode("utf-32-be"), ("$", "bad_character", 1)),
        ("\ufeffa: 1".encode("utf-32-be"), ("$", "not_utf8", 1)),
    ],
)
def test_the_fault_that_ends_the_reading_has_its_line(text, told):
    """The fault that ends the reading of a text is reported with its line."""
    assert _flaws(text)[-1] == told


def test_a_tab_is_named():
    """A tab as indentation is reported as such, instead of the parser's message."""
    with pytest.raises(errors.InputRefused, match="not with tabs"):
        yaml_text.read("a:\n\tb: 1\n")


def test_the_mark_before_a_text_is_passed_over():
    """A UTF-8 byte order mark is not part of the text."""
    assert _read("\ufeffa: 1") == _read(b"\xef\xbb\xbfa: 1") == {"a": 1}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\n\n"])
def test_an_empty_text_is_null(text):
    """An empty text has the value null."""
    assert _read(text) is None


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "- " * 100_000, "{a: " * 60_000, "? " * 100_000, "&a [" * 1000],
    ids=["lists", "blocks", "mappings", "names", "anchors"],
)
def test_depth_is_bounded(text):
    """A text is refused at the same depth as a JSON text."""
    assert _flaws(text)[-1][1] == "too_deep"


def test_aliases_add_to_depth():
    """The levels of an alias are added at its place."""
    levels = "\n".join(f"a{level}: &a{level} [*a{level - 1}]" for level in range(1, 80))

    assert _flaws(f"a0: &a0 x\n{levels}\n")[-1][1:] == ("too_deep", 65)


def test_an_alias_bomb_is_refused():
    """Aliases of aliases are counted before they are expanded."""
    levels = "\n".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12))
    long = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 50)}]\n"

    assert _flaws(f"a0: &a0 x\n{levels}\n")[-1][1] == "too_large"
    assert _flaws(long)[-1][1:] == ("too_large", 2)


def test_size_is_bounded_before_parsing():
    """A text beyond the limit is not parsed at all."""
    assert _flaws("[" * (yaml_text.MAX_CHARACTERS + 1)) == [("$", "too_large", None)]
    assert _flaws(b"\xff" * (50 * 1024 * 1024)) == [("$", "too_large", None)]
    assert len(_read(f"a: {'x' * (yaml_text.MAX_CHARACTERS - 3)}")["a"]) == yaml_text.MAX_CHARACTERS - 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "The recipe is not valid: the text is empty"),
        ("# later\n---\n", "The recipe is not valid: the text is empty"),
        ("a:\n  x: 1\n  x: 2\n", "The recipe is not valid: $.a.x is given more than once in its mapping"),
    ],
)
def test_a_text_that_is_not_a_recipe(source: str, message: str) -> None:
    """The message names the place in the text, and says so if the text is empty."""
    with pytest.raises(errors.RecipeInvalid) as caught:
        yaml_text.valid(source, lambda _: [], "The recipe")

    assert caught.value.message == message


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("a: b: c\n", "; put a text that contains a colon and a blank in quotes"),
        ("a: @b\n", "; put a text that begins with this character in quotes"),
        ("- a: 1\n b: 2\n", "; compare the indentation, brackets and quotes of this line with those before it"),
    ],
)
def test_frequent_mistakes_are_explained(source: str, advice: str) -> None:
    """The parser's words are followed by what to do."""
    with pytest.raises(errors.InputRefused) as caught:
        yaml_text.read(source)

    assert caught.value.flaws[0].message.endswith(advice)
