"""Things: where a place stands, where somebody lives, and of what a thing is made."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_MATERIALS = (
    "brass|iron|silver|gold|golden|copper|bronze|steel|tin|wooden|glass|bone|ivory|stone|lead|leather|paper|pewter|oak|"
    "pewter|clay|marble|tortoiseshell|horn|ebony|mahogany|porcelain|jade|amber|pearl"
)
_STANDS = re.compile(
    rf"(?P<t>{vocabulary.PERSON})(?!'s) (?P<verb>stands|stood|lies|lay|sits|sat|rises|rose|was built|is built|lives|lived|has lived|had lived)"
    rf" (?:[a-z]{{2,12}} ){{0,2}}?(?:on|in|at|near|above|below|off|behind|under) (?:the |old )?"
    rf"(?P<place>{vocabulary.PERSON}|[A-Z][\w'’]{{1,30}}(?: [A-Z][\w'’]{{1,30}}){{0,2}})(?!'s)"
)
_FIELD = frozenset(
    {"location", "located_in", "stands_on", "stands_in", "lives_in", "home", "residence", "place", "lives"}
)
_MADE_OF = re.compile(rf"\b(?:the|that|this|{vocabulary.PERSON}'s) ({_MATERIALS}) ([a-z]{{2,30}})\b", re.IGNORECASE)
_MATERIAL_FIELD = frozenset({"material", "made_of"})


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield locations and materials."""
    if passage.is_card and passage.subject:
        value = passage.text.partition(" : ")[2]
        if passage.field in _FIELD:
            yield from _located(passage, roster, passage.subject, value)
        if passage.field in _MATERIAL_FIELD:
            yield _fact(passage, roster, "material", passage.subject, value, _materials(value))
    for match in _STANDS.finditer(passage.text):
        number, sure = facts.person(match, "t")
        # People stand and sit in many places; only where they live is a fact.
        stays = match["verb"].endswith(("lives", "lived")) or not roster.is_person(number)
        if sure and stays and not facts.is_unreal(passage, match.start(), match.end()):
            yield from _located(passage, roster, number, match["place"])
    heads = _heads(roster)
    for match in _MADE_OF.finditer(passage.text):
        number = heads.get(match[2].lower(), 0)
        if number and not passage.is_spoken:
            yield _fact(passage, roster, "material", number, match[1].lower(), _materials(match[1]))


def _located(passage: Passage, roster: Roster, number: int, place: str) -> Iterator[Fact]:
    named = re.sub(vocabulary.PERSON, lambda m: roster.name(int(m[0].strip("@?~"))), place)
    proper = frozenset(re.findall(r"[A-Z][\w'’]{1,30}(?: [A-Z][\w'’]{1,30}){0,3}", named))
    if proper:
        yield _fact(passage, roster, "location", number, named, proper)


def _heads(roster: Roster) -> dict[str, int]:
    """Return the items whose cards give a material, by the last word of their names where that names one only."""
    found: dict[str, list[int]] = {}
    for entity in roster.entities:
        if entity.kind == "item":
            found.setdefault(entity.name.split()[-1].lower(), []).append(roster.number(entity))
    return {
        head: numbers[0]
        for head, numbers in found.items()
        if len(numbers) == 1 and roster.entities[numbers[0] - 1].first("material")
    }


def _materials(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower().replace("golden", "gold")))


def _fact(passage: Passage, roster: Roster, attribute: str, number: int, value: str, data: frozenset[str]) -> Fact:
    return Fact(
        kind="thing",
        attribute=attribute,
        subject=roster.name(number),
        key=(str(number),),
        value=value,
        data=data,
        passage=passage,
    )


def differ(one: Fact, other: Fact) -> bool:
    """Return whether two places or two materials have nothing in common."""
    first, second = one.data, other.data
    assert isinstance(first, frozenset)
    assert isinstance(second, frozenset)
    return bool(first and second) and not any(a in b or b in a for a in first for b in second)
