"""The roster: all people and things that cards and scenes name, by number, with their pronouns."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from app.tools.story import documents, matching, names, prose
from app.tools.story.canon import Entity
from app.tools.story.cast import Cast
from app.tools.story.continuity import language, naming
from app.tools.story.continuity.cards import Card

_P = language.Patterns("roster")
INVERSE = dict(pair.split("/") for pair in language.listed("inverse_kinship"))
INVERSE |= {value: key for key, value in INVERSE.items()}
"""What A is to B where B is this to A; others are mutual."""
_MAX_TEXTS = 400
_SUGGESTED = 4


_NARRATOR = Entity(
    name="the narrator", aliases=("the narrator",), kind="character", pronoun=None, facts=(), document=None
)


class Roster:
    """The cast by number, from 1."""

    def __init__(self, cards: Sequence[Card], scenes: Sequence[documents.Document]) -> None:
        written = list({card.path: card.entity.document for card in cards if card.entity.document}.values())
        labels = {line.field.replace("_", " ") for card in cards for line in card.lines}
        stated = {s.name for s in names.certain(names.sightings(scenes))}
        seen = [s for s in names.sightings([*scenes, *written]) if s.name in stated or s.name.lower() not in labels]
        entities = _distinct([card.entity for card in cards])
        known_names = {word for entity in entities for alias in entity.aliases for word in alias.split()}
        small = {word for document in scenes for word in re.findall(r"\b[a-z]{4,}\b", " ".join(document.lines))}
        with_article = Counter(m[1] for d in scenes for line in d.lines for m in _P.article.finditer(line))
        seen = [s for s in seen if with_article[s.name] < 1 or s.name in known_names]
        self._titles = titles = naming.titles(seen, small)
        entities = naming.with_short_names(entities, seen)
        entities += _further(entities, seen, titles)
        entities = naming.with_titles(entities, seen, titles)
        entities = naming.with_offices(entities, [*written, *scenes])
        self.cast = Cast([*_without_shared_aliases(entities), _NARRATOR])  # Finds names in texts.
        self.entities = self.cast.entities  # All entities; number n is at index n - 1.
        self._numbers = {entity.name: number for number, entity in enumerate(self.entities, start=1)}
        self._genders: list[str | None] = [entity.pronoun for entity in self.entities]
        self._persons = [entity.kind in {"character", "unknown"} for entity in self.entities]
        self.narrator = len(self.entities)  # The unnamed narrator of a story in the first person.
        self._relatives: dict[tuple[int, str], set[int]] = {}
        self._observe(scenes)

    def learn_relation(self, one: int, other: int, relation: str) -> None:
        """Note the relation of `other` to `one`, so that `his brother` can be resolved."""
        self._relatives.setdefault((one, relation), set()).add(other)
        self._relatives.setdefault((other, INVERSE.get(relation, relation)), set()).add(one)

    def relative(self, person: int, word: str) -> int:
        """Return the only one who is a person's sister or son, 0 if none or several may be."""
        gender = (
            "he" if word in language.words("male_words") else "she" if word in language.words("female_words") else None
        )
        known = self._relatives.get((person, language.classes("kinship").get(word, "")), set())
        fitting = [number for number in known if gender is None or self.gender(number) in {gender, None}]
        return fitting[0] if len(fitting) == 1 else 0

    def number(self, entity: Entity) -> int:
        """Return an entity's number."""
        return self._numbers[entity.name]

    def numbered(self, name: str | None) -> int:
        """Return the number of the person that a text names, 0 if unknown."""
        entity = self.cast.named(name) if name else None
        return self.number(entity) if entity else 0

    def name(self, number: int) -> str:
        """Return the name that findings use for a number."""
        return self.entities[number - 1].name if number else "the narrator"

    def gender(self, number: int) -> str | None:
        """Return the pronoun that fits, None if it is not known."""
        return self._genders[number - 1] if 0 < number <= len(self._genders) else None

    def is_person(self, number: int) -> bool:
        """Return whether the entity can act."""
        return 0 < number <= len(self._persons) and self._persons[number - 1]

    def may_be_place(self, number: int) -> bool:
        """Return whether a name can be that of a place: a card states it, or the name fits and never acts as a person."""
        entity = self.entities[number - 1]
        one_word = " " not in entity.name or _P.place_name.search(entity.name) is not None
        unseen = self._genders[number - 1] is None and number not in self._acting
        return not self.is_person(number) or (entity.kind == "unknown" and one_word and unseen)

    def _observe(self, scenes: Sequence[documents.Document]) -> None:
        pronouns: dict[int, Counter[str]] = {}
        uses: dict[int, Counter[str]] = {}
        for document in scenes[:_MAX_TEXTS]:
            for paragraph in prose.paragraphs(document):
                text = paragraph.text
                mentions = self.cast.mentions(text)
                for mention in mentions:
                    number = self.number(mention.entity)
                    before = text[max(mention.start - 24, 0) : mention.start]
                    use = uses.setdefault(number, Counter())
                    use["located"] += bool(_P.located.search(before)) and not mention.is_possessive
                    title = _P.title.search(before)
                    use["titled"] += title is not None and title[1].lower() in self._titles
                    use["acts"] += bool(
                        _P.acts.match(text, mention.end) and not _P.after_preposition.search(before)
                    ) or bool(_P.said.search(before))
                    use["all"] += 1
                    word = _P.kin_before.search(before) or _P.title.search(before)
                    _note_word(pronouns.setdefault(number, Counter()), word[1].lower() if word else "")
                    _note_word(pronouns[number], text[mention.start : mention.end].split()[0].lower(), 4)
                people = {self.number(m.entity) for m in mentions}
                # In a paragraph with one name, every pronoun means that person.
                if len(people) == 1:
                    _note_pronouns(pronouns[next(iter(people))], paragraph, mentions[0].end, len(paragraph.text))
                for one, following in itertools.zip_longest(mentions, mentions[1:]):
                    end = min(
                        following.start if following else len(text), paragraph.sentence_at(one.start).end, one.end + 60
                    )
                    _note_pronouns(pronouns[self.number(one.entity)], paragraph, one.end, end)
        self._judge(uses, pronouns)

    def _judge(self, uses: dict[int, Counter[str]], pronouns: dict[int, Counter[str]]) -> None:
        self._acting = {number for number, use in uses.items() if use["acts"]}
        for number, entity in enumerate(self.entities, start=1):
            count = pronouns.setdefault(number, Counter())
            suggested = naming.pronoun_of(entity.name)
            count[suggested or ""] += _SUGGESTED
            if self._genders[number - 1] is None and self._persons[number - 1]:
                self._genders[number - 1] = _majority(count)
        for number, entity in enumerate(self.entities[:-1], start=1):
            if entity.kind == "unknown" and entity.document is not None and number not in uses:
                self._persons[number - 1] = self._genders[number - 1] is not None
        for number, use in uses.items():
            entity = self.entities[number - 1]
            placed = " " in entity.name and _P.place_name.search(entity.name) and not naming.pronoun_of(entity.name)
            if entity.kind == "unknown" and (placed or self._genders[number - 1] is None):
                likely = (
                    naming.pronoun_of(entity.name) is not None
                    or use["acts"] + use["titled"] > 0
                    or (use["located"] == 0 and _P.place_name.search(entity.name) is None)
                )
                if placed:
                    likely = use["titled"] > 0
                self._persons[number - 1] = likely and 2 * use["located"] <= use["all"]


