"""Task patterns: phrases and `/expressions/` of a recipe by which a task is routed to it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import re2

from app.domain import plain

MAX_CHARACTERS = 500  # Most characters of a pattern.


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """An occurrence of a pattern in a text."""

    length: int  # Characters that the pattern covers.
    parts: Mapping[str, str]  # Text that the expression's named groups match.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled pattern; matching takes time linear in the text."""

    source: str  # The pattern as written in the recipe.
    expression: Any = field(default=None, repr=False)  # Compiled expression; None for a phrase.

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the names of an expression's groups."""
        return tuple(self.expression.groupindex) if self.expression is not None else ()

    def match(self, text: str) -> Match | None:
        """Return the first occurrence in a text, regardless of case, or None."""
        if self.expression is None:
            occurs = self.source.casefold() in text.casefold()
            return Match(length=len(self.source), parts={}) if occurs else None
        found = self.expression.search(text)
        # A match without characters, such as a word boundary, would route every task.
        if found is None or not found.group():
            return None
        parts = {name: part for name, part in found.groupdict().items() if part is not None}
        return Match(length=found.end() - found.start(), parts=parts)


@functools.lru_cache(maxsize=1024)
def read(source: str) -> Pattern:
    """Read a pattern: `/…/` is a regular expression in the syntax of RE2, any other text a phrase.

    Raises:
        ValueError: it is blank, too long, or not an expression; the message has the reason.
    """
    if len(source) > MAX_CHARACTERS:
        raise ValueError(f"is longer than {MAX_CHARACTERS} characters")
    if not (len(source) > 1 and source.startswith("/") and source.endswith("/")):
        if not source.strip():
            raise ValueError("is blank, so it would match every task")
        return Pattern(source=source)
    compiled = expression(source[1:-1], letter_case=False)
    # A pattern that matches the empty text would match every task.
    if compiled.search("") is not None:
        raise ValueError("matches an empty text, so it would match every task")
    return Pattern(source=source, expression=compiled)


def expression(source: str, *, letter_case: bool = True) -> Any:
    """Compile a regular expression in the syntax of RE2.

    Raises:
        ValueError: it is not an expression; the message has the reason.
    """
    options = re2.Options()
    options.case_sensitive = letter_case
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is not a regular expression: {reason[:200]}") from error


def faults(schema: plain.Json, parts: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place of every `pattern` of a JSON Schema that cannot be used, and why."""
    for name, item in schema.items() if isinstance(schema, dict) else ():
        if name == "pattern" and isinstance(item, str):
            try:
                expression(item)
            except ValueError as error:
                yield (*parts, name), str(error)
        elif isinstance(item, dict):
            yield from faults(item, (*parts, name))
