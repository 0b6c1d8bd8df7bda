"""Texts of issues: the form of titles, bodies, notes and kinds that a person gives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app import errors, printable

TITLE_CHARACTERS = 200  # Longest title.

TITLE_PATTERN = (
    rf"^[^\x00-\x1f{printable.BEYOND_ASCII}]*[^\x00-\x20{printable.BEYOND_ASCII}][^\x00-\x1f{printable.BEYOND_ASCII}]*$"
)
"""Form of a title: one line that is not blank."""

BODY_CHARACTERS = 20_000  # Longest body.
NOTE_CHARACTERS = 10_000  # Longest note.
KIND_PATTERN = r"^[a-z0-9][a-z0-9_.-]{0,63}$"  # Form of a kind: a word.


def flaws(title: str | None, body: str | None, note: str | None, kind: str | None) -> Iterator[errors.Flaw]:
    """Yield the flaws of an issue's texts; None is not checked."""
    if title is not None and not (len(title) <= TITLE_CHARACTERS and re.fullmatch(TITLE_PATTERN, title)):
        yield _flaw("title", f"must be one line that is not blank, of at most {TITLE_CHARACTERS} characters")
    if body is not None and len(body) > BODY_CHARACTERS:
        yield _flaw("body", f"has more than {BODY_CHARACTERS} characters")
    if note is not None and not 0 < len(note.strip()) <= len(note) <= NOTE_CHARACTERS:
        yield _flaw("note", f"must not be blank, and must have at most {NOTE_CHARACTERS} characters")
    if kind is not None and not re.fullmatch(KIND_PATTERN, kind):
        yield _flaw("kind", "must be a word of small letters, digits, '_', '.' and '-', of at most 64 characters")


def _flaw(name: str, message: str) -> errors.Flaw:
    return errors.Flaw(path=f"$.{name}", message=message)
