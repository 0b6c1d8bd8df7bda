"""
Claims: what prose states of the cast, in the same attributes as the facts of canon cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.tools import bounds, documents, prose, statements_of_people, statements_of_things
from app.tools.cast import Cast, Reading
from app.tools.statements_of_people import Statement

_RULES = (*statements_of_people.RULES, *statements_of_things.RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    A statement about one of the cast.
    """

    subject: str
    """Name of the entity."""
    attribute: str
    """What it is about, as in canon facts."""
    value: str
    """What is stated."""
    path: str
    """File."""
    line: int
    """Line in it."""
    quote: str
    """The sentence."""
    is_spoken: bool
    """Whether a character says it, who may lie or err."""
    is_shown: bool = False
    """For `status`: whether it is seen (someone speaks) and not told."""


def of_document(document: documents.Document, cast: Cast, *, pov: str | None = None) -> list[Claim]:
    """
    Return the claims of a text in the order of its lines.
    """
    narrator = cast.named(pov) if pov else None
    found: list[Claim] = []
    before: Reading | None = None
    for paragraph in prose.paragraphs(document):
        reading = Reading(paragraph, cast, before, narrator)
        statements = {(s.entity.name, s.attribute, s.value, s.position): s for rule in _RULES for s in rule(reading)}
        found.extend(
            _claim(statement, reading, document.path) for _, statement in sorted(statements.items(), key=_by_place)
        )
        before = reading
    return found


def _by_place(entry: tuple[tuple[str, str, str, int], Statement]) -> tuple[int, str, str]:
    (name, attribute, _, position), _ = entry
    return position, attribute, name


def _claim(statement: Statement, reading: Reading, path: str) -> Claim:
    paragraph = reading.paragraph
    return Claim(
        subject=statement.entity.name,
        attribute=statement.attribute,
        value=statement.value,
        path=path,
        line=paragraph.line_at(statement.position),
        quote=bounds.clipped(paragraph.sentence_at(statement.position).text),
        is_spoken=paragraph.is_spoken(statement.position) and not statement.is_shown,
        is_shown=statement.is_shown,
    )
