"""Patterns of names: match one component of a POSIX glob.

`*` stands for any characters, `?` for one, `[a-z]`, `[!a-z]` and `[[:digit:]]` for one of a set; a backslash makes the
next character literal. The time of a match is proportional to the lengths of pattern and name, for every input.
"""

# `wcmatch` 12 accepts the same language, except for a backslash at the end. It does not fit: it promises no linear
# time, ignores classes that do not exist, and builds nested sets, of which Python warns that their meaning may change.

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}

_SOME = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wildcard:
    """A pattern that more than one name can match."""

    expression: re.Pattern[str]  # Expression that a name must match.
    says_dot: bool  # Whether it begins with a dot, which hidden names require.

    def fits(self, name: str) -> bool:
        """Return whether a name matches."""
        return (self.says_dot or not name.startswith(".")) and self.expression.fullmatch(name) is not None


def parse(pattern: str) -> str | Wildcard:
    """Return a pattern, or the only matching name if it has no wildcard."""
    pieces = list(_pieces(pattern))
    if all(literal is not None for literal, _ in pieces):
        return "".join(literal or "" for literal, _ in pieces)
    says_dot = pieces[0][0] == "."
    return Wildcard(
        expression=re.compile(_joined(expression for _, expression in pieces), re.DOTALL), says_dot=says_dot
    )


def _joined(expressions: Iterator[str]) -> str:
    first, *others = _between_stars(expressions)
    if not others:
        return first
    # A star matches as little as the next piece allows and does not backtrack: a longer match could not help the rest.
    middle = "".join(f"(?>.*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{middle}.*{others[-1]}"


def _between_stars(expressions: Iterator[str]) -> list[str]:
    parts = [""]
    for expression in expressions:
        if expression == _SOME:
            parts.append("")
        else:
            parts[-1] += expression
    return parts


def _pieces(pattern: str) -> Iterator[tuple[str | None, str]]:
    """Yield each piece: its literal character, None for a wildcard, and its expression."""
    position = 0
    while position < len(pattern):
        character, position = pattern[position], position + 1
        if character == "*":
            yield None, _SOME
        elif character == "?":
            yield None, "."
        elif character == "[" and (end := _end_of_set(pattern, position)) is not None:
            yield None, _set(pattern[position:end])
            position = end + 1
        else:
            if character == "\\" and position < len(pattern):
                character, position = pattern[position], position + 1
            yield character, re.escape(character)


def _end_of_set(pattern: str, begin: int) -> int | None:
    position = begin + (pattern[begin : begin + 1] in {"!", "^"})
    # A `]` at the beginning is a member of the set.
    position += pattern[position : position + 1] == "]"
    while position < len(pattern):
        if pattern[position] == "]":
            return position
        if pattern.startswith("[:", position) and (end := pattern.find(":]", position + 2)) != -1:
            position = end + 2
        else:
            position += 2 if pattern[position] == "\\" else 1
    return None


def _set(inside: str) -> str:
    is_negated = inside[0] in "!^"
    members = "".join(_members(inside[is_negated:]))
    if members:
        return f"[{'^' * is_negated}{members}]"
    return "." if is_negated else "(?!)"


def _members(inside: str) -> Iterator[str]:
    position = 0
    while position < len(inside):
        if inside.startswith("[:", position) and (end := inside.find(":]", position)) != -1:
            yield _class(inside[position + 2 : end])
            position = end + 2
            continue
        first, position = _member(inside, position)
        if inside[position : position + 1] == "-" and position + 1 < len(inside):
            last, position = _member(inside, position + 1)
            # As in a shell, a reversed range is empty.
            yield f"{re.escape(first)}-{re.escape(last)}" if first <= last else ""
        else:
            yield re.escape(first)


def _member(inside: str, position: int) -> tuple[str, int]:
    if inside[position] == "\\" and position + 1 < len(inside):
        position += 1
    return inside[position], position + 1


def _class(name: str) -> str:
    if name not in _CLASSES:
        raise ValueError(f"there is no class [:{name:.20}:] of characters")
    return _CLASSES[name]
