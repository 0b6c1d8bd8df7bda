"""The parts of a gate's prompt: text, JSON, tables and diffs, complete and bounded."""

from __future__ import annotations

import pytest

from app.services import gate_content

DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"


def cut(prompt: str) -> list[tuple[str, str]]:
    """Return kinds and texts."""
    return [(part.kind, part.text) for part in gate_content.parts(prompt)]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Ship it?", [("text", "Ship it?")]),
        ('{"a": 1}', [("json", '{"a": 1}')]),
        ("Look:\n" + DIFF, [("text", "Look:\n"), ("diff", DIFF)]),
        ("Look:\n```diff\n+a\n```\nSo?", [("text", "Look:\n"), ("diff", "+a\n"), ("text", "So?")]),
        ("```json\n[1]\n```\n", [("json", "[1]\n")]),
        ("```\nplain\n```\n", [("text", "plain\n")]),
        ("| a | b |\n| - | - |\n| 1 | 2 |\nOk?", [("table", "| a | b |\n| - | - |\n| 1 | 2 |\n"), ("text", "Ok?")]),
        ("```json\nnever closed", [("text", "```json\nnever closed")]),
        ("--- no diff", [("text", "--- no diff")]),
        ("{broken", [("text", "{broken")]),
        ("[" * 100_000, [("text", "[" * 100_000)]),
        ("", []),
    ],
)
def test_parts(prompt: str, expected: list[tuple[str, str]]) -> None:
    """Each form is recognised, and text that only resembles one stays text."""
    assert cut(prompt) == expected


def test_parts_are_bounded() -> None:
    """A long part is cut and marked, and too many parts end in one text without loss."""
    (long,) = gate_content.parts("x" * (gate_content.MOST_CHARACTERS + 1))
    many = gate_content.parts("".join(f"text {n}\n| a |\n| {n} |\n" for n in range(500)))

    assert (len(long.text), long.truncated) == (gate_content.MOST_CHARACTERS, True)
    assert len(many) == gate_content.MOST_PARTS
    assert "".join(part.text for part in many).count("text ") == 500
