"""Patterns of names: one component of a POSIX glob.

`*` stands for any characters, `?` for one, `[a-z]`, `[!a-z]` and `[[:digit:]]` for one of a set; a backslash takes the
meaning from what follows it. Matching takes time in proportion to pattern and name, whatever they are.
"""

# `wcmatch` 12 reads the same language but for a backslash at the end. It does not fit: it promises no linear time,
# passes over classes that do not exist, and builds nested sets, of which Python warns that their meaning may change.

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
    """A pattern that more than one name can fit."""

    expression: re.Pattern[str]  # What a name must be.
    says_dot: bool  # Whether it begins with a dot, which a hidden name needs.

    def fits(self, name: str) -> bool:
        """Return whether a name fits."""
        return (self.says_dot or not name.startswith(".")) and self.expression.fullmatch(name) is not None


def parse(pattern: str) -> str | Wildcard:
    """Return the one name that fits, or a pattern."""
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
    # A star takes as little as the next piece lets it and never tries again: more could not help the rest.
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
    """Yield each piece: the character that it stands for, None where there are several, and its expression."""
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
    # At the beginning it is one of the set.
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
            # As in a shell, a range that runs backwards contains nothing.
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