def _note_word(count: Counter[str], word: str, weight: int = 3) -> None:
    if word in language.words("male_words"):
        count["he"] += weight
    elif word in language.words("female_words"):
        count["she"] += weight


def _note_pronouns(count: Counter[str], paragraph: prose.Paragraph, start: int, end: int) -> None:
    for match in _P.pronoun.finditer(paragraph.text, start, end):
        if not paragraph.is_spoken(match.start()):
            count["he" if match[1].lower() in {"he", "him", "his"} else "she"] += 1
            return


def _majority(count: Counter[str]) -> str | None:
    he, she = count["he"], count["she"]
    if he + she < 2 or he == she or min(he, she) * 2 > max(he, she):
        return None
    return "he" if he > she else "she"


def _distinct(entities: Iterable[Entity]) -> list[Entity]:
    """Merge the statements of several cards about one subject."""
    found: dict[str, Entity] = {}
    for entity in entities:
        known = found.get(entity.name)
        if known is None:
            found[entity.name] = entity
        else:
            aliases = tuple(dict.fromkeys([*known.aliases, *entity.aliases]))
            kind = known.kind if known.kind != "unknown" else entity.kind
            found[entity.name] = dataclasses.replace(
                known, aliases=aliases, kind=kind, pronoun=known.pronoun or entity.pronoun
            )
    return list(found.values())


def _further(entities: Sequence[Entity], seen: Sequence[names.Sighting], titles: frozenset[str]) -> list[Entity]:
    """Return the people and things without a card; `Jory Pell` and `Jory` are one."""
    known = {word for entity in entities for alias in entity.aliases for word in alias.split() if word[:1].isupper()}
    found: dict[str, Entity] = {}
    # Longer names first, so that `Jory` becomes an alias of `Jory Pell`.
    for entity in sorted(names.entities(seen), key=lambda entity: -len(entity.name.split())):
        words = [word for word in entity.name.split() if word.strip(".").lower() not in titles]
        if (
            not words
            or words[0].lower() in matching.STOPWORDS
            or words[-1].lower() in language.words("relatives")
            or all(word in known or (word.isupper() and word.capitalize() in known) for word in words)
            or (words[-1].isupper() and words[-1].capitalize() in known)
            or (len(words[0]) == 1 and len(words) == 1)
        ):
            continue
        bare = " ".join(words)
        two = len(words) == 2 and entity.kind != "thing" and words[0] not in language.words("not_names")
        aliases = [bare, *(words if two else [])]
        taken = {alias for other in found.values() for alias in other.aliases}
        if bare not in taken:
            fresh = [
                alias
                for alias in aliases
                if alias not in taken
                and (alias == bare or (alias not in known and alias.lower() not in matching.STOPWORDS))
            ]
            found[bare] = dataclasses.replace(entity, name=bare, aliases=tuple(fresh))
    return list(found.values())


def _without_shared_aliases(entities: Sequence[Entity]) -> list[Entity]:
    # An alias that two entities share identifies neither.
    count = Counter(alias for entity in entities for alias in {alias.lower() for alias in entity.aliases})
    whole = {entity.name.lower() for entity in entities}
    return [
        dataclasses.replace(
            entity,
            aliases=tuple(
                alias
                for alias in entity.aliases
                if alias == entity.name
                or alias == entity.aliases[0]
                or (count[alias.lower()] == 1 and alias.lower() not in whole)
            ),
        )
        for entity in entities
    ]
