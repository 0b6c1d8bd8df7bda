"""Facts: what a passage says of somebody or something, in a form that can be compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.tools.story.continuity import vocabulary
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a passage says."""

    kind: str
    """Kind of the contradiction that it can be part of."""
    attribute: str
    """What it is about, in one word."""
    subject: str
    """Of whom or what, as findings call it."""
    key: tuple[str, ...]
    """Facts of one attribute are compared where their keys are equal."""
    value: str
    """What is said, for people."""
    data: Any
    """What is said, for comparisons."""
    passage: Passage
    """Where it is said."""
    is_sure: bool = True
    """Whether it is clear of whom it is said."""


Read = Callable[[Passage, Roster], Iterator[Fact]]
"""A rule: reads facts off a passage."""

_CLAUSE_END = re.compile(r"[.;:!?—–]|, (?:and|but|while|so|yet) ")
_NOT_SO = re.compile(
    r"\b(?:if|unless|would|might|could have|should|until|as if|as though|whether|imagin\w+|dream\w*|pretend\w*|wish\w*|"
    r"suppos\w+|seem\w*|hoped?|feared)\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:not|never|no longer|neither|nor|nobody|none|almost|nearly|hardly|than|without)\b", re.IGNORECASE
)
_BUT_FOR = re.compile(r"\bif it (?:had not been|were not|was not) for\b", re.IGNORECASE)
_ASKED = re.compile(r"\?\s{0,2}[\"'”’]?$")
_OTHER_TIME = re.compile(
    r"\b(?:years? (?:ago|before|earlier)|long ago|in those days|once upon|as a (?:child|boy|girl)|used to|had once|"
    r"when (?:he|she|i|@[?~]?\d+) (?:was|were) (?:a |an |still |young|small|little|twelve|ten|eight|six))\b",
    re.IGNORECASE,
)


def person(match: re.Match[str], group: str | int = "p") -> tuple[int, bool]:
    """Return the number of the person in a group, and whether it is sure."""
    text = match[group].removesuffix("'s")
    return int(text.strip("@?~")), "?" not in text


def clause(text: str, position: int) -> str:
    """Return what stands before a position in its clause."""
    ends = [match.end() for match in _CLAUSE_END.finditer(text, max(position - 160, 0), position)]
    return text[(ends[-1] if ends else max(position - 160, 0)) : position]


def is_unreal(passage: Passage, start: int, end: int) -> bool:
    """Return whether a stretch of a passage is asked, denied, wished or only compared."""
    before = _BUT_FOR.sub("", clause(passage.text, start))
    return bool(
        _ASKED.search(passage.text)
        or _NOT_SO.search(before)
        or _NOT_SO.search(passage.text, start, end)
        or _DENIED.search(before.rpartition(",")[2])
        or _DENIED.search(passage.text, start, end)
    )


def is_earlier(passage: Passage) -> bool:
    """Return whether a passage tells of another time than its scene's."""
    return passage.is_flashback or bool(_OTHER_TIME.search(passage.text))


_OWN = re.compile(rf"({vocabulary.PERSON})'s (?:[\w-]+,? ){{0,3}}$")
_OF = re.compile(rf"(?:,? \w+){{0,2}},? (?:of|for|in) ({vocabulary.PERSON})(?!')")
_HEIR = re.compile(
    rf"({vocabulary.PERSON})(?!'s)(?: \w+)? (?:has|have|had|got|inherited) (?:[^.;:]{{0,40}} and )?(?:{vocabulary.PERSON}'s )?(?:[a-z-]+|{vocabulary.PERSON})'s (?:[\w-]+,? ){{0,3}}$"
)
_ADJECTIVE = re.compile(r"(?:-eyed|-haired|-headed|-bearded|[- ]old|-handed)$", re.IGNORECASE)
_FOLLOWING = re.compile(rf",? (?:[a-z]+ ){{0,2}}?({vocabulary.PERSON})(?!'s)")
_DISLOCATED = re.compile(rf"[^.;:!?@]{{0,25}}, (?:poor |old |dear |was |our |that )*({vocabulary.PERSON})[,.]")
_DESCRIBED = re.compile(r",? ?(?:who|whose|with|is|was|has|had|wore|an?|the|in|at|\(|:|—|–|[a-z-]+,|,)")
_ABOUT = re.compile(r"\b(?:at|to|on|for|from|by|behind|beside|with|of|past|after|about|against) $")
_SOMEBODY = re.compile(
    rf"\b(?:an?|the|that|this|one|another|some) (?:[\w-]+ ){{0,3}}?(?:{'|'.join(sorted(vocabulary.MALE_NOUNS | vocabulary.FEMALE_NOUNS | {'stranger', 'other', 'others', 'child', 'people', 'person', 'portrait', 'one'}))})\b(?!')"
)
_COLON = re.compile(r"[.;:!?—–]")


def bearer(passage: Passage, start: int, end: int, roster: Roster) -> tuple[int, bool]:
    """Return of whom the words of a passage between two positions tell, and whether that is sure; 0 if of nobody known.

    It is the owner before them, whom `of` names after them, the person whom they describe, or the subject of the clause.
    """
    text = passage.text
    own = _OWN.search(text, max(start - 90, 0), start)
    heir = _HEIR.search(clause(text, start)) if own or text[:start].endswith("'s ") else None
    if heir:
        return _told_of(heir[1])
    follows = _FOLLOWING.match(text, end) if _ADJECTIVE.search(text, 0, end) else None
    if follows:
        return _told_of(follows[1])
    if own:
        return _told_of(own[1])
    for rule in (_OF, _DISLOCATED):
        after = rule.match(text, end)
        if after and (rule is _OF or "@~" in text[:start] or "@?" in text[:start]):
            return _told_of(after[1])
    sentence = text[max(start - 300, 0) : start]
    opening = max((m.end() for m in _COLON.finditer(sentence)), default=0)
    for stretch in (sentence[opening:], sentence):
        people = [m for m in re.finditer(vocabulary.PERSON, stretch) if roster.is_person(int(m[0].strip("@?~")))]
        nobody = [m for m in _SOMEBODY.finditer(stretch) if not people or m.start() > people[-1].end() + 2]
        if _UNKNOWN.search(stretch):
            return 0, False
        if nobody and not _PREDICATE.search(stretch[: nobody[-1].start()]):
            return 0, False
        named = [m for m in people if not stretch.startswith("'s", m.end())]
        if named:
            nearest = named[-1]
            near = _DESCRIBED.match(stretch, nearest.end()) and not _ABOUT.search(stretch[: nearest.start()])
            appositive = re.match(r", (?:an?|the|who|whose|with|\w+-)", stretch[nearest.end() :])
            return _told_of((nearest if near or appositive else named[0])[0])
        if people:
            return _told_of(people[-1][0])
    return passage.subject, passage.is_card and bool(passage.subject)


_UNKNOWN = re.compile(r"\b(?:[Hh]e|[Ss]he|[Tt]hey|[Hh]is|[Hh]er|[Tt]heir)\b")
_PREDICATE = re.compile(rf"(?:{vocabulary.PERSON}(?:(?!'s)| (?:is|was|am)\b| had been\b)[^.;]{{0,40}}|, )$")


def _told_of(text: str) -> tuple[int, bool]:
    return int(text.strip("@?~")), "?" not in text
