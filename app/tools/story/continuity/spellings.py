"""Spellings: one name written in two ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from app.tools.story import documents, names, prose
from app.tools.story.continuity import language
from app.tools.story.continuity.cards import Card

_P = language.Patterns("spellings")
_SHORTEST = 3
_LONG = 6
_USES = 40


def right_names(cards: Sequence[Card]) -> list[str]:
    """Return the correct names: those of the cards' subjects, and whole names that cards mention."""
    written = list({card.path: card.entity.document for card in cards if card.entity.document}.values())
    mentioned = [s.name for s in names.certain(names.sightings(written)) if len(s.name.split()) > 1]
    return [*(alias for card in cards for alias in card.entity.aliases), *dict.fromkeys(mentioned)]


def slips(
    scenes: Sequence[documents.Document], known: Sequence[str]
) -> Iterator[tuple[names.Slip, names.Sighting | None]]:
    """Yield names that are probably misspelt forms of another one, each with a place of that other one."""
    written = _Names(names.sightings(scenes), known)
    common = {word for document in scenes for line in document.lines for word in re.findall(r"\b[a-z]{3,}\b", line)}
    paragraphs = [p.text for document in scenes for p in prose.paragraphs(document)]
    reported: set[str] = set()
    for slip in (*written.near_others(common, paragraphs), *written.beside_surname(), *written.after_title()):
        if slip.name not in reported:
            reported.add(slip.name)
            yield slip, written.first.get(slip.intended)


class _Names:
    def __init__(self, seen: Sequence[names.Sighting], known: Sequence[str]) -> None:
        self._seen = seen
        self._known = known
        self._right = {word for name in known for word in name.split()}
        self.first: dict[str, names.Sighting] = {}
        self._counts: Counter[str] = Counter()
        self._surnames: dict[str, set[str]] = {}
        for sighting in seen:
            parts = sighting.name.split()
            for word in parts:
                self.first.setdefault(word, sighting)
                self._counts[word] += 1
                beside = {other for other in parts if other != word and other.lower() not in language.words("titles")}
                self._surnames.setdefault(word, set()).update(beside)

    def near_others(self, common: set[str], paragraphs: Sequence[str]) -> Iterator[names.Slip]:
        """Yield words that differ little from a name and are not names themselves."""
        for slip in names.slips(self._seen, [re.sub(r"['’]s\b", "", name) for name in self._known]):
            # `Marks` beside `Mark` is a plural.
            plural = slip.name.endswith("s") and slip.name.rstrip("s") in self._counts
            if slip.intended.lower() in common or plural or self._is_own_name(slip):
                continue
            if len(slip.name) < _LONG and self._is_place(slip.intended) != self._is_place(slip.name):
                continue
            if not any(slip.name in text and _is_distinguished(slip, text) for text in paragraphs):
                yield slip

    def beside_surname(self) -> Iterator[names.Slip]:
        """Yield first names that differ by one letter from the one that a card has with the same surname."""
        pairs = {tuple(name.split()) for name in self._known if len(name.split()) == 2}
        for sighting in self._seen:
            parts = tuple(sighting.name.split())
            if len(parts) != 2 or parts in pairs or parts[0] in self._right or len(parts[0]) < _SHORTEST:
                continue
            for params, surname in pairs:
                if surname == parts[1] and names.distance(parts[0], params) == 1:
                    yield self._slip(parts[0], params, sighting)

    def after_title(self) -> Iterator[names.Slip]:
        """Yield `Father Corwin` where the text also has `Father Corvin`."""
        titled: dict[str, list[str]] = {}
        for sighting in self._seen:
            title, _, name = sighting.name.partition(" ")
            if title.lower() not in language.words("titles") - language.words("common_titles") or " " in name:
                continue
            others = titled.setdefault(title, [])
            near = next((other for other in others if other != name and names.distance(other, name) == 1), None)
            rare = near and len(name) > _SHORTEST and self._counts[name] <= self._counts[near]
            if near and rare and name not in self._right:
                yield self._slip(name, near, sighting)
            others.extend([name] if name else [])

    def _slip(self, name: str, intended: str, sighting: names.Sighting) -> names.Slip:
        counts = self._counts
        return names.Slip(
            name=name, intended=intended, sighting=sighting, count=counts[name], intended_count=counts[intended]
        )

    def _is_place(self, word: str) -> bool:
        uses = [s.quote.partition(word)[0] for s in self._seen if word in s.name.split()][:_USES]
        return 2 * sum(bool(_P.located.search(before)) for before in uses) > len(uses)

    def _is_own_name(self, slip: names.Slip) -> bool:
        long, short = sorted((slip.name, slip.intended), key=len, reverse=True)
        if long.startswith(short) and long[len(short) :] in language.words("suffixes"):
            return True
        if _P.introduced.search(slip.sighting.quote) and slip.intended in slip.sighting.quote:
            return True
        intended_count = self._counts[slip.intended]
        surnames, theirs = self._surnames.get(slip.name, set()), set(self._surnames.get(slip.intended, ()))
        for parts in (name.split() for name in self._known):
            if slip.intended in parts:
                theirs |= {word for word in parts if word != slip.intended}
        is_place = _P.located.search(slip.sighting.quote.partition(slip.name)[0])
        if is_place and slip.count < intended_count and not surnames:
            return False
        shared = surnames & theirs
        if slip.intended not in self._right and slip.count > 1 and not shared and intended_count < 4 * slip.count:
            return True
        apart = bool(surnames and theirs and not shared)
        # A name that is common and not much rarer than the other is a separate name.
        return apart or (slip.count > 3 and slip.count * 2 > intended_count)


def _is_distinguished(slip: names.Slip, text: str) -> bool:
    """Return whether a paragraph has both spellings and mentions names, and so acknowledges the difference."""
    both = all(re.search(rf"\b{re.escape(name)}\b", text) for name in (slip.name, slip.intended))
    return both and _P.speaks_of_names.search(text) is not None
