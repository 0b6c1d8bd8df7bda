"""Coreference: the person whom a pronoun or `the old man` means, from the last sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from app.tools.story.continuity.language import Patterns, words
from app.tools.story.continuity.roster import Roster

PATTERNS = Patterns("coreference")
_NEAR_SENTENCES = 7
SOME_WOMAN, SOME_MAN, SOMEBODY = -1, -2, -3  # A person without a name, instead of a number of the cast.


def unnamed_gender(noun: str) -> int:
    """Return the unnamed person of a noun's gender."""
    return SOME_WOMAN if noun in words("female_nouns") else SOME_MAN if noun in words("male_nouns") else SOMEBODY


@dataclass(slots=True)
class Chain:
    """The people of the last sentences."""

    sentences: list[list[int]] = field(default_factory=list)  # The people whom each sentence names, in order.

    def opened(self) -> None:
        """Begin a new sentence."""
        self.sentences = [*self.sentences[-_NEAR_SENTENCES:], []]

    def add(self, person: int) -> None:
        """Note that a sentence means a person."""
        self.sentences[-1].append(person)

    def last(self) -> int:
        """Return the person named first in the last sentence with a name, 0 if none is known."""
        return max(next((people[0] for people in reversed(self.sentences) if people), 0), 0)

    def meant(self, roster: Roster, gender: str, exclude: int = 0, *, opens: bool = False) -> tuple[int, bool]:
        """Return the person whom a pronoun means, and whether it may mean another one.

        A pronoun that opens its sentence means the subject of the sentence before.
        """
        for distance, people in enumerate(reversed(self.sentences)):
            fitting = [p for p in people if p != exclude and (p == SOMEBODY or gender_of(roster, p) == gender)]
            if not fitting:
                continue
            if fitting[0] < 0 and len({p for p in fitting if p > 0}) == 1:
                return next(p for p in fitting if p > 0), distance > 1
            # A pronoun at the beginning of a sentence means the subject of the one before.
            if opens and distance == 1 and people[0] == fitting[0]:
                return fitting[0], False
            return fitting[0], len(set(fitting)) > 1 or (distance > 0 and self._crowded(roster, gender, distance))
        # If no person fits, the pronoun may mean one whose gender is unknown.
        for people in reversed(self.sentences[-2:]):
            unknown = [p for p in people if p != exclude and roster.is_person(p) and roster.gender(p) is None]
            if unknown:
                near = {p for people in self.sentences[-3:] for p in people if p != exclude}
                return unknown[0], len({p for p in near if gender_of(roster, p) in {None, gender}}) > 1
        return 0, True

    def _crowded(self, roster: Roster, gender: str, distance: int) -> bool:
        near = self.sentences[-distance - 1 : len(self.sentences) - distance]
        return len({p for people in near for p in people if gender_of(roster, p) == gender}) > 1


def gender_of(roster: Roster, person: int) -> str | None:
    """Return the pronoun that fits a person, named or not."""
    return {SOME_WOMAN: "she", SOME_MAN: "he"}.get(person) or roster.gender(person)


def described(text: str, match: re.Match[str], chain: Chain, roster: Roster) -> int:
    """Return the person whom `the old man` means: the only man mentioned lately, otherwise an unnamed person."""
    someone, position = unnamed_gender(match["noun"]), match.start("noun")
    if PATTERNS.told_apart.match(text, position):
        return someone
    near = {p for people in chain.sentences for p in people if gender_of(roster, p) == gender_of(roster, someone)}
    definite = PATTERNS.definite.search(text[max(position - 14, 0) : position])
    return next(iter(near)) if definite and len(near) == 1 else someone
