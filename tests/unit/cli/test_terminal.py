"""
What is printed survives any terminal, and steers none.
"""

from __future__ import annotations

import contextlib
import io
import json

from hypothesis import given
from hypothesis import strategies as st

from app.cli import formats, terminal


def printed_on_ascii(text: str | None = None, value: object = None) -> bytes:
    """
    Print on a terminal that knows only ASCII, and return what reached it.
    """
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
    """
    A character outside the terminal's encoding does not break the command.
    """
    assert printed_on_ascii("Kael — arrives") == b"Kael \\u2014 arrives\n"


def test_json_reads_back_from_an_ascii_terminal():
    """
    JSON stays JSON, whatever the encoding.
    """
    value = {"name": "Ærendil — \x9b31m"}

    assert json.loads(printed_on_ascii(value=value)) == value


@given(st.text())
def test_printed_text_holds_no_control_character(text: str):
    """
    What a recipe or an agent wrote cannot move the cursor or ring the bell.
    """
    cleaned = terminal.clean(text)

    assert all(character in "\n\t" or character.isprintable() or ord(character) > 0x9F for character in cleaned)


@given(st.lists(st.tuples(st.text(), st.integers() | st.none()), max_size=5))
def test_table_is_one_line_a_row(rows: list[tuple[str, int | None]]):
    """
    No value can break a table's row in two.
    """
    assert len(formats.table(("name", "count"), rows).split("\n")) == len(rows) + 1
