"""Canon cards: one file for each character, place, item or event, with the facts that scenes must keep to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from app.tools import bounds
from app.tools.story import documents

EntityKind = Literal["character", "place", "item", "event", "thing", "unknown"]
"""What a card is about; `thing` and `unknown` for names only found in prose, with an article and without one."""

_ATTRIBUTES = {
    "eyes": "eye_colour", "eye_colour": "eye_colour", "eye_color": "eye_colour",
    "hair": "hair_colour", "hair_colour": "hair_colour", "hair_color": "hair_colour",
    "hand": "hand", "handedness": "hand", "dominant_hand": "hand",
    "age": "age",
    "born": "born", "birth": "born", "birthday": "born", "date_of_birth": "born",
    "died": "died", "death": "died", "date_of_death": "died",
    "status": "status", "alive": "alive",
    "location": "location", "located_in": "location", "stands_on": "location", "stands_in": "location",
    "lives_in": "location", "home": "location", "residence": "location", "place": "location",
    "founded": "founded", "built": "built", "written": "written", "date": "date", "when": "date",
    "owner": "owner", "owned_by": "owner", "belongs_to": "owner", "keeper": "owner",
    "material": "material", "made_of": "material",
}  # fmt: skip
_NOT_FACTS = frozenset({"name", "title", "kind", "type", "aliases", "alias", "also_known_as", "pronouns", "tags", "id"})
_KINDS: dict[str, EntityKind] = {
    "character": "character", "characters": "character", "char": "character", "person": "character",
    "people": "character",
    "place": "place", "places": "place", "location": "place", "locations": "place", "loc": "place",
    "item": "item", "items": "item", "object": "item", "objects": "item", "prop": "item",
    "event": "event", "events": "event",
}  # fmt: skip
_PRONOUNS = {"he": "he", "him": "he", "his": "he", "she": "she", "her": "she", "they": "they", "them": "they"}
_MAX_ALIASES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a card states about its subject."""

    subject: str  # Name of the card's subject.
    attribute: str  # Its attribute, in one word for all spellings: `eye_colour`, `owner`, …
    value: str  # The stated value.
    path: str  # The card.
    line: int  # Line on it.
    quote: str  # The line itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A person or thing that the canon describes."""

    name: str  # Name by which findings call it.
    aliases: tuple[str, ...]  # Every way to name it, the name itself first.
    kind: EntityKind  # What it is.
    pronoun: str | None  # `he`, `she` or `they`; None if the card does not state it.
    facts: tuple[Fact, ...]  # Facts that its card states.
    document: documents.Document | None  # The card; None for a name found in prose.

    def first(self, attribute: str) -> Fact | None:
        """Return the first fact about an attribute."""
        return next((fact for fact in self.facts if fact.attribute == attribute), None)


def of_document(document: documents.Document) -> Entity:
    """Read a card."""
    name = document.title.strip() or PurePosixPath(document.path).stem
    kind = kind_of(document) or "unknown"
    pronouns = re.findall(r"[a-z]+", (document.scalar("pronouns") or "").lower())
    return Entity(
        name=name,
        aliases=_aliases(name, document.entries("aliases", "alias", "also_known_as"), kind),
        kind=kind,
        pronoun=next((_PRONOUNS[word] for word in pronouns if word in _PRONOUNS), None),
        facts=tuple(_facts(document, name)),
        document=document,
    )


def kind_of(document: documents.Document) -> EntityKind | None:
    """Return a card's subject, by its front matter, its file's prefix or its folder; None if it is not a card."""
    path = PurePosixPath(document.path)
    stated = (document.scalar("kind", "type") or "").lower()
    prefix = path.stem.split("-", 1)[0].lower() if "-" in path.stem else ""
    folder = path.parent.name.lower()
    return next((_KINDS[word] for word in (stated, prefix, folder) if word in _KINDS), None)


def _aliases(name: str, further: Iterable[str], kind: EntityKind) -> tuple[str, ...]:
    known = [name, *further]
    if kind == "character" and len(name.split()) > 1 and name[:1].isupper():
        known.append(name.split()[0])
    if kind != "character":
        known.extend(alias[4:] for alias in tuple(known) if alias.lower().startswith("the "))
    return tuple(dict.fromkeys(alias.strip() for alias in known[:_MAX_ALIASES] if alias.strip()))


def _facts(document: documents.Document, name: str) -> Iterable[Fact]:
    for field in documents.fields(document):
        if field.value and field.name not in _NOT_FACTS:
            yield Fact(
                subject=name,
                attribute=_ATTRIBUTES.get(field.name, field.name),
                value=bounds.clipped(field.value),
                path=document.path,
                line=field.line,
                quote=bounds.clipped(document.lines[field.line - 1]),
            )
