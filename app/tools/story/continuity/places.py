"""Places: the side, distance and travel time of a place, and the material of a thing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from app.tools.story import dates
from app.tools.story.continuity.language import PERSON, Patterns, listed, words
from app.tools.story.continuity.passages import Fact, Passage, fact, number

_BANKS = Patterns("banks")
_TRAVELS = Patterns("travels")
_THINGS = Patterns("things")
_OPPOSITE = {frozenset(pair.split("-")) for pair in listed("opposites")}
_UNIT_LENGTHS = {
    "mile": 1609, "kilometre": 1000, "kilometer": 1000, "km": 1000, "league": 4828, "yard": 0.9144, "foot": 0.3048,
    "feet": 0.3048, "metre": 1, "meter": 1, "fathom": 1.83, "furlong": 201, "klick": 1000, "verst": 1067, "pace": 0.75,
    "minute": 1, "hour": 60, "day": 1440, "night": 1440, "week": 10080, "month": 43200,
}  # fmt: skip
"""Metres of a unit of length, minutes of a unit of time."""
_COUNTS = {"half": 0.5, "two dozen": 24, "dozen": 12, "quarter": 0.25, "two hundred": 200, "three hundred": 300}
_COUNTS |= {"hundred": 100}
_TOLERANCE = 1.2


def read(passage: Passage) -> Iterator[Fact]:
    """Yield sides, distances, times of travel, locations and materials."""
    if not passage.text.endswith("?"):
        if not passage.is_earlier:
            yield from _sides(passage)
        if not _TRAVELS.lies.search(passage.text):
            yield from _ways(passage)
    yield from _locations(passage)
    yield from _materials(passage)


def _sides(passage: Passage) -> Iterator[Fact]:
    for rule in (_BANKS.side, _BANKS.towards, _BANKS.height, _BANKS.looks, _BANKS.faces):
        for match in rule.finditer(passage.text):
            if not passage.is_unreal(match):
                yield from _placed(passage, match)
    yield from _beside(passage)
    name, _, value = passage.text.partition(" : ")
    listed_side = _BANKS.side.search(name) if passage.is_card and passage.field else None
    for part in re.split(r"[,;]| and ", value) if listed_side else ():
        assert listed_side is not None
        yield from _side(passage, part.strip(), listed_side)


def _beside(passage: Passage) -> Iterator[Fact]:
    """Yield which two buildings stand opposite or next to each other."""
    for one, other in itertools.pairwise(_BANKS.phrase.finditer(passage.text)):
        match = _BANKS.beside.match(passage.text[one.end() : other.start()])
        keys = sorted((_key(passage, one["np"]), _key(passage, other["np"])))
        if match and all(keys) and keys[0] != keys[1]:
            how, subject = "opposite" if match["o"] else "next", passage.named(one["np"])
            yield fact(passage, "place_side", subject, f"{how} to {keys[1]}", (how, "beside"), True, "beside", *keys)


def _placed(passage: Passage, match: re.Match[str]) -> Iterator[Fact]:
    text = passage.text
    opening = max(text.rfind(mark, 0, match.start()) for mark in (";", ". ", "!", "—", " : ")) + 1
    before, after = text[opening : match.start()], re.split(r"[;.!?—]", text[match.end() :])[0]
    named = [m for m in _BANKS.phrase.finditer(before) if _key(passage, m["np"])]
    moved = _BANKS.moved.search(passage.clause(match.start()))
    for found in reversed(named):
        gap = before[found.end() :]
        if _BANKS.predicate.search(before[: found.start()]):
            continue
        stands = not moved and _BANKS.standing.search(gap) and _BANKS.between.match(gap)
        # What is seen from a bank, or left for it, does not stand there.
        is_left = _BANKS.apart.search(gap) or (moved and re.search(r"\bto\b", gap))
        if stands or (_BANKS.adjacent.match(gap) and not is_left):
            yield from _side(passage, found["np"], match)
            return
    after_phrases = _phrases_after(passage, after)
    for phrase in after_phrases:
        yield from _side(passage, phrase, match)
    is_field = passage.is_card and passage.field and (_BANKS.field.match(passage.field) or not named)
    if not after_phrases and is_field:
        yield from _side(passage, _subject_of_field(passage), match)


def _phrases_after(passage: Passage, after: str) -> list[str]:
    """Return the buildings that a text such as `on the left bank stood the mill, the school and …` places there."""
    placed: list[str] = []
    placed_end = 0
    for found in _BANKS.phrase.finditer(after):
        gap = after[: found.start()]
        if not _key(passage, found["np"]):
            continue
        if (
            _BANKS.listing.fullmatch(after[placed_end : found.start()])
            if placed
            else (_BANKS.inverted.match(gap) and gap.strip(" ,"))
        ):
            placed.append(found["np"])
            placed_end = found.end()
        elif not placed and gap.strip() == ",":
            return [found["np"]]
    return placed


def _subject_of_field(passage: Passage) -> str:
    label = passage.text.partition(" : ")[0].partition("'s ")[2]
    if _BANKS.building.search(label):
        return label if "@" in label else f"the {label}"
    if words("home_fields") & set(passage.field.split("_")):
        return f"@{passage.subject}'s house"
    return f"@{passage.subject}" if _BANKS.field.match(passage.field) else f"@{passage.subject}'s {label}"


def _side(passage: Passage, phrase: str, match: re.Match[str]) -> Iterator[Fact]:
    key = _key(passage, phrase)
    side = (match["s"] or match["s2"]).lower().replace("-", "")
    kind = (match["b"] or "").lower()
    reference = _reference(passage.named(match["ref"] or ""), kind)
    vague = side in {"near", "far"} or reference in words("seats")
    if not key or vague or (kind in {"edge", "end", "corner"} and not reference):
        return
    apart = re.search(rf"(?i)\b(?:{'|'.join(listed('told_apart'))}) (?:[a-z]+ )?{re.escape(key.split()[-1])}", phrase)
    subject, sure = passage.named(phrase), "?" not in phrase
    named = apart[0].lower() if apart else key
    yield fact(passage, "place_side", subject, f"{side} {kind}".strip(), (side, reference), sure, named)


def _reference(stated: str, kind: str) -> str:
    """Return the kind of side: `bank` for a river's, a wing or an aisle, else the last word of the name."""
    if kind in {"wing", "aisle", "slope", "wall", "face"}:
        return kind
    found = re.findall(r"[a-z]+", _BANKS.beyond.split(stated.lower())[0])
    of_water = (kind in words("banks") or not kind) and found and found[-1] in words("waters")
    if kind in {"bank", "shore"} or of_water:
        return "bank"
    return found[-1] if found else ""


