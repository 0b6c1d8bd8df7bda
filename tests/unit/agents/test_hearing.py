"""The output of programs while they work, as the words of their agents."""

from __future__ import annotations

import json
import os

import pytest

from app.agents.programs import executables, hearing


def extracted_text(*parts: tuple[int, bytes, int]) -> str:
    """Return the text heard from parts of an output."""
    told: list[str] = []
    ear = hearing.Hearing(told.append)
    for part in parts:
        ear.feed(*part)
    return "".join(told)


def test_the_text_of_a_json_event_is_extracted() -> None:
    """The text within a JSON event is extracted; other lines are passed on, cut to a maximum length."""
    said = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "Looking."}]}})
    other = json.dumps({"type": "tool", "name": "x" * 10_000})
    told = extracted_text((1, f"{said}\n{other}\nplain\n".encode(), 0)).splitlines()

    assert told[0] == "Looking."
    assert len(told[1]) == hearing.MOST_LINE
    assert told[2] == "plain"


def test_lines_are_whole() -> None:
    """An event that arrives in parts is read when it is complete; standard error is passed on at once."""
    line = json.dumps({"text": "ünd"}, ensure_ascii=False).encode() + b"\n"
    cut = line.index("ü".encode()) + 1

    assert extracted_text((1, line[:cut], 0), (2, b"warn", 0), (1, line[cut:], 0)) == "warnünd\n"


def test_a_part_of_a_line_is_a_sign_of_life() -> None:
    """Output without a newline is heard, although its text waits for the rest of the line."""
    told: list[str] = []
    ear = hearing.Hearing(told.append)
    ear.feed(1, b".", 0)

    assert told == [""]


def test_a_gap_leaves_a_notice() -> None:
    """After omitted bytes, the text has a notice and continues with the next whole line."""
    assert extracted_text((1, b"begin", 0), (1, b"rest\nnext\n", 7)) == "[output left out here]\nnext\n"


def test_hostile_events_are_lines() -> None:
    """Deeply nested, mistyped and broken JSON is passed on unchanged."""
    deep = b'{"a":' * 100 + b"1" + b"}" * 100

    assert extracted_text((1, deep + b"\n", 0)) == f"{deep.decode()}\n"
    assert extracted_text((1, b'{"text": 5}\n[1]\n{"text"\n', 0)) == '{"text": 5}\n[1]\n{"text"\n'


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_a_mark_is_decoded(encoding: str) -> None:
    """An output in UTF-16 that begins with a byte order mark is read as text, wherever it is cut."""
    content = '\ufeff{"text": "\u00fcnd"}\nplain \U0001f600\n'.encode(encoding)
    whole = (
        *((1, content[at : at + 7], 0) for at in range(0, len(content), 7)),
        (2, "\ufeffw\u00e4rn".encode(encoding), 0),
    )
    gap = content[: content.index(b"n")], content[content.index(b"n") + 3 :]

    assert extracted_text(*whole) == "\u00fcnd\nplain \U0001f600\nw\u00e4rn"
    assert extracted_text((1, gap[0], 0), (1, gap[1], 3)).endswith("plain \U0001f600\n")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-8"])
def test_a_line_without_end_comes_in_parts(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without end is not taken into memory as one."""
    monkeypatch.setattr(executables, "_LINE_BYTES", 8)
    outlet = executables.Outlet()
    os.write(outlet.writing, "\ufeffaaaaaaaaaaaa\nb\n".encode(encoding))
    os.close(outlet.writing)
    lines = list(outlet.lines())
    outlet.close()

    assert b"".join(lines).decode("utf-8-sig") == "aaaaaaaaaaaa\nb\n"
    assert max(len(line) for line in lines) == 8


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_the_lines_of_an_output_are_utf_8(encoding: str) -> None:
    """The lines of an output with a byte order mark are those of its text in UTF-8."""
    outlet = executables.Outlet()
    os.write(outlet.writing, '\ufeff{"text": "\u00fcnd"}\n\u4e0a\u0a0a\nlast'.encode(encoding))
    os.close(outlet.writing)
    lines = list(outlet.lines())
    outlet.close()

    assert [line.decode("utf-8-sig") for line in lines] == ['{"text": "\u00fcnd"}\n', "\u4e0a\u0a0a\n", "last"]
