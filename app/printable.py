"""Printable text: prints foreign text so that it cannot control a terminal, reorder letters, or fake a line of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

BEYOND_ASCII = r"\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
"""Members of a character class, also for other patterns: controls, line ends, direction marks, invisible characters."""

_TAGS = "\U000e0000-\U000e007f"
_STEERING = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f{BEYOND_ASCII}{_TAGS}]|\r(?!\n)")
_STEERING_IN_JSON = re.compile(rf"[{BEYOND_ASCII}{_TAGS}]")
_LINE_END = re.compile(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def visible(text: str) -> str:
    """Return a text with control, direction and invisible characters escaped; line feeds and tabs stay."""
    return _STEERING.sub(_written_out, text)


def one_line(text: str) -> str:
    """Return a text with the same characters and line feeds escaped."""
    return visible(text.replace("\r\n", "\n")).replace("\n", r"\n")


def block(lines: Iterable[str]) -> str:
    """Return own lines as one text; no value in them begins another line."""
    return "\n".join(map(one_line, lines))


def title(text: str) -> str:
    """Return a text on one line, without unprintable characters."""
    return " ".join(_STEERING.sub(" ", text).split())


def quoted(text: str) -> str:
    """Return a text of any number of lines, each after a mark that none of Control Room's own lines has."""
    return "\n".join(f"| {visible(line)}".rstrip() for line in lines(text.rstrip()))


def counted(count: int, word: str) -> str:
    """Return a count with its word, in the plural unless the count is one."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def amount(value: float) -> str:
    """Return an amount with separators, and with decimals only where it has some."""
    text = f"{value:,.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def dollars(value: float) -> str:
    """Return an amount in dollars with its cents, and with further decimals only where it has some."""
    whole, _, decimals = f"{value:,.9f}".rstrip("0").partition(".")
    return f"${whole}.{decimals:0<2}"


def clause(text: str) -> str:
    """Return a sentence without its full stop, so that other text can follow it."""
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends a sentence already."""
    return text if text.endswith((".", "?", "!", "…")) else f"{text}."


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names on one line: the first ones, and `…` if there are more."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def lines(text: str) -> list[str]:
    """Return the lines of a text, split at every character at which some program ends a line."""
    return _LINE_END.split(text)


def as_json(encoded: str) -> str:
    """Return equivalent JSON that displays safely: characters that could affect a terminal are escaped."""
    return _STEERING_IN_JSON.sub(lambda found: json.dumps(found.group())[1:-1], encoded)


def _written_out(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
