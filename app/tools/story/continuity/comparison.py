"""The comparison: read cards and scenes, gather their facts, and return those that contradict each other."""

# A text that names both values acknowledges the difference: hair is dyed, a boast is corrected. Such pairs are not
# reported, except for ranks, sides and deaths, whose words are too common. A false alarm costs a writer more than
# a miss.

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from app import printable
from app.domain import plain
from app.tools import bounds, findings
from app.tools.story import dates, documents, names, prose
from app.tools.story.continuity import ages, bodies, calendar, cards, deaths, objects, places, reader, relations
from app.tools.story.continuity.language import Patterns
from app.tools.story.continuity.passages import Fact, Passage
from app.tools.story.continuity.roster import Roster
from app.tools.story.scenes import Scene

_P = Patterns("comparison")
_READERS = (ages, bodies, places, deaths, calendar, relations, objects)
_DIFFER: dict[str, Callable[[Fact, Fact], bool]] = {
    "age": ages.differ,
    "eye_colour": bodies.is_other_colour,
    "hair_colour": bodies.is_other_colour,
    "beard_colour": bodies.is_other_colour,
    "side": bodies.is_other_side,
    "hand": bodies.is_other_side,
    "place_side": places.is_opposite_side,
    "distance": places.is_other_length,
    "travel_time": places.is_other_length,
    "location": places.has_nothing_in_common,
    "material": places.has_nothing_in_common,
    "status": deaths.is_alive_after,
    "died": deaths.is_other_death,
    "cause": objects.is_other_value,
    "date": calendar.is_other_date,
    "weekday": calendar.is_other_weekday,
    "rank": relations.excludes,
    "trade": relations.excludes,
    "relation": relations.excludes,
    "owner": objects.is_other_value,
    "possession": objects.is_other_value,
}
"""Functions that decide whether two facts of an attribute exclude each other."""
_KEPT_IN_DOUBT = frozenset({"age", "appearance", "rank_relation"})
_UNNAMED = frozenset({"status", "died", "cause", "rank", "trade", "side", "distance", "travel_time"})
"""Attributes whose values have too many wordings to be recognised in a text."""
_VERSIONS = 40
_FACTS = 20_000
_OPENING_LINES = 12
_FILES_NAMED, _PATHS = 3, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two facts that cannot both be true."""

    one: Fact  # The earlier one, or the card's.
    other: Fact  # The later one.
    versions: tuple[Fact, ...] = ()  # All statements about it, one for each value.


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The facts that were read, and the result of comparing them."""

    contradictions: list[Contradiction] = field(default_factory=list)  # Pairs that cannot both be true.
    facts: list[Fact] = field(default_factory=list)  # All facts, in the order of the files.
    comparisons: int = 0  # Pairs of facts that were compared.
    cards: list[cards.Card] = field(default_factory=list)  # The cards.
    roster: Roster  # The cast.
    unread: list[str] = field(default_factory=list)  # Paths of cards and scenes in which no fact was found.
    is_cut: bool = False  # Whether there are more facts than are compared.

    def counts(self) -> dict[str, plain.Json]:
        """Return the counts that payloads contain."""
        return {
            "fact_count": len(self.facts),
            "comparison_count": self.comparisons,
            "unread_count": len(self.unread),
            "unread": self.unread[:_PATHS],
            "truncated": self.is_cut,
        }

    def summary(self, conflicts: int, remark: str = "") -> str:
        """Return `0 conflicts in 14 comparisons of 24 facts; 2 scenes without readable facts: a.md, b.md`.

        Args:
            remark: What was not compared.
        """
        counted = findings.counted
        spoken = f"{counted(conflicts, 'conflict')} in {counted(self.comparisons, 'comparison')} of "
        spoken += (
            counted(len(self.facts), "fact") + remark + ("; further facts were not compared" if self.is_cut else "")
        )
        on_cards = {card.path for card in self.cards}
        for noun, is_card in (("card", True), ("scene", False)):
            paths = [path.rsplit("/", 1)[-1] for path in self.unread if (path in on_cards) is is_card]
            if paths:
                named = printable.listed(paths, _FILES_NAMED)
                spoken += f"; {counted(len(paths), noun)} without readable facts: {named}"
        return bounds.clipped(spoken, bounds.SUMMARY_CHARACTERS)


