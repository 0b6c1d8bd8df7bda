"""Globs: which paths of a workspace a pattern fits (workflow-dsl, file dependencies).

Names are matched component by component, and every folder on the way is entered as every other path is: from the root,
held open, never out of the workspace. A link that a pattern fits is a match if it leads to something inside, no match
if it leads nowhere, and refused if it leads out.
"""

# The standard library's `glob` resolves paths by name: it follows links out of the workspace, and a folder can
# become a link between check and use. `**` is rejected: what looks recursive and is not finds too little without
# notice.

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app import errors
from app.tools import failures
from app.tools.confinement import Descent, components
from app.tools.reserved import Root

MOST_PATHS = 100_000
"""Paths that one pattern may fit."""

_Parts = tuple[str, ...]


def fitting(root: Root | Path, pattern: str) -> list[str]:
    """Return the files, folders and whatever else a pattern fits, in the order of the bytes of their paths.

    A pattern that ends with a slash fits folders only. Names that are not UTF-8 are left out.

    Raises:
        errors.ToolFailed: `invalid_pattern`, `path_outside_workspace`, `too_many_files`, `workspace_missing`, or
            `file_unreadable` where no wildcard has led to the folder that cannot be read.
    """
    return sorted(("/".join(parts) or "." for parts in _Search(root, pattern).found()), key=str.encode)


class _Entry(NamedTuple):
    name: str
    is_link: bool
    is_folder: bool


class _Search:
    def __init__(self, root: Root | Path, pattern: str) -> None:
        self._root = root
        self._pattern = pattern
        self._names = _names(pattern)
        self._only_folders = pattern.endswith("/")

    def found(self) -> Iterable[_Parts]:
        reached: list[_Parts] = [()]
        is_named, is_listed = True, False
        for position, name in enumerate(self._names):
            is_listed = isinstance(name, Wildcard)
            if isinstance(name, Wildcard):
                is_last = position + 1 == len(self._names)
                reached = self._entries(reached, name, is_named=is_named, is_last=is_last)
                is_named = False
            else:
                reached = [(*parts, name) for parts in reached]
        return reached if is_listed else [parts for parts in reached if self._leads(parts, is_named=is_named)]

    def _entries(self, reached: Iterable[_Parts], name: Wildcard, *, is_named: bool, is_last: bool) -> list[_Parts]:
        found: list[_Parts] = []
        for parts in reached:
            for entry in self._listed(parts, name, is_named=is_named, is_last=is_last):
                if not is_last or not entry.is_link or self._leads((*parts, entry.name), is_named=False):
                    found.append((*parts, entry.name))
                if len(found) > MOST_PATHS:
                    raise failures.too_many(self._pattern, MOST_PATHS)
        return found

    def _listed(self, parts: _Parts, name: Wildcard, *, is_named: bool, is_last: bool) -> list[_Entry]:
        """Return the entries of a folder that fit; of those that the path goes through, what may be a folder."""
        found: list[_Entry] = []
        with Descent(self._root, "/".join(parts)) as descent:
            try:
                descent.enter(parts)
                for entry in _fitting(descent, name):
                    if entry.is_link or entry.is_folder or (is_last and not self._only_folders):
                        found.append(entry)
                    if len(found) > MOST_PATHS:
                        raise failures.too_many(self._pattern, MOST_PATHS)
            except (errors.ToolFailed, OSError) as error:
                _let_pass(parts, error, is_named=is_named)
        return found

    def _leads(self, parts: _Parts, *, is_named: bool) -> bool:
        with Descent(self._root, "/".join(parts)) as descent:
            try:
                mode = descent.status(parts).st_mode
            except errors.ToolFailed as failure:
                _let_pass(parts, failure, is_named=is_named)
                return False
        return stat.S_ISDIR(mode) or not self._only_folders


_FAILING = ("EIO", "ESTALE", "ETIMEDOUT")


def _names(pattern: str) -> Sequence[str | Wildcard]:
    if not pattern.strip():
        raise failures.invalid_pattern(pattern, "it is blank")
    if "**" in pattern.split("/"):
        raise failures.invalid_pattern(pattern, "** is not supported")
    if not _is_text(pattern):
        raise failures.invalid_pattern(pattern, "it holds half a surrogate pair")
    names: list[str | Wildcard] = []
    for part in components(pattern):
        try:
            name = parse(part)
        except ValueError as error:
            raise failures.invalid_pattern(pattern, str(error)) from None
        # Without its backslashes a name may be one that must not be there.
        names += components(f"./{name}") if isinstance(name, str) else [name]
    return names


def _fitting(descent: Descent, wanted: Wildcard) -> Iterator[_Entry]:
    with os.scandir(descent.folder) as entries:
        for entry in entries:
            if wanted.fits(entry.name) and _is_text(entry.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                if not descent.hides(entry.name, is_folder=is_folder):
                    yield _Entry(entry.name, entry.is_symlink(), is_folder)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _let_pass(parts: _Parts, error: errors.ToolFailed | OSError, *, is_named: bool) -> None:
    """Let it pass that a path leads nowhere, or that a folder cannot be read which only a wildcard has led to."""
    failure = error if isinstance(error, errors.ToolFailed) else failures.of_system("/".join(parts), error)
    if isinstance(failure, errors.Fault):
        raise failure
    if failure.code == "file_not_found":
        return
    if is_named or failure.code != "file_unreadable" or failure.detail.get("errno") in _FAILING:
        raise failure


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

    expression: re.Pattern[str]
    """What a name must be."""
    says_dot: bool
    """Whether it begins with a dot, which a hidden name needs."""

    def fits(self, name: str) -> bool:
        """Return whether a name fits."""
        return (self.says_dot or not name.startswith(".")) and self.expression.fullmatch(name) is not None


def parse(pattern: str) -> str | Wildcard:
    """Return the one name that fits, or a pattern.

    Raises:
        ValueError: it names a class of characters that there is not.
    """
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
