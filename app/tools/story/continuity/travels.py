"""Travels: how far it is from one place to another, and how long the way takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from app.tools.story import dates
from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.banks import BUILDINGS
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_METRES = {
    "mile": 1609, "kilometre": 1000, "kilometer": 1000, "km": 1000, "league": 4828, "yard": 0.9144, "foot": 0.3048,
    "feet": 0.3048, "metre": 1, "meter": 1, "fathom": 1.83, "furlong": 201, "klick": 1000, "verst": 1067, "pace": 0.75,
}  # fmt: skip
_MINUTES = {"minute": 1, "hour": 60, "day": 1440, "night": 1440, "week": 10080, "month": 43200}
_N = rf"(?P<n>{dates.NUMBER}|an?(?: quarter of an| half)?|half an?|a hundred|two hundred|three hundred|a dozen|two dozen|a single)"
_UNIT = rf"(?P<u>{'|'.join([*_METRES, *_MINUTES])})s?\b"
_AMOUNT = re.compile(
    rf"\b(?P<h>half an? |quarter of an? )?{_N}(?P<half> and a half)?[- ](?:(?:good|full|long|short|whole|sea|nautical|English) )?{_UNIT}(?P<p>'s?|s')?(?P<half2> and a half)?",
    re.IGNORECASE,
)
_MODES = (
    ("rail", r"train|rail|railway|express"), ("ride", r"rid(?:e|es|ing)|rode|horse\w*|gallop|saddle|mule"),
    ("walk", r"walk\w*|foot|tramp|on foot|march\w*|hike"), ("boat", r"boat|row\w*|sail\w*|ferry|crossing|steamer|water|sea|barge|ship|packet|launch|paddle"),
    ("drive", r"drive|drove|car|road|coach|cart|wagon|bus|motor|lorry|carriage|truck"), ("flight", r"flight|fly|flew|plane|air"),
)  # fmt: skip
_ENDS = re.compile(
    rf"(?P<p>{vocabulary.PERSON})|\b(?:[Tt]he|[Oo]ur|{vocabulary.PERSON}'s) (?:(?!of\b|and\b)[a-z]+ ){{0,1}}?(?P<n>{BUILDINGS}|town|city|harbour|port|coast|border|bridge|"
    r"crossroads|island|summit|gate|gates|railhead|junction|stage door|shore|mainland)\b(?!'s| of)"
)
_TRAVEL = re.compile(
    r"\b(?:from|to|off|away|between|takes?|took|taken|journey|ride|walk|drive|crossing|lies?|lay|distant|distance|upstream|"
    r"downstream|up|down|below|above|beyond|out|along|by|march|sail|trip|passage|road|north|south|east|west|inland|apart|across|of)\b",
    re.IGNORECASE,
)
_PROGRESS = re.compile(
    r"\b(?:had (?:walked|come|gone|ridden|driven|rowed|sailed)|towards?|so far|covered|still to go|left to|to go|remaining|more|further|another|halfway|every)\b",
    re.IGNORECASE,
)
_LIES = re.compile(
    r"as the crow flies|by the (?:old|long|short|coast|upper|lower)|round (?:behind|by)|short ?cut|detour|instead|in (?:this|such) (?:snow|weather|mud|fog)|against the (?:wind|current|tide)",
    re.IGNORECASE,
)
_AWAY = re.compile(
    rf"\b(?:away|off|distant|from here|out|beyond|past)\b|\b(?:ride|walk|drive|journey|sail|march|row|climb|miles|leagues|days|hours) (?:[a-z]+ ){{0,3}}?(?:to|from) {vocabulary.PERSON}(?!'s)"
)
_TOLERANCE = 1.2


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield distances and times between two places."""
    text = passage.text
    if text.endswith("?") or _LIES.search(text):
        return
    for match in _AMOUNT.finditer(text):
        near = text[max(match.start() - 70, 0) : match.end() + 70]
        after = text[match.end() : match.end() + 12]
        if not _TRAVEL.search(near) or re.match(
            r" (?:ago|later|old|before|after|since|wide|deep|high|tall|long\b|thick|being\b)", after
        ):
            continue
        if re.search(r"\bfor $", text[: match.start()]) and not re.search(r"\bto (?:the\b|@)", text):
            continue
        if _PROGRESS.search(text[max(match.start() - 25, 0) : match.end() + 20]) or facts.is_unreal(
            passage, match.start(), match.end()
        ):
            continue
        mode = _mode(near)
        names = _ends(passage, roster, match)
        if len(names) == 1 and (not mode if match["u"].lower() in _MINUTES else not _AWAY.search(near)):
            continue
        if names:
            yield from _fact(passage, match, mode, sorted(names))