def compare(narrated: Sequence[Scene], canon: Sequence[documents.Document]) -> Comparison:
    """Compare scenes and cards, each with each."""
    scene_documents = [scene.document for scene in narrated]
    known = {word for s in names.certain(names.sightings(scene_documents)) for word in s.name.split()}
    found = [card for document in canon for card in cards.read(document, known)]
    roster = Roster(found, scene_documents)
    result = Comparison(cards=found, roster=roster)
    stated_on_cards = list(_of_cards(found, roster))
    # Relations first: afterwards, `his brother` in a scene is a known person.
    for stated in (stated for passage in stated_on_cards for stated in relations.read(passage)):
        if stated.attribute == "relation" and stated.is_sure:
            roster.learn_relation(int(stated.key[0]), int(stated.key[1]), stated.data)
    passages = [*stated_on_cards, *_of_scenes(narrated, roster)]
    # A bound for hostile input; a story of normal length stays far below.
    for passage in passages:
        if len(result.facts) < _FACTS:
            read = (stated for rules in _READERS for stated in rules.read(passage))
            result.facts += {(stated.attribute, stated.key, stated.value): stated for stated in read}.values()
    result.is_cut = len(result.facts) >= _FACTS
    result.facts = _firm(result.facts)
    _contradict(result, passages)
    paths_read = {stated.passage.path for stated in result.facts}
    paths = dict.fromkeys(document.path for document in [*canon, *scene_documents])
    result.unread = [path for path in paths if path not in paths_read]
    return result


def _of_cards(found: Sequence[cards.Card], roster: Roster) -> Iterator[Passage]:
    for card in found:
        who = roster.number(card.entity)
        for index, line in enumerate(card.lines):
            name, _, value = line.text.partition(" : ")
            text = reader.of_line(value if line.field else line.text, who, roster)
            if line.field:
                label = reader.of_line(name, who, roster) if _P.full_name.search(name) else name.lower()
                text = f"@{who}'s {name if re.search('[0-9]', name) else label} : {text}"
            document = card.entity.document
            yield Passage(
                text=text,
                path=card.path,
                line=line.line,
                quote=bounds.clipped(document.lines[line.line - 1] if document else line.text),
                context=line.text.lower(),
                order=-1,
                index=index,
                roster=roster,
                subject=who,
                field=line.field,
            )


def _of_scenes(narrated: Sequence[Scene], roster: Roster) -> Iterator[Passage]:
    unnamed = _narrator(roster)
    years = _years(narrated)
    for order, scene in enumerate(narrated):
        narrator = roster.numbered(scene.pov) or _writer(scene.document, roster) or unnamed
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
                roster=roster,
                date=scene.date,
            )
        yield from reader.Reader(
            roster,
            scene.path,
            order,
            narrator=narrator,
            date=scene.date or years.get(scene.path),
            number=scene.number,
            is_alone=len(narrated) == 1,
            is_flashback=scene.is_flashback,
            place=scene.place,
        ).read(prose.paragraphs(scene.document))


def _writer(document: documents.Document, roster: Roster) -> int:
    """Return the writer of a diary or letter, from the scene's heading; 0 if it names none."""
    match = _P.written.search(document.title)
    who = roster.numbered(match[1] or match[2]) if match else 0
    return who if roster.is_person(who) else 0


def _years(narrated: Sequence[Scene]) -> dict[str, dates.StoryDate]:
    """Return the years of undated scenes: that of the last dated scene, or of the first whole date."""
    found: dict[str, dates.StoryDate] = {}
    year: int | None = None
    for scene in narrated:
        if scene.date is not None and scene.date.year is not None and not scene.is_flashback:
            year = scene.date.year
        elif year is None:
            text = " ".join(scene.document.lines[:_OPENING_LINES])
            stated = (
                date.year
                for date in dates.find(text)
                if date.year and not _P.told_back.search(text, max(date.start - 60, 0), date.start)
            )
            year = next(stated, None)
        if year is not None and scene.date is None:
            found[scene.path] = dates.StoryDate(year=year)
    return found


def _narrator(roster: Roster) -> int:
    """Return the narrator of the story: the one that a card names, or the unnamed narrator."""
    for entity in roster.entities[:-1]:
        is_person = entity.document and roster.is_person(roster.number(entity))
        if entity.document and is_person and _P.teller.search("\n".join(entity.document.lines).lower()):
            return roster.number(entity)
    return roster.narrator


