"""The output of programs while they work, as the words of their agents."""

from __future__ import annotations

import json

from app.agents.programs import hearing


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


def test_a_gap_leaves_a_notice() -> None:
    """After omitted bytes, the text has a notice and continues with the next whole line."""
    assert extracted_text((1, b"begin", 0), (1, b"rest\nnext\n", 7)) == "[output left out here]\nnext\n"


def test_hostile_events_are_lines() -> None:
    """Deeply nested, mistyped and broken JSON is passed on unchanged."""
    deep = b'{"a":' * 100 + b"1" + b"}" * 100

    assert extracted_text((1, deep + b"\n", 0)) == f"{deep.decode()}\n"
    assert extracted_text((1, b'{"text": 5}\n[1]\n{"text"\n', 0)) == '{"text": 5}\n[1]\n{"text"\n'