def _mode(text: str) -> str:
    return next((name for name, words in _MODES if re.search(rf"\b(?:{words})\b", text, re.IGNORECASE)), "")


def _ends(passage: Passage, roster: Roster, match: re.Match[str]) -> list[str]:
    """Return the one or two places of whose way a sentence speaks: those nearest to the amount, `there` and `here`
    included.
    """
    text = passage.text
    found: dict[str, int] = {}
    if passage.is_card and passage.subject and roster.may_be_place(passage.subject):
        found[roster.name(passage.subject)] = 0
    for stretch in (text, passage.answers) if not found else (text,):
        for end in _ENDS.finditer(stretch):
            number = int(end["p"].strip("@?~")) if end["p"] else 0
            if not number or (roster.may_be_place(number) and number != roster.narrator):
                name = roster.name(number) if number else f"the {end['n'].lower()}"
                gap = abs(end.start() - match.start())
                found[name] = min(gap, found.get(name, gap))
        if found:
            break
    names = sorted(found, key=lambda name: found[name])[:2]
    if len(names) == 1:
        names += _other_end(passage, roster, names[0])[:1]
    return names


def _other_end(passage: Passage, roster: Roster, name: str) -> list[str]:
    """Return the place that `there`, `it` or `here` means in a sentence that names only one."""
    text = passage.text
    there = passage.there if re.search(r"\b(?:there|[Ii]t (?:is|was|lies|lay|took|takes|stands))\b", text) else 0
    here = roster.numbered(passage.place) if re.search(r"\b(?:from here|away|off|distant|out|here)\b", text) else 0
    ends = [number for number in (there, passage.subject, here) if number and roster.may_be_place(number)]
    return [roster.name(number) for number in ends if number != roster.narrator and roster.name(number) != name]


def _fact(passage: Passage, match: re.Match[str], mode: str, names: Sequence[str]) -> Iterator[Fact]:
    unit = match["u"].lower()
    amount = _number(match)
    if amount is None:
        return
    is_time = unit in _MINUTES
    single = (mode,) if len(names) == 1 and is_time else ()
    yield Fact(
        kind="distance_travel",
        attribute="travel_time" if is_time else "distance",
        subject=" and ".join(names),
        key=("time" if is_time else "way", *names, *single),
        value=match[0],
        data=(amount * (_MINUTES[unit] if is_time else _METRES[unit]), mode if is_time else ""),
        passage=passage,
    )


def _number(match: re.Match[str]) -> float | None:
    stated = match["n"].lower()
    if stated.startswith("half"):
        number: float | None = 0.5
    elif "dozen" in stated:
        number = 24 if stated.startswith("two") else 12
    elif stated in {"a", "an", "a single"}:
        number = 1
    elif "half" in stated:
        number = 0.5
    elif "quarter" in stated:
        number = 0.25
    elif "hundred" in stated:
        number = {"a": 100, "two": 200, "three": 300}[stated.split()[0]]
    else:
        number = dates.number(stated)
    if number is not None and (match["half"] or match["half2"]):
        number += 0.5
    return number


def differ(one: Fact, other: Fact) -> bool:
    """Return whether two lengths of a way are further apart than rounding explains."""
    (first, mode), (second, mode_other) = one.data, other.data
    if mode and mode_other and mode != mode_other:
        return False
    return bool(max(first, second) > _TOLERANCE * min(first, second))
