"""Relative ages: `two years older than Edda`, `in her late forties`, `not yet thirty`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from app.tools.story import dates
from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})(?!'s)"
_Q = rf"(?P<q>{vocabulary.PERSON})"
_BE = r"(?:,? who)? (?:is|was|am|are|were)"
_OLDER = (
    re.compile(
        rf"{_P}(?:{_BE}|,) (?:[a-z]+ )?(?P<n>{dates.NUMBER}|an?) years? (?:[a-z']+ )?(?P<how>older|younger) than {_Q}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:{_BE}|,) {_Q}'s (?P<how>senior|junior|elder) by (?P<n>{dates.NUMBER}|an?) years?\b", re.IGNORECASE
    ),
)
_SAME = (
    re.compile(rf"{_P}(?:{_BE}|,) {_Q}'s twin\b", re.IGNORECASE),
    re.compile(rf"{_Q}'s twin(?: brother| sister)?,? {_P}", re.IGNORECASE),
    re.compile(rf"{_P}{_BE} (?:exactly |just )?(?:the same age as|as old as|of an age with) {_Q}(?!'s)", re.IGNORECASE),
)
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_DECADE = re.compile(
    rf"{_P}{_BE} (?:a [a-z]+ |still |now |well )?(?:(?:man|woman) )?in (?:his|her|my|the|@[?~]?\d+'s) (?P<part>early |middle |mid-?|late )?"
    r"(?P<d>twenties|thirties|forties|fifties|sixties|seventies|eighties|nineties)\b",
    re.IGNORECASE,
)
_PAST = re.compile(
    rf"{_P}{_BE} (?:an? (?:[a-z-]+,? ){{0,3}}(?:man|woman|widow|widower|person) )?(?:well |now |already |just |only )?"
    rf"(?P<side>past|over|not yet|under) (?P<n>{_TENS})(?:-[a-z]+)?(?=[,.;:!?]| and | but | with |$)",
    re.IGNORECASE,
)
_BIRTHDAY = re.compile(
    rf"{_P} (?:would|will) be (?P<n>{dates.NUMBER}) (?:on|at) (?:his|her|@[?~]?\d+'s) next birthday\b", re.IGNORECASE
)
_PARTS = {"early": (0, 4), "mid": (3, 7), "middle": (3, 7), "late": (6, 9)}
_SLACK = 15
_MOST = 200


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield how old somebody is within limits, or next to another."""
    if facts.is_earlier(passage):
        return
    for match in _DECADE.finditer(passage.text):
        ten = 10 * (2 + _TENS.split("|").index(match["d"].lower().replace("ies", "y")))
        low, high = _PARTS.get((match["part"] or "").strip(" -").lower(), (0, 9))
        yield from _aged(passage, roster, match, ("range", (ten + low, ten + high)))
    for match in _PAST.finditer(passage.text):
        years = dates.number(match["n"]) or 0
        above = match["side"].lower() in {"past", "over"}
        yield from _aged(passage, roster, match, ("range", (years, years + _SLACK) if above else (0, years - 1)))
    for match in _BIRTHDAY.finditer(passage.text):
        yield from _aged(passage, roster, match, ("turns", dates.number(match["n"])))
    for rule in (*_OLDER, *_SAME):
        for match in rule.finditer(passage.text):
            yield from _compared(passage, roster, match)


def _aged(passage: Passage, roster: Roster, match: re.Match[str], data: tuple[str, object]) -> Iterator[Fact]:
    number, sure = facts.person(match)
    if roster.is_person(number) and not _is_doubtful(passage, match):
        yield _fact(passage, roster.name(number), number, "age", data, sure)


def _is_doubtful(passage: Passage, match: re.Match[str]) -> bool:
    return passage.text.endswith("?") or bool(
        re.search(
            r"\b(?:if|when|since|before|until|as|like|while|after|looked|seemed)\b[^,]{0,20}$",
            passage.text[: match.start()],
        )
    )


def _compared(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    (one, sure), (other, sure_too) = facts.person(match), facts.person(match, "q")
    stated = match.groupdict().get("n")
    years = 0 if stated is None else 1 if stated.lower() in {"a", "an"} else dates.number(stated)
    if (
        years is None
        or one == other
        or not roster.is_person(one)
        or not roster.is_person(other)
        or _is_doubtful(passage, match)
    ):
        return
    younger = (match.groupdict().get("how") or "").lower() in {"younger", "junior"}
    data = (other, -years if younger else years)
    yield _fact(passage, roster.name(one), one, "age_difference", data, sure and sure_too)
    yield _fact(passage, roster.name(other), other, "age_difference", (one, -data[1]), sure and sure_too)


def _fact(passage: Passage, name: str, number: int, attribute: str, data: object, sure: bool) -> Fact:
    return Fact(
        kind="age",
        attribute=attribute,
        subject=name,
        key=(str(number),),
        value=_said(data),
        data=data,
        passage=passage,
        is_sure=sure,
    )


def _said(data: object) -> str:
    if not isinstance(data, tuple):
        return ""
    how, years = data
    return f"{years[0]} to {years[1]}" if how == "range" else str(years)


def derived(told: Sequence[Fact]) -> list[Fact]:
    """Return the ages that follow from the age of another and the years between them."""
    ages: dict[str, list[Fact]] = {}
    for fact in told:
        if fact.attribute == "age" and fact.is_sure and fact.data[0] in {"is", "turns"}:
            ages.setdefault(fact.key[0], []).append(fact)
    found = []
    for gap in told:
        if gap.attribute != "age_difference" or not gap.is_sure:
            continue
        other, years = gap.data
        for known in ages.get(str(other), ())[:3]:
            age = known.data[1] + years
            # It holds when the other's age was told, and is told where the difference is.
            when = dataclasses.replace(gap.passage, date=known.passage.date, order=known.passage.order, context="")
            if age > 0:
                data = ("range", (age - 1, age + 1))
                found.append(dataclasses.replace(gap, attribute="age", value=_said(data), data=data, passage=when))
    return found[:_MOST]


def is_outside(limits: tuple[int, int], other: Fact, one: Fact) -> bool:
    """Return whether an age lies outside limits that are stated elsewhere."""
    how, years = other.data
    if how == "born":
        return False
    low, high = limits
    low_other, high_other = years if how == "range" else (years, years)
    apart = max(low - high_other, low_other - high)
    return (
        apart > 0 and (apart > 1 or how != "turns") and (one.passage.is_card or other.passage.is_card or apart < _SLACK)
    )
