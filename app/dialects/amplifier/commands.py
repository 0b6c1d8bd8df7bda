"""Commands: a Bash script whose variables are read from its environment.

No value becomes a part of the text. The text names the variables: in double quotes where they were unquoted, and with
single quotes closed and reopened. A quoted here-document becomes one in which only the variables are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from app.dialects.amplifier import evaluation, templates
from app.dialects.amplifier.shell import HereDocument, Shell

MOST_CHARACTERS, MOST_VARIABLES = 32_768, 500
"""Largest size of a command with variables, so that parsing takes less than a second."""

_VALUE_NAME = "RECIPE_VALUE_{}"
_PLAIN, _SINGLE, _ANSI, _WITHIN = '"${{{}}}"', "'\"${{{}}}\"'", "'\"${{{}}}\"$'", "${{{}}}"
_DELIMITER = re.compile(r"[A-Za-z0-9_]+")
_EXPANDED = re.compile(r"[\\$`]")
_LEAVES = ("word", "extglob_pattern", "string_content", "string", "raw_string", "ansi_c_string")
_IN_TEXT = ("heredoc_body", "heredoc_content")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A variable that cannot be filled in at its place."""

    code: str  # Stable name of the reason.
    message: str  # Sentence with the variable, the place, the reason, and what to write instead.


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A command that reads its values from the environment."""

    text: str  # Script that Bash executes.
    names: Mapping[str, str]  # Environment variables, by the names that the recipe uses.


def problems(command: str) -> tuple[Problem, ...]:
    """Return each place where a variable would not reach the command literally."""
    return _read(command).problems


def filled(command: str) -> Filled:
    """Return a command that reads its values from the environment."""
    return _read(command).filled


def filled_as_first(command: str) -> Filled:
    """Return a command as the driver's first version built it: each variable inserted without regard to its context."""
    names = {
        name: _VALUE_NAME.format(number) for number, name in enumerate(dict.fromkeys(templates.names(command)), start=1)
    }
    text = templates.replaced(command, {name: _WITHIN.format(variable) for name, variable in names.items()})
    return Filled(text=text, names=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    filled: Filled
    problems: tuple[Problem, ...]


@lru_cache(maxsize=128)
def _read(command: str) -> _Reading:
    text, spots = _spotted(command)
    if not spots:
        return _Reading(filled=Filled(text=text, names={}), problems=())
    if len(text) > MOST_CHARACTERS or len(spots) > MOST_VARIABLES:
        most = f"{MOST_CHARACTERS} characters and {MOST_VARIABLES} variables"
        message = f"has more than {most}, the limit for one command; split the step, or use a file"
        return _Reading(filled=Filled(text=text, names={}), problems=(Problem(code="too_large", message=message),))
    shell = Shell(text, [spot for _, spot in spots])
    names, edits, found = dict[str, str](), list[tuple[int, int, str]](), list[Problem]()
    for name, (start, end) in spots:
        try:
            form = _form(shell, start, end)
        except evaluation.Unsafe as error:
            reason = str(error).replace("{{name}}", f"{{{{{name:.80}}}}}")
            message = f"{{{{{name:.80}}}}} in line {shell.line(start)} of the command {reason}"
            found.append(Problem(code=error.code, message=message))
            continue
        if form is not None:
            variable = names.setdefault(name, _VALUE_NAME.format(len(names) + 1))
            edits.append((start, end, form.format(variable)))
    for document in shell.documents:
        edits += _expanding(document, text, [spot for _, spot in spots])
    return _Reading(filled=Filled(text=_edited(text, edits), names=names), problems=tuple(found))


def _spotted(command: str) -> tuple[str, list[tuple[str, tuple[int, int]]]]:
    """Return the text of a command with escaped braces as braces, and the positions of its variables."""
    text, spots = "", list[tuple[str, tuple[int, int]]]()
    for piece, name in templates.split(command):
        if name is not None:
            spots.append((name, (len(text), len(text) + len(piece))))
        text += piece
    return text, spots


def _form(shell: Shell, start: int, end: int) -> str | None:
    """Return the replacement of a variable; None in a comment, where it is not replaced."""
    if start >= shell.trusted:
        line = shell.line(shell.trusted)
        message = (
            f'follows something in line {line} that cannot be read with certainty; put it into env and write "$NAME"'
        )
        raise evaluation.Unsafe(message)
    node = shell.at(start, end)
    if node is None or node.type == "comment":
        return None
    evaluation.check(shell, node)
    if shell.quoted(start, end):
        return _WITHIN
    if node.type not in (*_LEAVES, *_IN_TEXT):
        raise evaluation.Unsafe(evaluation.ELSEWHERE)
    if node.type == "raw_string":
        return _SINGLE
    if node.type == "ansi_c_string":
        if shell.masked[:start].endswith("\\c"):
            raise evaluation.Unsafe(evaluation.ELSEWHERE)
        return _ANSI
    if shell.in_double_quotes(node):
        return _WITHIN
    # Bash misreads an escaped sign before a quote if it parses a text twice, as in lists.
    if shell.masked[:start].endswith("$"):
        raise evaluation.Unsafe(evaluation.DOLLAR)
    return _PLAIN


def _expanding(document: HereDocument, text: str, spots: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    """Return the changes that convert a quoted here-document into one that expands only its variables."""
    begin, stop = document.body
    inside = [spot for spot in spots if begin <= spot[0] and spot[1] <= stop]
    if not document.quoted or not inside:
        return
    delimiter, number = document.delimiter, 0
    # A delimiter that needs quotes would prevent expansion, and one that is in the text would end it.
    while not _DELIMITER.fullmatch(delimiter) or (number and delimiter in text):
        number += 1
        delimiter = f"RECIPE_TEXT_{number}"
    yield (*document.start, delimiter)
    yield (*document.end, delimiter)
    for start, end in [*inside, (stop, stop)]:
        # Escape what the quotes protected from expansion.
        yield (begin, start, _EXPANDED.sub(r"\\\g<0>", text[begin:start]))
        begin = end


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    made, end = list[str](), 0
    for start, stop, by in sorted(edits):
        made += [text[end:start], by]
        end = stop
    return "".join((*made, text[end:]))