def _key(passage: Passage, phrase: str) -> str:
    """Return the word that identifies a building, with its owner if the word alone is ambiguous."""
    roster = passage.roster
    named = re.fullmatch(rf"(?:[Tt]he )?({PERSON})", phrase.strip())
    if named:
        who = number(named[1])
        place = not roster.is_person(who) or roster.may_be_place(who)
        return roster.name(who).lower().removeprefix("the ").split()[-1] if place else ""
    owner = re.search(rf"({PERSON})(?:'s|$)", phrase)
    bare = re.sub(rf" of {PERSON}$", "", phrase)
    head = next(reversed(_BANKS.building.findall(bare.lower())), "")
    if not head and _BANKS.proper.fullmatch(phrase):
        return phrase.lower().split()[-1]
    if head not in words("generic_buildings"):
        return head
    made = re.search(rf"([a-z]+) {head}$", re.sub(rf"{PERSON}'s ", "", bare.lower()))
    if made and made[1] not in words("plain"):
        return f"{made[1]} {head}"
    other = re.search(r"(\w+)(?:'s|s') ", re.sub(PERSON, "", bare))
    whose = roster.name(number(owner[1])).lower() if owner else other[1] if other else ""
    return f"{whose} {head}" if whose else ""


def is_opposite_side(one: Fact, other: Fact) -> bool:
    """Return whether two sides of one thing are opposite."""
    (first, reference), (second, reference_other) = one.data, other.data
    same = reference == reference_other or "" in {reference, reference_other}
    return same and frozenset({first, second}) in _OPPOSITE


