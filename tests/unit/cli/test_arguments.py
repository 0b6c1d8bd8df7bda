"""Arguments on a command line."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.cli import arguments, running

# Characters that a request must not contain are refused here, too.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


@given(NAMES, st.text())
def test_a_text_argument_is_taken_unchanged(name: str, text: str):
    """The value is the whole text after the first equals sign."""
    assert arguments.collect([f"{name}={text}"], None) == {name: text}


@given(NAMES, JSON)
def test_json_argument_reads_back(name: str, value: object):
    """`name:=JSON` gives the JSON value."""
    assert arguments.collect([f"{name}:={json.dumps(value)}"], None) == {name: value}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("scene", "NAME=VALUE"),
        ("=x", "name is missing"),
        (":=1", "name is missing"),
        ("n:=Kael", "write = instead of := for a text"),
        ("n:={", "not JSON"),
        ("n:=NaN", "not a number that JSON can represent"),
        ("n:=", "not JSON"),
        ("n:=" + "[" * 100_000, "nested more than 64 deep"),
        ('n:={"a": 1, "a": 2}', "$.a occurs more than once"),
        ('n:="\\u0000"', "U+0000"),
        ('n:=["\\ud800"]', "$[0] holds half of a surrogate pair"),
    ],
)
def test_an_unreadable_argument_is_refused_with_its_reason(text: str, told: str):
    """A malformed argument is refused with the reason."""
    with pytest.raises(errors.ArgsInvalid) as refused:
        arguments.collect([text], None)

    assert told in refused.value.flaws[0].message
    assert len(refused.value.flaws[0].message) < 300


def test_all_invalid_arguments_are_named():
    """Every unreadable or repeated argument is named."""
    with pytest.raises(errors.ArgsInvalid) as refused:
        arguments.collect(["a", "b:=?", "c=1", "c=2"], None)

    assert len(refused.value.flaws) == 3
    assert refused.value.flaws[2].code == "repeated"


def test_command_line_wins_over_the_file(tmp_path: Path):
    """An argument on the command line replaces that of the file."""
    file = tmp_path / "args.json"
    file.write_text('\ufeff{"scene": "old", "canon": ["a.md"]}', encoding="utf-8")

    assert arguments.collect(["scene=new"], file) == {"scene": "new", "canon": ["a.md"]}


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b'{"a": Infinity}', b'{"a": "\\ud800"}'])
def test_an_arguments_file_without_an_object_is_refused(tmp_path: Path, content: bytes):
    """A file of arguments that is not one JSON object is refused."""
    file = tmp_path / "args.json"
    file.write_bytes(content)

    with pytest.raises(errors.RequestInvalid):
        arguments.collect([], file)


def test_labels_are_texts():
    """The value of a label is text and may contain `=` and `:`."""
    assert arguments.labels(["book=one", "part=:=2"]) == {"book": "one", "part": ":=2"}


def test_labels_are_typed_in_two_ways_and_shown_in_one():
    """`NAME=TEXT` and `NAME:TEXT` are the same label, and lists show the first form."""
    assert arguments.labels(["book:one", "at=12:30", "url:a=b"]) == {"book": "one", "at": "12:30", "url": "a=b"}
    assert arguments.label_changes(["book:one-", "old-"]) == {"book": "one-", "old": None}
    assert arguments.label("book=one") == arguments.label("book:one") == "book:one"
    assert arguments.shown_label("at:12:30") == "at=12:30"


def test_a_change_of_a_label_is_refused_under_its_own_name():
    """The changes of `runs label` are not an option, so that their refusal names none."""
    with pytest.raises(errors.ArgsInvalid) as refused:
        arguments.label_changes(["book"])

    assert refused.value.message == "NAME=TEXT|NAME- cannot be read."
    with pytest.raises(errors.ArgsInvalid, match="--label"):
        arguments.label("book")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("scene-22", None),
        ("", "must be 1 to 255 printable characters of ASCII"),
        (" scene", "must be 1 to 255 printable characters of ASCII"),
        ("k" * 256, "must be 1 to 255 printable characters of ASCII"),
        ("plan:sp_a:1", "must not begin with child: or plan: or trigger:, which Control Room uses itself"),
    ],
)
def test_a_key_of_a_command_is_refused_as_that_of_a_request(key: str, told: str | None):
    """A command without a service accepts the same idempotency keys as the API."""

    @click.command()
    @arguments.repeatable("Shown.")
    def command(idempotency_key: str) -> None:
        click.echo(idempotency_key)

    done = CliRunner().invoke(command, ["--idempotency-key", key])

    assert (done.exit_code, told or key) == (2 if told else 0, told or done.output.strip())
    assert told is None or told in done.output


@pytest.mark.parametrize("words", [("--concurrency-limit", "1"), ("--concurrency-policy", "reject")])
def test_a_rule_of_concurrency_without_a_key_is_refused(words: tuple[str, str]):
    """A concurrency limit or policy without a key is refused before the command starts."""
    done = CliRunner().invoke(running.run, ["quick", *words])

    assert done.exit_code == 2
    assert f"{words[0]} belongs to --concurrency KEY" in done.output