def _firm(narrated: Sequence[Fact]) -> list[Fact]:
    """Return the facts that are firm enough to be compared.

    Uncertain looks, ages and relations are compared, too; their findings are warnings. An uncertain side of a mark is
    compared if the mark is certain for exactly this person.
    """
    sure = [stated for stated in narrated if stated.is_sure]
    bearers: dict[tuple[str, ...], set[str]] = {}
    for stated in sure:
        if stated.attribute == "side":
            bearers.setdefault(stated.key[1:], set()).add(stated.key[0])
    return [
        stated
        for stated in narrated
        if stated.is_sure
        or stated.kind in _KEPT_IN_DOUBT
        or (stated.attribute == "side" and bearers.get(stated.key[1:]) == {stated.key[0]})
    ]


def _contradict(result: Comparison, passages: Sequence[Passage]) -> None:
    for pairs in (
        calendar.next_days(result.facts),
        calendar.interval_conflicts(result.facts, passages),
        objects.conflicts(passages),
    ):
        result.contradictions += [Contradiction(one=one, other=other, versions=(one, other)) for one, other in pairs]
    groups: dict[tuple[str, ...], list[Fact]] = {}
    for stated in [*result.facts, *ages.derived(result.facts)]:
        groups.setdefault((stated.attribute, *stated.key), []).append(stated)
    for (attribute, *_), narrated in groups.items():
        if attribute not in _DIFFER:
            continue
        if attribute == "weekday":
            narrated = calendar.usual_weekdays(narrated)
        elif attribute == "status":
            narrated = _counted_deaths(narrated)
        _contradict_group(result, narrated, attribute)


def _counted_deaths(narrated: Sequence[Fact]) -> list[Fact]:
    """Return the deaths to compare: if a scene narrates one or one is dated, undated ones of cards are left out."""
    is_dated = any(stated.value == "dead" and deaths.is_dated(stated) for stated in narrated)
    return [stated for stated in narrated if not (is_dated and stated.value == "dead" and not deaths.is_dated(stated))]


def _contradict_group(result: Comparison, narrated: Sequence[Fact], attribute: str) -> None:
    """Compare the versions of one fact with each other; report each one that contradicts an earlier one once."""
    versions = _versions(narrated)
    changes = [stated.passage.position for stated in versions if stated.value == "changed"]
    versions = [stated for stated in versions if stated.value != "changed"]
    reported: set[str] = set()
    for position, other in enumerate(versions):
        for one in versions[:position]:
            result.comparisons += 1
            start, end = one.passage.position, other.passage.position
            if (
                one.passage is other.passage
                or other.value in reported
                # A change that a card reports has no place in the story, and may be between any two.
                or any(start <= change <= end or change[0] < 0 for change in changes)
                or not _DIFFER[attribute](one, other)
                or _is_aware(one, other)
                or _is_aware(other, one)
            ):
                continue
            reported.add(other.value)
            pair = attribute == "status"
            shown = (one, other) if pair else tuple(versions)
            result.contradictions.append(Contradiction(one=one, other=other, versions=shown))


def _versions(narrated: Sequence[Fact]) -> list[Fact]:
    first: dict[tuple[str, str, str], Fact] = {}
    for stated in sorted(narrated, key=lambda stated: stated.passage.position):
        first.setdefault((stated.value, stated.passage.path, str(stated.data)), stated)
    return list(first.values())[:_VERSIONS]


def _is_aware(one: Fact, other: Fact) -> bool:
    """Return whether the text about one fact also names the other's value, and so acknowledges the difference."""
    if one.passage.is_card:
        return False
    return any(_is_named(word, one.passage.context) for word in _value_words(other) - _value_words(one))


def _is_named(word: str, context: str) -> bool:
    return any(
        not _P.denied.search(context[max(found.start() - 30, 0) : found.start()])
        for found in re.finditer(rf"\b{re.escape(word)}\b", context)
    )


def _value_words(stated: Fact) -> set[str]:
    attribute, value, data = stated.attribute, stated.value.lower(), stated.data
    if attribute == "age":
        return {str(data[1]), dates.in_words(data[1])} if isinstance(data[1], int) else set()
    if attribute == "place_side":
        return {stated.value, "other bank", "other side"}
    if attribute == "weekday":
        return {value.split()[0]}
    if attribute == "date" and data.day:
        return {value}
    if attribute in _UNNAMED:
        return set()
    return {word for word in re.findall(r"[a-z]+", value) if len(word) > 2}