def _ways(passage: Passage) -> Iterator[Fact]:
    text = passage.text
    for match in _TRAVELS.amount.finditer(text):
        near = text[max(match.start() - 70, 0) : match.end() + 70]
        if not _TRAVELS.travel.search(near) or _TRAVELS.not_far.match(text, match.end()):
            continue
        if text.endswith(" for ", 0, match.start()) and not _TRAVELS.has_goal.search(text):
            continue
        progress = _TRAVELS.progress.search(text[max(match.start() - 25, 0) : match.end() + 20])
        if progress or passage.is_unreal(match):
            continue
        mode = next((name for name, rule in _TRAVELS.named("modes").items() if rule.search(near)), "")
        places = _ends(passage, match)
        is_time = match["u"].lower() in words("minutes")
        length = _length(match)
        single = len(places) == 1
        if not places or length is None or (single and (not mode if is_time else not _TRAVELS.away.search(near))):
            continue
        key = ("time" if is_time else "way", *sorted(places), *((mode,) if single and is_time else ()))
        attribute = "travel_time" if is_time else "distance"
        subject, data = " and ".join(sorted(places)), (length, mode if is_time else "")
        yield fact(passage, attribute, subject, match[0], data, True, *key)


def _ends(passage: Passage, match: re.Match[str]) -> list[str]:
    """Return the one or two places nearest to the amount; `there` and `here` count."""
    roster, found = passage.roster, dict[str, int]()
    if passage.is_card and passage.subject and roster.may_be_place(passage.subject):
        found[roster.name(passage.subject)] = 0
    for stretch in (passage.text, passage.answers) if not found else (passage.text,):
        for end in _TRAVELS.ends.finditer(stretch):
            who = number(end["p"]) if end["p"] else 0
            if not who or (roster.may_be_place(who) and who != roster.narrator):
                name = roster.name(who) if who else f"the {end['n'].lower()}"
                gap = abs(end.start() - match.start())
                found[name] = min(gap, found.get(name, gap))
        if found:
            # A place that the passage itself names has precedence over the question that it answers.
            break
    named = sorted(found, key=lambda name: found[name])[:2]
    return named + _other_end(passage, named[0])[:1] if len(named) == 1 else named


def _other_end(passage: Passage, name: str) -> list[str]:
    """Return the place that `there`, `it` or `here` means in a sentence that names only one other place."""
    roster = passage.roster
    there = passage.there if _TRAVELS.there.search(passage.text) else 0
    here = roster.numbered(passage.place) if _TRAVELS.here.search(passage.text) else 0
    ends = [end for end in (there, passage.subject, here) if end and roster.may_be_place(end)]
    return [roster.name(end) for end in ends if end != roster.narrator and roster.name(end) != name]


def _length(match: re.Match[str]) -> float | None:
    stated = match["n"].lower()
    count: float | None = next((value for word, value in _COUNTS.items() if word in stated), None)
    if count is None:
        count = 1 if stated in {"a", "an", "a single"} else dates.number(stated)
    if count is None:
        return None
    return (count + (0.5 if match["half"] or match["half2"] else 0)) * _UNIT_LENGTHS[match["u"].lower()]


def is_other_length(one: Fact, other: Fact) -> bool:
    """Return whether two lengths of a way differ by more than rounding explains."""
    (first, mode), (second, mode_other) = one.data, other.data
    if mode and mode_other and mode != mode_other:
        return False
    return bool(max(first, second) > _TOLERANCE * min(first, second))


def _locations(passage: Passage) -> Iterator[Fact]:
    stated: list[tuple[int, str]] = []
    if passage.is_card and passage.subject and passage.field in words("location_fields"):
        stated.append((passage.subject, passage.value))
    for match in _THINGS.stands.finditer(passage.text):
        # People stand and sit in many places; only the place where they live is a fact.
        who = number(match["t"])
        stays = match["verb"].endswith(("lives", "lived")) or not passage.roster.is_person(who)
        if "?" not in match["t"] and stays and not passage.is_unreal(match):
            stated.append((who, match["place"]))
    for who, place in stated:
        named = passage.named(place)
        proper = frozenset(_THINGS.proper.findall(named))
        if proper:
            yield fact(passage, "location", who, named, proper)


def _materials(passage: Passage) -> Iterator[Fact]:
    if passage.is_card and passage.subject and passage.field in {"material", "made_of"}:
        yield fact(passage, "material", passage.subject, passage.value, _made_of(passage.value))
    for match in _THINGS.made_of.finditer(passage.text):
        item = passage.roster.cast.by_head.get(match[2].lower())
        if item and not passage.is_spoken:
            who, material = passage.roster.number(item), match[1].lower()
            yield fact(passage, "material", who, material, _made_of(material))


def _made_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower().replace("golden", "gold")))


def has_nothing_in_common(one: Fact, other: Fact) -> bool:
    """Return whether two places or two materials have nothing in common."""
    return bool(one.data and other.data) and not any(a in b or b in a for a in one.data for b in other.data)
