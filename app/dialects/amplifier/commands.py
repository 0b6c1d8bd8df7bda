"""
Commands: where in a text that bash reads a variable stands for nothing, or is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.dialects.amplifier import templates

_QUOTED = re.compile(r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"|\\.")
_LINE = re.compile(r"(?:^|[;&|({`\n]|\b(?:then|do|else|time)\b)[ \t]*(?:let|eval)[ \t][^\n]*")
_ORDER = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge)\s")


def problems(command: str) -> Iterator[tuple[str, str]]:
    """
    Return code and message of each place where a variable does not reach the command as the text that it is.
    """
    for found in _QUOTED.finditer(command):
        if found[0].startswith("'") and any(templates.names(found[0])):
            message = f"{found[0]:.80} is quoted so that the shell puts nothing in; use double quotes"
            yield "quoted_variable", message
    for text in _evaluated(command):
        if any(templates.names(text)):
            message = (
                f"{text:.80} is evaluated by bash, with what the value may hide; compare in a condition or with [ ]"
            )
            yield "evaluated_variable", message


def _evaluated(command: str) -> Iterator[str]:
    yield from _between(command, "((", "))")
    yield from (text for text in _between(command, "[[", "]]") if _ORDER.search(text))
    yield from (found[0] for found in _LINE.finditer(command))


def _between(command: str, opening: str, closing: str) -> Iterator[str]:
    begin = command.find(opening)
    while begin >= 0:
        end = command.find(closing, begin + len(opening))
        if end < 0:
            return
        yield command[begin : end + len(closing)]
        begin = command.find(opening, end + len(closing))
