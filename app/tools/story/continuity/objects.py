"""Objects: the owner, place and fate of a thing, followed over sentences, including those with `it`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.tools.story import dates
from app.tools.story.continuity.language import PERSON, Patterns, words
from app.tools.story.continuity.passages import Fact, Passage, clause, fact, number, person

_P = Patterns("objects")
_OWNED = Patterns("possessions")
_PRONOUNS_REACH = 8
_APART = 6
_ENDS = 400


def read(passage: Passage) -> Iterator[Fact]:
    """Yield the owners of things, and the places where they are kept."""
    text, roster = passage.text, passage.roster
    if passage.is_card and passage.subject and not roster.is_person(passage.subject):
        owner = re.match(rf"(?:the )?({PERSON})", passage.value)
        if owner and _OWNED.owner_field.match(passage.field):
            yield _owned(passage, passage.subject, number(owner[1]), True)
    if text.endswith("?") or passage.is_flashback:
        return
    for match in () if passage.is_spoken else _OWNED.owned.finditer(text):
        who, sure = person(match, "p" if match["p"] else "p2")
        item = number(match["i"] or match["i2"])
        if roster.is_person(who) and roster.entities[item - 1].kind == "item":
            yield _owned(passage, item, who, sure)
    for match in (*_OWNED.kept.finditer(text), *_OWNED.keeps.finditer(text)):
        key, where = _key(passage, match["it"]), _head(re.sub(PERSON + "'s", "the", match["where"]))
        if key and where and not passage.is_unreal(match):
            yield fact(passage, "possession", passage.named(match["it"]), match["where"], where, True, key)


def _owned(passage: Passage, item: int, owner: int, sure: bool) -> Fact:
    roster = passage.roster
    return fact(passage, "owner", item, roster.name(owner), owner, sure, _head(roster.name(item)))


def _key(passage: Passage, phrase: str) -> str:
    """Return the word that identifies an item, empty if it is too common."""
    if re.fullmatch(r"@[?~]?\d+", phrase):
        item = number(phrase)
        return "" if passage.roster.is_person(item) else _head(passage.roster.name(item))
    named = re.sub(rf"(?i)^(?:{PERSON}'s|the|that|this|its|an?) ", "", phrase).lower().split()
    head = named[-1].removesuffix("'s") if named else ""
    if head not in words("common_things"):
        return head
    return f"{named[-2]} {head}" if len(named) > 1 else ""


def _head(phrase: str) -> str:
    found = re.findall(r"[a-z][\w-]*", re.split(r"\b(?:of|with|from)\b", phrase.lower())[0])
    return found[-1] if found else ""


def is_other_value(one: Fact, other: Fact) -> bool:
    """Return whether two facts differ in owner, place or cause."""
    return bool(one.data != other.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """An object in the words of a sentence."""

    head: str  # Its noun.
    number: str  # Its number, if it has one.
    traits: frozenset[str]  # Words before the noun.
    owner: str  # Its stated owner: a number of the cast, or `mother` for the mother of a person.
    is_named: bool = True  # Whether the sentence names it, rather than only using `it`.
    is_known: bool = True  # Whether it is definite: `the watch`, not `a watch`.

    @property
    def materials(self) -> frozenset[str]:
        """The traits that distinguish it from others."""
        return self.traits & words("traits")

    def may_be(self, other: Thing) -> bool:
        """Return whether two sentences can mean one object."""
        pairs = ((self.number, other.number), (self.owner, other.owner))
        if self.head != other.head or any(one and two and one != two for one, two in pairs):
            return False
        return not self.materials or not other.materials or bool(self.materials & other.materials)


def conflicts(passages: Sequence[Passage]) -> Iterator[tuple[Fact, Fact]]:
    """Yield pairs of facts: an object is destroyed or given away, and later it appears, or its giver still has it."""
    fates: dict[str, tuple[Fact, Thing]] = {}
    last: Thing | None = None
    reach, path = 0, ""
    for passage in passages:
        if passage.is_flashback:
            continue
        # `It` does not refer back further than this, or into another file.
        if passage.path != path or passage.index - reach > _PRONOUNS_REACH:
            last = None
        path = passage.path
        marked, things = _marked(passage, last)
        if passage.is_card and passage.subject and not passage.roster.is_person(passage.subject):
            fates.update(_of_card(passage))
        if things:
            last, reach = things[-1], passage.index
        elif last is None:
            continue
        for thing in {thing.head: thing for thing in things}.values():
            fate = fates.get(thing.head)
            if fate and not _is_same_place(fate[0], passage) and _is_back(fate, thing, marked.text):
                del fates[thing.head]
        yield from _present(marked, things, fates)
        for what, who, thing in _ends(marked, things, last):
            fates.setdefault(thing.head, (_fate(passage, thing, what, who), thing))
        if len(fates) > _ENDS:
            return


def _fate(passage: Passage, thing: Thing, what: str, who: int = 0) -> Fact:
    shown = " ".join(["the", *sorted(thing.materials), thing.head, thing.number]).strip()
    return fact(passage, "possession", shown, what, (what, who), True, thing.head)


def _of_card(passage: Passage) -> dict[str, tuple[Fact, Thing]]:
    if not _P.card_gone.search(passage.text) or re.search(r"\bnot\b|\bnever\b", passage.text):
        return {}
    name = passage.roster.name(passage.subject)
    found = dates.find(passage.text, bare_years=True)
    owner = re.match(r"(.+)['’]s ", name)
    whose = passage.roster.numbered(owner[1]) if owner else 0
    head = name.lower().split()[-1]
    thing = Thing(head=head, number="", traits=frozenset(), owner=str(whose or ""))
    return {head: (_fate(dataclasses.replace(passage, date=found[0] if found else None), thing, "gone"), thing)}


def _is_back(fate: tuple[Fact, Thing], thing: Thing, text: str) -> bool:
    if not fate[1].may_be(thing) or not thing.is_known:
        return not thing.is_known and thing.is_named and _P.anew.search(text) is not None
    found = (fate[0].value == "gone" or _P.found_again.search(text)) and _P.found.search(text)
    return bool(_P.regained.search(text) or found)


def _marked(passage: Passage, last: Thing | None) -> tuple[Passage, list[Thing]]:
    """Return a passage with its objects replaced by `#0`, `#1`, …, and the objects; `it` is the one named last."""
    things: list[Thing] = []

    def noted(match: re.Match[str]) -> str:
        things.append(_thing(match))
        return f"#{len(things) - 1}"

    text = _P.thing.sub(noted, passage.text)
    named = len(things)

    def meant(match: re.Match[str]) -> str:
        before = [int(found) for found in re.findall(r"#(\d+)", text[: match.start()])]
        thing = things[before[-1]] if before and before[-1] < named else last
        if thing is None:
            return match[0]
        things.append(dataclasses.replace(thing, is_named=False, is_known=True))
        return f"#{len(things) - 1}"

    return dataclasses.replace(passage, text=_P.it.sub(meant, text)), things


def _thing(match: re.Match[str]) -> Thing:
    owner = re.match(r"@[?~]?(\d+)'s(?: (\S+)'s)?", match["det"] or "")
    return Thing(
        head=match["head"].lower(),
        number=re.sub(r"\D", "", match["n"] or ""),
        traits=frozenset(re.findall(r"[a-z-]+", match["adj"].lower())),
        owner=(owner[2] or owner[1]).strip("@?~") if owner else "",
        is_known=bool(match["n"]) or (match["det"] or "").lower() not in {"a", "an"},
    )


def _ends(marked: Passage, things: Sequence[Thing], last: Thing | None) -> Iterator[tuple[str, int, Thing]]:
    text = marked.text
    if text.rstrip("\"'”’").endswith("?"):
        return
    for rule in _P.rules("gone"):
        for match in rule.finditer(text):
            index = next((group for group in match.groups() if group), None)
            thing = things[int(index)] if index else last
            if thing and not marked.is_unreal(match) and not _is_meant(text, match):
                yield "gone", 0, thing
    for match in _P.put_in.finditer(text) if _P.hearth.search(marked.context) else ():
        yield "gone", 0, things[int(match["t"])]
    for rule in _P.rules("parted"):
        for match in rule.finditer(text):
            who, sure = person(match)
            if sure and "~" not in match["p"] and not marked.is_unreal(match) and not _is_meant(text, match):
                yield "parted", who, things[int(match["t"])]
    for match in _P.left.finditer(text):
        who, sure = person(match, "p" if match["p"] else "q")
        if sure and not _is_meant(text, match):
            yield "parted", who, things[int(match["t"] or match["t2"])]
    for match in _P.stolen.finditer(text):
        thing = things[int(match["t"])]
        if thing.owner.isdigit():
            yield "parted", int(thing.owner), thing
    for match in _P.gift.finditer(text) if marked.is_spoken and marked.speaker else ():
        if _P.for_good.search(marked.context) and not _P.not_yours.search(text[: match.start()].lower()):
            yield "parted", marked.speaker, things[int(match["t"])]


def _is_meant(text: str, match: re.Match[str]) -> bool:
    """Return whether the text only intends it, or sets it at another time."""
    before = clause(text, match.start()) + match[0]
    return bool(_P.intended.search(before[: before.find("#") + 1 or None])) and " had " not in before


def _present(
    marked: Passage, things: Sequence[Thing], fates: dict[str, tuple[Fact, Thing]]
) -> Iterator[tuple[Fact, Fact]]:
    """Yield the end of each object that nevertheless appears in a passage."""
    # An object that is only mentioned may be gone.
    if marked.is_spoken or marked.is_card or not fates:
        return
    for match in re.finditer(r"#(\d+)", marked.text):
        thing = things[int(match[1])]
        fate = fates.get(thing.head) if thing.is_named and thing.is_known else None
        if fate is None or not fate[1].may_be(thing) or _is_same_place(fate[0], marked):
            continue
        before = marked.clause(match.start())
        # An object is present if a person handles it or it appears; a memory of it does not count.
        handled = _P.handled.search(before) or _P.shows.match(marked.text, match.end())
        if _P.not_handled.search(before) or not handled:
            continue
        if fate[0].passage.is_card and not thing.traits <= words("traits"):
            continue
        what, who = fate[0].data
        opening = dataclasses.replace(marked, text=marked.text[: match.start()])
        holder, sure = opening.bearer(match.start(), match.start())
        if what == "gone" or (sure and holder == who and (not thing.owner.isdigit() or int(thing.owner) == who)):
            del fates[thing.head]
            yield fate[0], _fate(marked, thing, "there", holder)


def _is_same_place(stated: Fact, passage: Passage) -> bool:
    one = stated.passage
    if one.is_card:
        return one.date is not None and (passage.date is None or not one.date.is_before(passage.date))
    return one.order == passage.order and passage.index - one.index < _APART
