"""Passages and facts: sentences with names and pronouns replaced by numbers of the cast, and the facts they state.

`She gave Kael her ring` is read as `@2 gave @1 @2's ring`, so that the rules need no grammar of names.
"""

# The story tools must find contradictions in unknown prose. English models of statistical parsers are published outside
# the package index; a download at run time is not acceptable. Taggers with data of their own have large
# dependencies and do not determine whose eyes a sentence means.
#
# So closed word classes and patterns read the prose. One pass first replaces names and pronouns by the people they mean,
# marked by certainty, and the rules of every kind read only these passages. The same text gives the same facts on every
# machine. Price: an expression that matches no pattern is not read; docs/reference/contradictions.md states how many
# are missed.

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.tools.story import dates
from app.tools.story.continuity.language import PERSON, Patterns
from app.tools.story.continuity.roster import Roster

_P = Patterns("passages")
_CLAUSE, _OWNER_REACH, _SENTENCE = 160, 90, 300
KINDS = {
    "age": "age", "age_difference": "age", "eye_colour": "appearance", "hair_colour": "appearance",
    "beard_colour": "appearance", "side": "side", "hand": "side", "place_side": "place_side", "status": "death",
    "died": "death", "cause": "death", "date": "dates_order", "weekday": "dates_order", "next_day": "dates_order",
    "interval": "dates_order", "distance": "distance_travel", "travel_time": "distance_travel", "rank": "rank_relation",
    "trade": "rank_relation", "relation": "rank_relation", "owner": "possession", "possession": "possession",
    "location": "thing", "material": "thing",
}  # fmt: skip
"""Each attribute that can be stated, with the kind of contradiction that it can be part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A sentence, or a part of one that is completely spoken or completely narrated."""

    text: str  # Its words, with `@n` for members of the cast.
    path: str  # File.
    line: int  # Line of the file.
    quote: str  # The sentence as the file has it.
    context: str  # The paragraph and its neighbours, in small letters.
    order: int  # Place of its file in the telling; -1 for a card.
    index: int  # Position of the passage in its file.
    roster: Roster = dataclasses.field(compare=False, repr=False)  # The cast.
    date: dates.StoryDate | None = None  # Date of its scene.
    number: int | None = None  # Number of its scene.
    is_alone: bool = False  # Whether only one scene is compared.
    is_spoken: bool = False  # Whether it is dialogue.
    is_flashback: bool = False  # Whether its scene is a flashback.
    speaker: int = 0  # Its speaker, 0 if unclear.
    subject: int = 0  # Its subject if it names none: the subject of the card, or the person mentioned last.
    place: str = ""  # Place of its scene, from the scene's metadata.
    field: str = ""  # Name of a card's field.
    there: int = 0  # The place that `there` means, 0 if the text has named none.
    answers: str = ""  # The question in speech before it.

    @property
    def is_card(self) -> bool:
        """Whether it comes from a card."""
        return self.order < 0

    @property
    def position(self) -> tuple[int, int]:
        """Its place in the telling."""
        return self.order, self.index

    @property
    def value(self) -> str:
        """Value of a card's field."""
        return self.text.partition(" : ")[2]

    @property
    def is_earlier(self) -> bool:
        """Whether it is set at a time other than its scene's."""
        return self.is_flashback or bool(_P.other_time.search(self.text))

    def clause(self, position: int) -> str:
        """Return the part of the clause before a position."""
        return clause(self.text, position)

    def is_unreal(self, match: re.Match[str], end: int | str = 0) -> bool:
        """Return whether a match, up to the end of a group, is asked, denied, wished or only compared."""
        text, last = self.text, match.end(end)
        before = _P.but_for.sub("", self.clause(match.start()))
        return bool(
            _P.asked.search(text)
            or _P.not_so.search(before)
            or _P.not_so.search(text, match.start(), last)
            or _P.denied.search(before.rpartition(",")[2])
            or _P.denied.search(text, match.start(), last)
        )

    def people(self, *rules: re.Pattern[str]) -> Iterator[tuple[re.Match[str], int, bool]]:
        """Yield each match of the rules whose group `p` is a person, with the number and whether it is sure."""
        for rule in rules:
            for match in rule.finditer(self.text):
                number, sure = person(match)
                if self.roster.is_person(number):
                    yield match, number, sure

    def named(self, text: str) -> str:
        """Return a text with names instead of the numbers of the cast."""
        return re.sub(PERSON, lambda match: self.roster.name(number(match[0])), text)

    def bearer(self, start: int, end: int) -> tuple[int, bool]:
        """Return the person whom a phrase is about (0 if unknown), and whether that is certain.

        It is the owner before it, the owner after `of`, the person it describes, or the subject of the clause.
        """
        text = self.text
        own = _P.own.search(text, max(start - _OWNER_REACH, 0), start)
        heir = _P.heir.search(self.clause(start)) if own or text[:start].endswith("'s ") else None
        follows = _P.following.match(text, end) if _P.adjective.search(text, 0, end) else None
        if own and not heir and not follows and _P.belonging.match(text, own.start()):
            return 0, False
        found = heir or follows or own or _P.of.match(text, end)
        if not found and ("@~" in text[:start] or "@?" in text[:start]):
            found = _P.dislocated.match(text, end)
        return person_of(found[1]) if found else self._subject_of(text[max(start - _SENTENCE, 0) : start])

    def _subject_of(self, sentence: str) -> tuple[int, bool]:
        opening = max((m.end() for m in _P.colon.finditer(sentence)), default=0)
        for stretch in (sentence[opening:], sentence):
            people = [m for m in re.finditer(PERSON, stretch) if self.roster.is_person(number(m[0]))]
            nobody = [m for m in _P.somebody.finditer(stretch) if not people or m.start() > people[-1].end() + 2]
            if _P.unknown.search(stretch) or (nobody and not _P.predicate.search(stretch[: nobody[-1].start()])):
                return 0, False
            named = [m for m in people if not stretch.startswith("'s", m.end())]
            if named:
                nearest = named[-1]
                near = _P.described.match(stretch, nearest.end()) and not _P.about.search(stretch[: nearest.start()])
                return person_of((nearest if near or _P.appositive.match(stretch, nearest.end()) else named[0])[0])
            if people:
                # A horse has scars of its own.
                other = _P.belonging.match(stretch, people[-1].start())
                return (0, False) if other else person_of(people[-1][0])
        return self.subject, self.is_card and bool(self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A statement of a passage."""

    attribute: str  # Its attribute, in one word.
    subject: str  # The person or thing, as findings call it.
    key: tuple[str, ...]  # Facts of one attribute are compared if their keys are equal.
    value: str  # The statement, for people.
    data: Any  # The statement, for comparisons.
    passage: Passage  # Its source.
    is_sure: bool = True  # Whether its person or thing is certain.

    @property
    def kind(self) -> str:
        """Kind of the contradiction that it can be part of."""
        return KINDS[self.attribute]


def fact(
    passage: Passage, attribute: str, who: int | str, value: str, data: object, sure: bool = True, *key: str
) -> Fact:
    """Return a fact about a person by number, or about a thing by name; the number is the default key."""
    subject = passage.roster.name(who) if isinstance(who, int) else who
    return Fact(
        attribute=attribute,
        subject=subject,
        key=key or (str(who),),
        value=value,
        data=data,
        passage=passage,
        is_sure=sure,
    )


def number(text: str) -> int:
    """Return the number of `@12` or `@~12`."""
    return int(text.strip("@?~"))


def person_of(text: str) -> tuple[int, bool]:
    """Return the number of `@12` or `@?12's`, and whether it is sure."""
    return number(text.removesuffix("'s")), "?" not in text


def person(match: re.Match[str], group: str | int = "p") -> tuple[int, bool]:
    """Return the number of the person in a group, and whether it is sure."""
    return person_of(match[group])


def clause(text: str, position: int) -> str:
    """Return the part of the clause before a position in a text."""
    start = max(position - _CLAUSE, 0)
    ends = [match.end() for match in _P.clause_end.finditer(text, start, position)]
    return text[ends[-1] if ends else start : position]
