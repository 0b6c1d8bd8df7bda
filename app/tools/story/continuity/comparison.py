"""The comparison: read cards and scenes, gather their facts, and return which contradict each other."""

# A text that names both values knows of the difference: hair is dyed, a boast is corrected. Such pairs are not
# reported, except for ranks, sides and deaths, whose words stand everywhere. A false alarm costs a writer more than
# a miss.

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from app.tools import bounds
from app.tools.story import dates, documents, prose
from app.tools.story.continuity import (
    ages,
    appearances,
    banks,
    calendar_dates,
    cards,
    deaths,
    facts,
    intervals,
    objects,
    passages,
    possessions,
    relations,
    relative_ages,
    sides,
    things,
    travels,
)
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster
from app.tools.story.scenes import Scene

_READERS: tuple[facts.Read, ...] = (
    ages.read,
    relative_ages.read,
    appearances.read,
    sides.read,
    banks.read,
    deaths.read,
    calendar_dates.read,
    intervals.read,
    travels.read,
    relations.read,
    possessions.read,
    things.read,
)
_DIFFER: dict[str, Callable[[Fact, Fact], bool]] = {
    "age": ages.differ,
    "appearance": appearances.differ,
    "side": sides.differ,
    "place_side": banks.differ,
    "death": deaths.differ,
    "dates_order": calendar_dates.differ,
    "distance_travel": travels.differ,
    "rank_relation": relations.differ,
    "possession": possessions.differ,
    "thing": things.differ,
}
_KEPT_IN_DOUBT = frozenset({"age", "appearance", "rank_relation"})
_VERSIONS = 40
_FACTS = 20_000
_OPENING_LINES = 12
_WRITTEN = re.compile(
    r"\b(?:[Dd]iary|[Jj]ournal|[Ll]etter|[Ll]og|[Nn]otebook|[Ss]tatement|[Tt]estimony|[Dd]eposition|[Mm]emoir|[Cc]onfession|[Nn]arrative)s? (?:of|from|by) (.+)"
    r"|^(.{3,40}?) (?:to|writes to) [A-Z]"
)
_NAMED = re.compile(r"['’]s \w|\b[A-Z][\w.]+ [A-Z]")
_FIGURE = re.compile(r"\d")
_TOLD_BACK = re.compile(r"\b(?:had|born|since|died|built|founded|until|ago)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two facts that cannot both be true."""

    one: Fact
    """The earlier one, or the card's."""
    other: Fact
    """The later one."""
    versions: tuple[Fact, ...] = ()
    """All that is said of it, one for each value."""


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What was read and what came of it."""

    contradictions: list[Contradiction] = field(default_factory=list)
    """What cannot both be true."""
    facts: list[Fact] = field(default_factory=list)
    """All facts, in the order of the files."""
    comparisons: int = 0
    """Pairs of facts that were compared."""
    cards: list[cards.Card] = field(default_factory=list)
    """The cards."""
    roster: Roster
    """The cast."""
    unread: list[str] = field(default_factory=list)
    """Paths of cards and scenes in which no fact was found."""


def compare(told: Sequence[Scene], canon: Sequence[documents.Document]) -> Comparison:
    """Compare scenes and cards, each with each."""
    documents_told = [scene.document for scene in told]
    known = _names(documents_told)
    found = [card for document in canon for card in cards.read(document, known)]
    roster = Roster(found, documents_told)
    result = Comparison(cards=found, roster=roster)
    stated_on_cards = list(_of_cards(found, roster))
    for fact in (fact for passage in stated_on_cards for fact in relations.read(passage, roster)):
        if fact.attribute == "relation" and fact.is_sure:
            roster.learn_relation(int(fact.key[0]), int(fact.key[1]), fact.data)
    read = [*stated_on_cards, *_of_scenes(told, roster)]
    for passage in read:
        if len(result.facts) < _FACTS:
            read_off = (fact for rule in _READERS for fact in rule(passage, roster))
            result.facts += {(fact.attribute, fact.key, fact.value): fact for fact in read_off}.values()
    result.facts = _firm(result.facts)
    _contradict(result, read)
    stated = {fact.passage.path for fact in result.facts}
    paths = [document.path for document in [*canon, *documents_told]]
    result.unread = [path for path in dict.fromkeys(paths) if path not in stated]
    return result


def _names(scenes_told: Sequence[documents.Document]) -> set[str]:
    from app.tools.story import names

    return {word for s in names.certain(names.sightings(scenes_told)) for word in s.name.split()}


def _of_cards(found: Sequence[cards.Card], roster: Roster) -> Iterator[Passage]:
    for card in found:
        number = roster.number(card.entity)
        for index, line in enumerate(card.lines):
            name, _, value = line.text.partition(" : ")
            label = passages.of_line(name, number, roster) if _NAMED.search(name) else name.lower()
            normal = passages.of_line(value if line.field else line.text, number, roster)
            yield Passage(
                text=f"@{number}'s {name if _FIGURE.search(name) else label} : {normal}" if line.field else normal,
                path=card.path,
                line=line.line,
                quote=bounds.clipped(card.entity.document.lines[line.line - 1] if card.entity.document else line.text),
                context=line.text.lower(),
                order=-1,
                index=index,
                subject=number,
                field=line.field,
            )


def _of_scenes(told: Sequence[Scene], roster: Roster) -> Iterator[Passage]:
    teller = _teller(told, roster)
    years = _years(told)
    for order, scene in enumerate(told):
        narrator = roster.numbered(scene.pov) or _writer(scene.document, roster) or teller
        reader = passages.Reader(
            roster,
            scene.path,
            order,
            narrator=narrator,
            date=scene.date or years.get(scene.path),
            number=scene.number,
            is_alone=len(told) == 1,
            is_flashback=scene.is_flashback,
            place=scene.place,
        )
        line = scene.document.front_matter_lines.get("date")
        if line:
            yield Passage(
                text=scene.document.scalar("date") or "",
                path=scene.path,
                line=line,
                quote=scene.document.lines[line - 1],
                context="",
                order=order,
                index=0,
                date=scene.date,
            )
        yield from reader.read(prose.paragraphs(scene.document))


def _writer(document: documents.Document, roster: Roster) -> int:
    """Return whose diary or letter a scene is by its heading, 0 if it says none."""
    match = _WRITTEN.search(document.title)
    number = roster.numbered(match[1] or match[2]) if match else 0
    return number if roster.is_person(number) else 0


def _years(told: Sequence[Scene]) -> dict[str, dates.StoryDate]:
    """Return the year in which undated scenes play: that of the last dated scene, or of the first whole date in the
    prose.
    """
    found: dict[str, dates.StoryDate] = {}
    year: int | None = None
    for scene in told:
        if scene.date is not None and scene.date.year is not None and not scene.is_flashback:
            year = scene.date.year
        elif year is None:
            text = " ".join(scene.document.lines[:_OPENING_LINES])
            whole = [
                d for d in dates.find(text) if d.year and not _TOLD_BACK.search(text, max(d.start - 60, 0), d.start)
            ]
            year = whole[0].year if whole else None
        if year is not None and scene.date is None:
            found[scene.path] = dates.StoryDate(year=year)
    return found


def _teller(told: Sequence[Scene], roster: Roster) -> int:
    """Return who tells the story: whom a card calls its narrator, or the unnamed narrator."""
    for entity in roster.entities[:-1]:
        text = (
            "\n".join(entity.document.lines).lower()
            if entity.document and roster.is_person(roster.number(entity))
            else ""
        )
        if re.search(r"\bnarrator\b|\btells the story\b|\bfirst[- ]person\b", text):
            return roster.number(entity)
    return roster.narrator


def _firm(told: Sequence[Fact]) -> list[Fact]:
    """Return the facts that are firm enough to be compared.

    Looks, ages and relations are compared in doubt, too; their findings are warnings. Elsewhere, where a pronoun may mean
    another, a mark that only one person has tells who is meant, and so does a known relation.
    """
    sure = [fact for fact in told if fact.is_sure]
    bearers: dict[tuple[str, ...], set[str]] = {}
    for fact in sure:
        if fact.attribute == "side":
            bearers.setdefault(fact.key[1:], set()).add(fact.key[0])
    related = {fact.key for fact in sure if fact.attribute == "relation"}
    return [
        fact
        for fact in told
        if fact.is_sure
        or fact.kind in _KEPT_IN_DOUBT
        or (fact.attribute == "side" and bearers.get(fact.key[1:]) == {fact.key[0]})
        or (fact.attribute == "relation" and fact.key in related)
    ]


def _contradict(result: Comparison, read: Sequence[Passage]) -> None:
    groups: dict[tuple[str, ...], list[Fact]] = {}
    for fact in [*result.facts, *relative_ages.derived(result.facts)]:
        groups.setdefault((fact.kind, fact.attribute, *fact.key), []).append(fact)
    days = [fact for fact in result.facts if fact.attribute in {"weekday", "next_day"}]
    result.contradictions += [
        Contradiction(one=one, other=other, versions=(one, other)) for one, other in calendar_dates.next_days(days)
    ]
    result.contradictions += [
        Contradiction(one=one, other=other, versions=(one, other))
        for one, other in intervals.conflicts(result.facts, read)
    ]
    result.contradictions += [
        Contradiction(one=one, other=other, versions=(one, other))
        for one, other in objects.conflicts(read, result.roster)
    ]
    for (kind, attribute, *_), told in groups.items():
        if attribute in {"interval", "age_difference"}:
            continue
        if attribute == "status":
            _contradict_deaths(result, told)
        else:
            _contradict_group(
                result, calendar_dates.usual_weekdays(told) if attribute == "weekday" else told, _DIFFER[kind]
            )


def _contradict_deaths(result: Comparison, told: Sequence[Fact]) -> None:
    """Find who acts after a death; a death that scenes tell themselves counts from there, whatever a card says."""
    narrated = any(fact.value == "dead" and not fact.passage.is_card for fact in told)
    dated = narrated or any(fact.value == "dead" and fact.data[1] is not None for fact in told)
    counted = [fact for fact in told if not (dated and fact.value == "dead" and not deaths.is_dated(fact))]
    before = len(result.contradictions)
    _contradict_group(result, counted, deaths.differ)
    result.contradictions[before:] = [
        Contradiction(one=entry.one, other=entry.other, versions=(entry.one, entry.other))
        for entry in result.contradictions[before:]
    ]


def _contradict_group(result: Comparison, told: Sequence[Fact], differ: Callable[[Fact, Fact], bool]) -> None:
    """Hold the versions of one thing against each other; each that contradicts an earlier one is found once."""
    versions = _versions(told)
    changes = [_place(fact) for fact in versions if fact.value == "changed"]
    versions = [fact for fact in versions if fact.value != "changed"]
    reported: set[str] = set()
    for position, other in enumerate(versions):
        for one in versions[:position]:
            result.comparisons += 1
            if (
                one.passage is other.passage
                or other.value in reported
                or any(_place(one) <= change <= _place(other) or change[0] < 0 for change in changes)
                or not differ(one, other)
                or _is_aware(one, other)
                or _is_aware(other, one)
            ):
                continue
            reported.add(other.value)
            result.contradictions.append(Contradiction(one=one, other=other, versions=tuple(versions)))


def _place(fact: Fact) -> tuple[int, int]:
    return fact.passage.order, fact.passage.index


def _versions(told: Sequence[Fact]) -> list[Fact]:
    """Return the first facts of each value in each file, cards first."""
    first: dict[tuple[str, str, str], Fact] = {}
    for fact in sorted(told, key=lambda fact: (fact.passage.order, fact.passage.index)):
        first.setdefault((fact.value, fact.passage.path, str(fact.data)), fact)
    return list(first.values())[:_VERSIONS]


def _is_aware(one: Fact, other: Fact) -> bool:
    """Return whether the text about one fact also names the other's value: then it knows of the difference."""
    if one.passage.is_card:
        return False
    words = _value_words(other) - _value_words(one)
    return any(_is_named(word, one.passage.context) for word in words)


def _is_named(word: str, context: str) -> bool:
    """Return whether a text names a value without denying it."""
    return any(
        not re.search(
            r"(?:\b(?:not|never|without|no)\b|n['’]t\b)[^.;]{0,18}$",
            context[max(found.start() - 30, 0) : found.start()],
        )
        for found in re.finditer(rf"\b{re.escape(word)}\b", context)
    )


def _value_words(fact: Fact) -> set[str]:
    if fact.kind == "age":
        years = fact.data[1] if isinstance(fact.data, tuple) else 0
        return {str(years), dates.in_words(years)} if isinstance(years, int) else set()
    if fact.kind == "death" or fact.attribute in {"rank", "trade", "side"}:
        return set()
    if fact.kind == "place_side":
        return {fact.value, "other bank", "other side"}
    if fact.attribute == "date" and isinstance(fact.data, dates.StoryDate) and fact.data.day:
        return {fact.value.lower()}
    if fact.attribute == "weekday":
        return {fact.value.split()[0].lower()}
    if fact.kind == "distance_travel":
        return set()
    return {word for word in re.findall(r"[a-z]+", fact.value.lower()) if len(word) > 2}
