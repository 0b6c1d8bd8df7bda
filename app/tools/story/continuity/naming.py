"""Naming: the words that refer to a person: titles, offices, short forms of first names."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.tools.story import documents, names
from app.tools.story.canon import Entity
from app.tools.story.continuity import language

_P = language.Patterns("naming")
_SURE_ENDS = ("man", "woman", "ist", "tress", "smith", "wright", "maid", "monger", "keeper", "master", "maker")
_OFFICE_ENDS = (*_SURE_ENDS, "er", "or", "ess", "ward", "ant", "ian")
_ABBREVIATED = dict(pair.split(":") for pair in language.listed("abbreviated_titles"))
_SHORT = {long: short.split(",") for long, short in (pair.split(":") for pair in language.listed("short_names"))}


def pronoun_of(name: str) -> str | None:
    """Return the pronoun that a first name suggests: those of a common list, or `-a` for a woman."""
    parts = name.lower().split()
    if parts and (parts[0] in _ABBREVIATED or parts[0].strip(".") in {"mr", "sir", "lord"}):
        parts = parts[1:]
    first = parts[0] if parts else ""
    if first in language.words("he", "she"):
        return "he" if first in language.words("he") else "she"
    is_she = len(parts) > 1 and len(first) > 3 and first.endswith(("a", "ette", "elle", "ine"))
    return "she" if is_she else None


def titles(seen: Iterable[names.Sighting], small: Iterable[str]) -> frozenset[str]:
    """Return the words that are titles before names: known ones, and `Overseer`, if an overseer is also written small."""
    written = frozenset(small)
    openers = {sighting.name.partition(" ")[0].lower().strip(".") for sighting in seen if " " in sighting.name}
    return language.words("titles") | {title for title in openers if title in written and is_office(title)}


def is_office(word: str, *, strict: bool = False) -> bool:
    """Return whether a word names a person by an office: `bailiff`, `ferryman`, `granary keeper`."""
    last = re.split("[ -]", word)[-1]
    if last in language.words("no_office", "kinship"):
        return False
    known = language.words("offices", "trades", "ranks")
    return bool({last, word} & known) or (len(last) > 4 and last.endswith(_SURE_ENDS if strict else _OFFICE_ENDS))


def with_offices(entities: Sequence[Entity], texts: Sequence[documents.Document]) -> list[Entity]:
    """Let `the vicar` mean the person introduced as `the vicar, Mr Lisle` or `Lisle, the vicar`."""
    by_alias = _bearers(entities)
    bearers: dict[str, set[str]] = {}
    matches = (
        match
        for document in texts
        for line in document.lines
        for rule in _P.rules("apposed")
        for match in rule.finditer(line)
    )
    for match in matches:
        owner = _owner(match["n"], by_alias)
        if owner and _is_person(owner) and is_office(match["r"], strict="," not in match[0]):
            for role in {match["r"], match["r"].split()[-1]}:
                bearers.setdefault(f"the {role}", set()).add(owner.name)
    for entity in entities:
        for alias in entity.aliases:
            if alias.startswith("the ") and alias[4:5].islower():
                bearers.setdefault(alias, set()).add(entity.name)
    return _added(entities, bearers)


def with_titles(entities: Sequence[Entity], seen: Sequence[names.Sighting], known: frozenset[str]) -> list[Entity]:
    """Let `the Major` mean Major Voss where there is no other major, and `Overseer Pruitt` the only Pruitt."""
    bearers: dict[str, set[str]] = {}
    by_alias = _bearers(entities)
    family: dict[str, list[Entity]] = {}
    for entity in entities:
        if " " in entity.name and _is_person(entity):
            family.setdefault(entity.name.split()[-1], []).append(entity)
    for title, pronoun in language.classes("addresses").items():
        for surname, members in family.items():
            fitting = [member for member in members if (member.pronoun or pronoun_of(member.name)) == pronoun]
            if len(fitting) == 1 and len(members) > 1:
                bearers.setdefault(f"{title} {surname}", set()).add(fitting[0].name)
    for sighting in seen:
        title, _, rest = sighting.name.partition(" ")
        bare = title.lower().strip(".")
        if rest and bare in known and bare not in language.words("familiar"):
            owner = _owner(rest, by_alias)
            for word in (title, bare, _ABBREVIATED.get(bare, bare)):
                bearers.setdefault(f"the {word}", set()).add(owner.name if owner else "?")
    return _added(entities, bearers)


def with_short_names(entities: Sequence[Entity], seen: Sequence[names.Sighting]) -> list[Entity]:
    """Let `Billy Sayers` mean William Sayers, and `Billy` the only William."""
    written = {sighting.name for sighting in seen}
    bearers: dict[str, set[str]] = {}
    for entity in entities:
        first, _, rest = entity.name.partition(" ")
        for short in map(str.capitalize, _SHORT.get(first.lower(), ())):
            for alias in {f"{short} {rest.split()[-1]}" if rest else short, short} & written:
                bearers.setdefault(alias, set()).add(entity.name)
    return _added(entities, bearers)


def _is_person(entity: Entity) -> bool:
    return entity.kind in {"character", "unknown"}


def _bearers(entities: Sequence[Entity]) -> dict[str, Entity]:
    count = Counter(alias for entity in entities for alias in set(entity.aliases))
    return {
        alias: entity for entity in entities for alias in entity.aliases if count[alias] == 1 and alias[:1].isupper()
    }


def _owner(name: str, by_alias: Mapping[str, Entity]) -> Entity | None:
    parts = name.split()
    return next((by_alias[tail] for start in range(len(parts)) if (tail := " ".join(parts[start:])) in by_alias), None)


def _added(entities: Sequence[Entity], bearers: Mapping[str, set[str]]) -> list[Entity]:
    taken = Counter(alias for entity in entities for alias in set(entity.aliases))
    shared = {alias for alias, owners in bearers.items() if len(owners) > 1}
    further: dict[str, list[str]] = {}
    for alias, owners in bearers.items():
        further.setdefault(next(iter(owners)), []).extend([] if alias in shared else [alias])
    found = []
    for entity in entities:
        own = [alias for alias in entity.aliases if alias not in shared or alias == entity.name]
        own += [alias for alias in further.get(entity.name, ()) if not taken[alias] or alias in entity.aliases]
        found.append(dataclasses.replace(entity, aliases=tuple(dict.fromkeys(own))))
    return found
