"""Printing works on any terminal, and printed values cannot control one."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Callable

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors, printable
from app.cli import boundary, exit_codes, formats, gate_formats, terminal

GATE = """
gate_id run_id recipe_id key status asked_at expires_at default prompt decision by_default decided_at message
""".split()
ISSUE = """
issue_id status kind severity recipe_id run_id session_id key created_at closed_at revision title body
""".split()


def noted(text: str) -> dict[str, object]:
    """Return the parts of an issue that are lists."""
    return {"receipts": [text], "notes": [{"at": text, "status": text, "text": text}]}


FLAWED = {"valid": False, "target": "x"}


def failing(error: Exception) -> boundary.Program:
    """Return a program that ends with an error."""

    @click.command()
    def fail() -> None:
        raise error

    return boundary.Program(name="try", command=fail, usage=2, of_error=exit_codes.of_error)


def _verdict(found):
    return formats.verdict("x", found)


def printed_on_ascii(text: str | None = None, value: object = None) -> bytes:
    """Print on a terminal that supports only ASCII, and return the bytes that reached it."""
    written = io.BytesIO()
    screen = io.TextIOWrapper(written, encoding="ascii", write_through=True)
    with contextlib.redirect_stdout(screen):
        terminal.prepare()
        if text is not None:
            terminal.say(text)
        else:
            terminal.say_json(value)
    return written.getvalue()


def test_text_that_the_terminal_cannot_show_is_written_out():
    """A character outside the terminal's encoding is printed as an escape."""
    assert printed_on_ascii("Kael — arrives") == b"Kael \\u2014 arrives\n"


def test_json_reads_back_from_an_ascii_terminal():
    """JSON printed on an ASCII terminal can be read back."""
    value = {"name": "Ærendil — \x9b31m"}

    assert json.loads(printed_on_ascii(value=value)) == value


FORGING = ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]
"""Characters at which some program ends a line."""

STEERING = [
    "\x00", "\x07", "\x1b[2J", "\x1b]0;title\x07", "\x1bP+q\x1b\\", "\x9b2J", "\x9d8;;http://x\x9c", "\x7f", "\u061c",
    "\u200b", "\u200e", "\u202e", "\u2066", "\u2069", "\ufeff", "\U000e0041",
]  # fmt: skip
"""Characters that move the cursor, change the order of letters or are invisible."""


def printed(capsys: pytest.CaptureFixture[str], show: Callable[[], None]) -> str:
    """Return the text printed on either stream."""
    show()
    told = capsys.readouterr()
    return told.out + told.err


@pytest.mark.parametrize(
    "show",
    [
        terminal.say, terminal.warn, terminal.prompt, terminal.replace_line, lambda text: terminal.draw([text], over=0),
        lambda text: terminal.show(FLAWED | {"flaws": [{"path": "$", "message": text}]}, False, _verdict),
        lambda text: terminal.show({"name": text}, True, str),
        lambda text: terminal.show(dict.fromkeys(GATE, text) | {"options": [text]}, False, gate_formats.gate),
        lambda text: terminal.show(dict.fromkeys(ISSUE, text) | noted(text), False, formats.issue),
        lambda text: terminal.show({"run_id": text, "status": text, "reason": text}, False, formats.moved),
        lambda text: terminal.show({"recipe_id": "x", "reason": text, "initial_args": {}}, False, formats.routing),
        lambda text: boundary.execute(failing(errors.RequestInvalid(text)), []),
        lambda text: boundary.execute(failing(click.UsageError(text)), []),
        lambda text: boundary.execute(failing(OSError(text)), []),
    ],
)  # fmt: skip
def test_a_value_neither_steers_a_terminal_nor_begins_a_line(capsys, monkeypatch, show):
    """A printed value stays within its line and has no control characters, for every printing function."""
    monkeypatch.setattr(terminal, "_ERASE_LINE", "")

    for value in (*FORGING, *STEERING):
        told = printed(capsys, functools.partial(show, f"one{value}forged"))

        assert "forged" in told
        assert not any(line.startswith("forged") for line in told.splitlines()), value
        assert all(character == "\n" or character.isprintable() for character in told), value


def test_a_text_of_others_is_marked_where_a_person_watches(capsys, monkeypatch):
    """On a terminal each line of a reply has a mark in front; in a pipe the reply is unchanged."""
    reply = "one\n[orchestration] Exit: success\u2028go on with: rm\x1b[A\n"

    assert printed(capsys, lambda: terminal.say_reply(reply)) == reply + "\n"
    monkeypatch.setattr(terminal, "is_live", lambda: True)
    assert printed(capsys, lambda: terminal.say_reply(reply)) == (
        "| one\n| [orchestration] Exit: success\n| go on with: rm\\x1b[A\n\n"
    )


def test_a_line_to_be_replaced_fits_into_the_terminal(capsys, monkeypatch):
    """The line of an open step is cut to the width, since one that wraps would leave its first part behind."""
    monkeypatch.setenv("COLUMNS", "20")

    assert printed(capsys, lambda: terminal.replace_line("x" * 100)) == "\r\x1b[K" + "x" * 19


@given(st.text())
def test_json_of_any_text_reads_back(text: str):
    """JSON of any text is printed with printable characters only and reads back the same."""
    encoded = printable.as_json(json.dumps(text, ensure_ascii=False))

    assert json.loads(encoded) == text
    assert printable.visible(encoded) == encoded


@given(st.lists(st.tuples(st.text(), st.integers() | st.none()), max_size=5))
def test_table_is_one_line_a_row(rows: list[tuple[str, int | None]]):
    """A table has one line per row for any values."""
    assert len(formats.table(("name", "count"), rows).split("\n")) == len(rows) + 1
