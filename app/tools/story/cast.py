"""The cast: resolve the names and pronouns of a text to people and things."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.tools.story.canon import Entity
from app.tools.story.prose import Paragraph

_TOKEN = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s?\b|['’](?=\s)")
_ADJECTIVES = re.compile(r" (?:[\w-]{1,20},? ){0,2}")
_POSSESSIVE_PRONOUN = re.compile(r"(?:^|[^\w'’])(his|her|their) (?:[\w-]{1,20},? ){0,2}$", re.IGNORECASE)
_PERSONS = {"he": "he", "his": "he", "she": "she", "her": "she", "they": "they", "their": "they"}
_LOOKED_BACK = 60
_NEAR_MENTIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A name in a paragraph."""

    entity: Entity  # The entity that it means.
    start: int  # Where it begins.
    end: int  # One past its last character, a possessive `'s` not counted.
    after: int  # One past the possessive `'s`, or the same as `end`.

    @property
    def is_possessive(self) -> bool:
        """Whether the text after it states a possession."""
        return self.after > self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alias:
    tokens: tuple[str, ...]
    entity: Entity


class Cast:
    """The known entities, found by their names."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self.entities = tuple(entities)  # All known entities.
        self._by_first_token: dict[str, list[_Alias]] = {}
        for entity in self.entities:
            for alias in entity.aliases:
                self._learn(alias, entity)
        # Longer names first, so that `Old Tom Pell` is not found as `Old Tom`.
        for aliases in self._by_first_token.values():
            aliases.sort(key=lambda alias: -len(alias.tokens))
        self.by_head = _by_head(self.entities)  # Items of a known material, by the last word of their names.

    def mentions(self, text: str) -> list[Mention]:
        """Return the names in a text in order; where several fit, the longest."""
        tokens = list(_TOKEN.finditer(text))
        found, position = [], 0
        while position < len(tokens):
            alias = self._alias_at(tokens, position)
            if alias is None:
                position += 1
                continue
            last = tokens[position + len(alias.tokens) - 1]
            possessive = _POSSESSIVE.match(text, last.end())
            after = possessive.end() if possessive else last.end()
            found.append(Mention(entity=alias.entity, start=tokens[position].start(), end=last.end(), after=after))
            position += len(alias.tokens)
        return found

    def named(self, text: str) -> Entity | None:
        """Return the entity that a value such as `owner: Mira Voss` names."""
        return next((mention.entity for mention in self.mentions(text)), None)

    def _learn(self, alias: str, entity: Entity) -> None:
        tokens = tuple(_TOKEN.findall(alias))
        if tokens:
            self._by_first_token.setdefault(tokens[0].casefold(), []).append(_Alias(tokens=tokens, entity=entity))

    def _alias_at(self, tokens: Sequence[re.Match[str]], position: int) -> _Alias | None:
        for alias in self._by_first_token.get(tokens[position][0].casefold(), ()):
            window = tokens[position : position + len(alias.tokens)]
            if len(window) == len(alias.tokens) and all(map(_fits, alias.tokens, window)):
                return alias
        return None


class Reading:
    """A paragraph read with the cast, and with the paragraph before it."""

    def __init__(self, paragraph: Paragraph, cast: Cast, before: Reading | None, pov: Entity | None) -> None:
        self.paragraph = paragraph
        self.cast = cast
        self.mentions = cast.mentions(paragraph.text)
        self.people = [mention for mention in self.mentions if is_person(mention.entity)]
        self._subject_before = before.last_subject() if before else None
        self._pov = pov

    def last_subject(self) -> Entity | None:
        """Return the first person named in the last sentence that names one."""
        return self._subject_of(self.people[-_NEAR_MENTIONS:])

    def owner(self, position: int) -> Entity | None:
        """Return the owner of the thing at a position, named or by pronoun."""
        text = self.paragraph.text
        for mention in self._people_before(position)[-1:]:
            if mention.is_possessive and _ADJECTIVES.fullmatch(text, mention.after, position):
                return mention.entity
        pronoun = _POSSESSIVE_PRONOUN.search(text[max(position - _LOOKED_BACK, 0) : position])
        return self.meant(pronoun[1], position) if pronoun else None

    def meant(self, pronoun: str, position: int) -> Entity | None:
        """Return the person a pronoun means, None if ambiguous.

        In order: the subject of the sentence, of the one before, of the paragraph before, the point of view.
        """
        wanted = _PERSONS[pronoun.lower()]
        sentence = self.paragraph.sentence_at(position)
        earlier = self._people_before(position)
        fitting = [mention for mention in earlier if _can_be(mention.entity, wanted)]
        in_sentence = [mention.entity for mention in fitting if mention.start >= sentence.start]
        # The sentence of the pronoun has precedence over earlier ones.
        if in_sentence:
            return _unambiguous(in_sentence)
        if earlier:
            return self._subject_of(fitting)
        return next(
            (entity for entity in (self._subject_before, self._pov) if entity and _can_be(entity, wanted)), None
        )

    def _people_before(self, position: int) -> list[Mention]:
        index = bisect.bisect_right(self.people, position, key=lambda mention: mention.end)
        return self.people[max(index - _NEAR_MENTIONS, 0) : index]

    def _subject_of(self, mentions: Sequence[Mention]) -> Entity | None:
        if not mentions:
            return None
        sentence = self.paragraph.sentence_at(mentions[-1].start)
        return next(mention.entity for mention in mentions if mention.start >= sentence.start)


def is_person(entity: Entity) -> bool:
    """Return whether an entity can see and speak."""
    return entity.kind in {"character", "unknown"}


def _by_head(entities: Iterable[Entity]) -> dict[str, Entity]:
    heads: dict[str, list[Entity]] = {}
    for entity in entities:
        if entity.kind == "item":
            heads.setdefault(entity.name.split()[-1].lower(), []).append(entity)
    return {head: named[0] for head, named in heads.items() if len(named) == 1 and named[0].first("material")}


def _fits(wanted: str, token: re.Match[str]) -> bool:
    # A proper name keeps its capital; a common noun may be at the beginning of a sentence.
    return token[0] == wanted or (not wanted[:1].isupper() and token[0].casefold() == wanted.casefold())


def _can_be(entity: Entity, pronoun: str) -> bool:
    return entity.pronoun in {pronoun, None} and (pronoun != "they" or entity.pronoun == "they")


def _unambiguous(entities: Sequence[Entity]) -> Entity | None:
    known = [entity for entity in entities if entity.pronoun is not None]
    if known:
        return known[0]
    return entities[0] if len({entity.name for entity in entities}) == 1 else None
