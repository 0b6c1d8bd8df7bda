"""Ranks, trades and kinship."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story.continuity.language import PERSON, Patterns, classes, listed
from app.tools.story.continuity.passages import Fact, Passage, fact, number, person
from app.tools.story.continuity.roster import INVERSE

_P = Patterns("relations")
_COMPATIBLE = [set(pair.split("/")) for pair in listed("compatible_kinship")]


def read(passage: Passage) -> Iterator[Fact]:
    """Yield ranks, trades and relations between people."""
    if not passage.text.endswith("?"):
        yield from _offices(passage)
        yield from _kinships(passage)


def _offices(passage: Passage) -> Iterator[Fact]:
    text, subject = passage.text, passage.subject if passage.is_card else 0
    named = {number(found) for found in re.findall(PERSON, text)}
    ranks = set(_P.any_rank.findall(text.lower()))
    if _P.promoted.search(text) and not passage.is_card:
        for who in named if ranks else ():
            if passage.roster.is_person(who):
                yield fact(passage, "rank", who, "changed", "")
        return
    if subject and not named - {subject} and len(ranks) > 1:
        yield fact(passage, "rank", subject, "changed", "")
        return
    found = [
        (match, who, sure)
        for match, who, sure in passage.people(_P.titled, *_P.rules("offices"))
        if not (match.re is _P.titled and _P.church.search(text[: match.start("p")])) and not passage.is_unreal(match)
    ]
    if passage.roster.is_person(subject):
        trade = None if passage.field else _P.card_trade.match(text)
        found += [(own, subject, True) for own in (trade, _P.card_rank.match(text)) if own]
    for match, who, sure in found:
        attribute = "rank" if "r" in match.re.groupindex else "trade"
        office = match["r" if attribute == "rank" else "t"].lower()
        yield fact(passage, attribute, who, office, office, sure)


def _kinships(passage: Passage) -> Iterator[Fact]:
    text = passage.text
    for match, one, sure in passage.people(*_P.rules("kinships")):
        if not _P.like.search(passage.clause(match.start("k"))) and not passage.is_unreal(match):
            yield from _related(passage, one, match["q"], match["k"], sure)
    for match, one, sure in passage.people(_P.mutual, _P.married):
        stated = match.groupdict().get("k", "married").lower()
        word = classes("couples").get(stated.replace(" ", "-"), stated.rstrip("s"))
        yield from _related(passage, one, match["q"], word, sure)
    if not passage.is_card or not passage.subject:
        return
    own = _P.card_kin.search(text)
    subject = f"@{passage.subject}"
    for match in (*_P.family_part.finditer(text), *([own] if own else [])):
        yield from _related(passage, person(match)[0], subject, match["k"])
    for match in _P.family_name.finditer(text):
        if not text.startswith(" of ", match.end("k")):
            yield from _related(passage, passage.subject, match["p"], match["k"])


def _related(passage: Passage, one: int, named: str, word: str, sure: bool = True) -> Iterator[Fact]:
    """Yield the relation of another person to `one`; the pair gets a fixed order, and an inverted pair the inverse relation."""
    other, relation = number(named), classes("kinship").get(word.lower())
    roster = passage.roster
    if one == other or not relation or not (roster.is_person(one) and roster.is_person(other)):
        return
    if one > other:
        one, other, relation = other, one, INVERSE.get(relation, relation)
    pair = f"{roster.name(one)} and {roster.name(other)}"
    is_sure = sure and ("?" not in named)
    yield fact(passage, "relation", pair, word.lower(), relation, is_sure, str(one), str(other))


def excludes(one: Fact, other: Fact) -> bool:
    """Return whether one person cannot have both."""
    first, second = one.data, other.data
    if first == second or not first or not second:
        return False
    if one.attribute == "rank":
        return bool(set(classes("ranks")[first].split()) & set(classes("ranks")[second].split()))
    if one.attribute == "trade":
        return first not in second and second not in first
    return {first, second} not in _COMPATIBLE
