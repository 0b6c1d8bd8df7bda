"""Spellings: one name written in two ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from app.tools.story import documents, names, prose
from app.tools.story.continuity.cards import TITLES, Card

_INTRODUCED = re.compile(
    r"\b(?:spel\w+|misspel\w+|pronounc\w+|short for|nickname\w*|christened|called (?:her|him|me)|not \w+|calls? (?:her|him|me)|known as|"
    r"with (?:an?|one|two) [\"“'‘]?\w{1,2}\b|brothers?|sisters?|twins?|cousins?|two)\b",
    re.IGNORECASE,
)
_SPEAKS_OF_NAMES = re.compile(
    r"\b(?:names?|named|spel\w+|letters?|might be|perhaps|confus\w+|mistak\w+|without)\b", re.IGNORECASE
)
_SUFFIXES = ("y", "ie", "ey", "kin", "ette", "chen", "s", "ian", "an", "ish", "er", "ers", "ese", "i", "in", "en")
_LOCATED = re.compile(r"\b(?:in|at|near|from|to|through|towards?) $")
_SHORTEST = 3
_LONG = 6
_USES = 40
_COMMON_TITLES = frozenset({"mr", "old", "young"})


def right_names(cards: Sequence[Card]) -> list[str]:
    """Return the names that are right as they are: of the cards' subjects, and whole names that cards mention."""
    written = list({card.path: card.entity.document for card in cards if card.entity.document}.values())
    mentioned = [s.name for s in names.certain(names.sightings(written)) if len(s.name.split()) > 1]
    return [*(alias for card in cards for alias in card.entity.aliases), *dict.fromkeys(mentioned)]


def slips(
    scenes: Sequence[documents.Document], known: Sequence[str]
) -> Iterator[tuple[names.Slip, names.Sighting | None]]:
    """Yield names that are probably another one misspelt, each with the place where the other one stands."""
    seen = names.sightings(scenes)
    first: dict[str, names.Sighting] = {}
    neighbours: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for sighting in seen:
        words = sighting.name.split()
        for word in words:
            first.setdefault(word, sighting)
            counts[word] += 1
            neighbours.setdefault(word, set()).update(other for other in words if other != word)
    reported: set[str] = set()
    common = {word for document in scenes for line in document.lines for word in re.findall(r"\b[a-z]{3,}\b", line)}
    right = [re.sub(r"['’]s\b", "", name) for name in known]
    paragraphs = [p.text for document in scenes for p in prose.paragraphs(document)]
    for slip in names.slips(seen, right):
        if any(slip.name in text and _told_apart(slip, text) for text in paragraphs):
            continue
        if slip.intended.lower() in common or (slip.name.rstrip("s") in counts and slip.name.endswith("s")):
            continue
        if _is_own_name(slip, counts, neighbours, known):
            continue
        if len(slip.name) < _LONG and _is_place(slip.intended, seen) != _is_place(slip.name, seen):
            continue
        reported.add(slip.name)
        yield slip, first.get(slip.intended)
    yield from _beside_surname(seen, known, counts, first, reported)
    yield from _after_title(seen, known, counts, first, reported)


def _told_apart(slip: names.Slip, text: str) -> bool:
    """Return whether a paragraph has both spellings and speaks of names: it knows of the difference."""
    both = all(re.search(rf"\b{re.escape(name)}\b", text) for name in (slip.name, slip.intended))
    return both and _SPEAKS_OF_NAMES.search(text) is not None


def _is_place(word: str, seen: Sequence[names.Sighting]) -> bool:
    """Return whether a name mostly follows `in`, `at` or another word of place."""
    uses = [s.quote.partition(word)[0] for s in seen if word in s.name.split()][:_USES]
    return 2 * sum(bool(_LOCATED.search(before)) for before in uses) > len(uses)


def _beside_surname(
    seen: Sequence[names.Sighting],
    known: Sequence[str],
    counts: Counter[str],
    first: dict[str, names.Sighting],
    reported: set[str],
) -> Iterator[tuple[names.Slip, names.Sighting | None]]:
    """Yield first names, short ones too, that differ by a letter from the one that a card gives
    with the same surname.
    """
    pairs = {tuple(name.split()) for name in known if len(name.split()) == 2}
    words = {word for name in known for word in name.split()}
    for sighting in seen:
        parts = sighting.name.split()
        if len(parts) != 2 or tuple(parts) in pairs or parts[0] in words or parts[0] in reported:
            continue
        for given, surname in pairs:
            if surname == parts[1] and len(parts[0]) >= _SHORTEST and names.distance(parts[0], given) == 1:
                reported.add(parts[0])
                slip = names.Slip(
                    name=parts[0],
                    intended=given,
                    sighting=sighting,
                    count=counts[parts[0]],
                    intended_count=counts[given],
                )
                yield slip, first.get(given)


def _after_title(
    seen: Sequence[names.Sighting],
    known: Sequence[str],
    counts: Counter[str],
    first: dict[str, names.Sighting],
    reported: set[str],
) -> Iterator[tuple[names.Slip, names.Sighting | None]]:
    """Yield `Father Corwin` where the text also has `Father Corvin`, once each."""
    words = {word for name in known for word in name.split()}
    titled: dict[str, list[str]] = {}
    for sighting in seen:
        title, _, name = sighting.name.partition(" ")
        if title.lower() in TITLES and title.lower() not in _COMMON_TITLES and name and " " not in name:
            others = titled.setdefault(title, [])
            near = next((other for other in others if other != name and names.distance(other, name) == 1), None)
            if (
                near
                and name not in words
                and name not in reported
                and len(name) > _SHORTEST
                and counts[name] <= counts[near]
            ):
                reported.add(name)
                slip = names.Slip(
                    name=name, intended=near, sighting=sighting, count=counts[name], intended_count=counts[near]
                )
                yield slip, first.get(near)
            others.append(name)


def _is_own_name(slip: names.Slip, counts: Counter[str], neighbours: dict[str, set[str]], known: Sequence[str]) -> bool:
    """Return whether the other spelling is a name of its own: a diminutive, a derived word or another person."""
    long, short = sorted((slip.name, slip.intended), key=len, reverse=True)
    if long.startswith(short) and long[len(short) :] in _SUFFIXES:
        return True
    if _INTRODUCED.search(slip.sighting.quote) and slip.intended in slip.sighting.quote:
        return True
    surnames = {word for word in neighbours.get(slip.name, set()) if word.lower() not in TITLES}
    surnames_intended = {word for word in neighbours.get(slip.intended, set()) if word.lower() not in TITLES}
    for name in known:
        words = name.split()
        if slip.intended in words:
            surnames_intended |= {word for word in words if word != slip.intended}
    apart = bool(surnames) and bool(surnames_intended) and not surnames & surnames_intended
    if (
        _LOCATED.search(slip.sighting.quote.partition(slip.name)[0])
        and slip.count < counts[slip.intended]
        and not surnames
    ):
        return False
    certain = any(slip.intended in name.split() for name in known)
    if not certain and slip.count > 1 and not surnames & surnames_intended and counts[slip.intended] < 4 * slip.count:
        return True
    return apart or (slip.count > 3 and slip.count * 2 > counts[slip.intended])
