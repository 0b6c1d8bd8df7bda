"""What programs write while they work, as the words of their agents."""

from __future__ import annotations

import json

from app.agents.programs import hearing


def heard(*parts: tuple[int, bytes, int]) -> str:
    """Return what is heard of an output's parts."""
    told: list[str] = []
    ear = hearing.Hearing(told.append)
    for part in parts:
        ear.feed(*part)
    return "".join(told)


def test_the_words_of_an_agent_are_told() -> None:
    """Texts within the JSON of an event stand alone; other lines are told as they are, at most so long."""
    said = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "Looking."}]}})
    other = json.dumps({"type": "tool", "name": "x" * 10_000})
    told = heard((1, f"{said}\n{other}\nplain\n".encode(), 0)).splitlines()

    assert told[0] == "Looking."
    assert len(told[1]) == hearing.MOST_LINE
    assert told[2] == "plain"


def test_lines_are_whole() -> None:
    """An event that comes in parts is understood when it is whole; errors are told at once."""
    line = json.dumps({"text": "ünd"}, ensure_ascii=False).encode() + b"\n"
    cut = line.index("ü".encode()) + 1

    assert heard((1, line[:cut], 0), (2, b"warn", 0), (1, line[cut:], 0)) == "warnünd\n"


def test_a_gap_is_told() -> None:
    """Behind bytes that were left out the next whole line is the first."""
    assert heard((1, b"begin", 0), (1, b"rest\nnext\n", 7)) == "[output left out here]\nnext\n"


def test_hostile_events_are_lines() -> None:
    """Deep nesting, wrong types and broken JSON are shown as they are."""
    deep = b'{"a":' * 100 + b"1" + b"}" * 100

    assert heard((1, deep + b"\n", 0)) == f"{deep.decode()}\n"
    assert heard((1, b'{"text": 5}\n[1]\n{"text"\n', 0)) == '{"text": 5}\n[1]\n{"text"\n'
