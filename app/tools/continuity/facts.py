"""
Facts: what a passage says of somebody or something, in a form that can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.tools.continuity import vocabulary
from app.tools.continuity.passages import Passage
from app.tools.continuity.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """
    Something that a passage says.
    """

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
_ASKED = re.compile(r"\?\s{0,2}[\"'”’]?$")
_OTHER_TIME = re.compile(
    r"\b(?:years? (?:ago|before|earlier)|long ago|in those days|once upon|as a (?:child|boy|girl)|used to|had once|"
    r"when (?:he|she|i|@[?~]?\d+) (?:was|were) (?:a |an |still |young|small|little|twelve|ten|eight|six))\b",
    re.IGNORECASE,
)


def person(match: re.Match[str], group: str | int = "p") -> tuple[int, bool]:
    """
    Return the number of the person in a group, and whether it is sure.
    """
    text = match[group].removesuffix("'s")
    return int(text.strip("@?~")), "?" not in text


def clause(text: str, position: int) -> str:
    """
    Return what stands before a position in its clause.
    """
    ends = [match.end() for match in _CLAUSE_END.finditer(text, max(position - 160, 0), position)]
    return text[(ends[-1] if ends else max(position - 160, 0)) : position]


def is_unreal(passage: Passage, start: int, end: int) -> bool:
    """
    Return whether a stretch of a passage is asked, denied, wished or only compared.
    """
    before = clause(passage.text, start)
    return bool(
        _ASKED.search(passage.text)
        or _NOT_SO.search(before)
        or _NOT_SO.search(passage.text, start, end)
        or _DENIED.search(before.rpartition(",")[2])
        or _DENIED.search(passage.text, start, end)
    )


def is_earlier(passage: Passage) -> bool:
    """
    Return whether a passage tells of another time than its scene's.
    """
    return passage.is_flashback or bool(_OTHER_TIME.search(passage.text))


def last_person(text: str, position: int, roster: Roster) -> tuple[int, bool]:
    """
    Return the person named first in the clause before a position, 0 if none is.
    """
    for match in re.finditer(vocabulary.PERSON + r"(?!'s)", clause(text, position)):
        number, sure = int(match[0].strip("@?~")), "?" not in match[0]
        if roster.is_person(number):
            return number, sure
    return 0, False
