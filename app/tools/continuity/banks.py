"""
Banks and sides: on which side of a river, a street or a square something stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.continuity import facts, vocabulary
from app.tools.continuity.facts import Fact
from app.tools.continuity.passages import Passage
from app.tools.continuity.roster import Roster

_OPPOSITE = {
    "east": "west", "north": "south", "left": "right", "near": "far", "sunny": "shady", "upper": "lower",
    "sun": "shade", "weather": "lee", "river": "land", "landward": "seaward", "port": "starboard", "odd": "even", "this": "other", "up": "down",
    "top": "bottom", "head": "foot",
}  # fmt: skip
_OPPOSITE |= {value: key for key, value in _OPPOSITE.items()}
_S = r"(?P<s>(?:north|south)?-?(?:east|west)|north|south|left|right|near|far|sunny|sun|shady|shade|shadow|landward|seaward|river|land|even|odd|weather|lee|upper|lower)(?P<x>ern)?(?:-hand|wards?|erly)?"
_B = r"(?P<b>bank|side|shore|edge|end|slope|corner|quay|arm|wall|face|wing|pavement|half)"
_SIDE = re.compile(
    rf"\b(?:the )?{_S} {_B}\b(?: of (?P<ref>(?:the |{vocabulary.PERSON}'s )?[^,.;:!?()—]{{2,40}}))?", re.IGNORECASE
)
_REVERSED = re.compile(rf"\b(?P<ref>[a-z ]{{3,30}}), (?:the |on the )?{_S} {_B}\b", re.IGNORECASE)
_VERBS = (
    r"(?:stands?|stood|lies|lay|is|was|were|are|sits|sat|rises|rose|ran|runs|leans|leaned|stretche[sd]|spread|crouche[sd]|"
    r"has stood|had stood|had been|has been|lives?|lived|kept|keeps|built|perched|huddled|clung|clings|faced|faces|"
    r"begins?|began|opened|opens|occupie[sd]|backs|backed|hung|squatted)"
)
_NP = rf"(?:(?:[Tt]he )?{vocabulary.PERSON}(?!'s)|(?:[Tt]he|{vocabulary.PERSON}'s|[Oo]ur|[Tt]heir|[Aa]n?|[Oo]ld) (?:[\w'-]+ ){{0,3}}?[\w'-]+|{vocabulary.PERSON}|[A-Z][\w'’]+(?: [A-Z][\w'’]+){{0,3}})"
_SUBJECT = re.compile(
    rf"(?P<np>{_NP})(?:,? (?:which|that))?(?:,[^,.;]{{1,60}},)?(?: (?:had |has |still |always |also |itself )*{_VERBS})\b[^.;!?]{{0,110}}$"
)
_APPOSED = re.compile(
    rf"(?P<np>{_NP}),? (?:there |standing |lying |over |just |down |up |out )?(?:on|at|along|by|from) $"
)
_INVERTED = re.compile(rf"(?: (?:of|from) [^,.;@]{{3,30}})?,? (?:(?:and )?(?:there|where) )?{_VERBS} (?P<np>{_NP})")
_FACES = re.compile(
    r"\b(?P<np>(?:[Tt]he|[Oo]ur|[Tt]heir|@[?~]?\d+'s) (?:[\w'-]+ ){0,2}?(?:chapel|church|mill|inn|school|tower|hall|barn|barracks|hospital|convent)|@\d+) "
    r"(?:faced|faces|fronted|looked|looks) (?:due )?(?P<s>north|south|east|west)\b"
)
_DIRECTION = re.compile(
    rf"(?P<np>{_NP}) (?:lies|lay|stands|stood|is|was) (?:(?!not\b)[\w-]+ ){{0,3}}?(?P<s>(?:north|south)?-?(?:east|west)|north|south) of (?:the )?(?P<ref>{vocabulary.PERSON}|[a-z]+)\b"
)
_HEIGHT = re.compile(
    r"\bat the (?:very )?(?P<s>top|bottom|head|foot) of (?:the )?(?P<ref>valley|dale|street|village|hill|lane|town|road|glen|cliff|garden|pass|@\d+)\b"
)
_TOLD_APART = re.compile(
    r"\b(?:upper|lower|other|second|first|third|new|old|big|little|great|north|south|east|west)\b", re.IGNORECASE
)
_SEATS = frozenset({"table", "bed", "bench", "room", "boat", "deck", "line", "queue", "row"})
_GENERIC = frozenset(
    "house home shop door window room cottage farm building hut shed place path road lane boat man woman people he she it "
    "they one corner lamp light tree trees side table chair gate stair stairs water river town city street line bed wall rest".split()
)
_MOVED = re.compile(
    r"\b(?:moved|first|old one|once|formerly|used to|rebuilt|grandfather's|until|before|other bank|crossed|cross|crossing|"
    r"walked|rowed|swam|went|came|climbed|drove|rode|as you|going|coming|facing|faced|heading|not)\b",
    re.IGNORECASE,
)
_SMALL = frozenset("the a an old his her our their of on in at to and".split())


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """
    Yield what stands on which side.
    """
    text = passage.text
    for match in _SIDE.finditer(text):
        yield from _placed(passage, roster, match)
    for match in _FACES.finditer(text):
        yield from _stated(passage, roster, match["np"], match, "front")
    for match in _DIRECTION.finditer(text):
        yield from _stated(passage, roster, match["np"], match, f"of {_named(match['ref'], roster)}")
    for match in _HEIGHT.finditer(text):
        before = text[: match.start()]
        found = _SUBJECT.search(before) or _APPOSED.search(before)
        if found and "@" not in match["ref"]:
            yield from _stated(passage, roster, found["np"], match, match["ref"])
    if passage.is_card and passage.field:
        yield from _listed(passage, roster)


def _placed(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    text = passage.text
    before = text[: match.start()]
    found = _SUBJECT.search(before) or _APPOSED.search(before) or _INVERTED.match(text[match.end() :])
    if found is None and passage.is_card and " : " in before:
        phrase = _field_phrase(passage, roster)
    elif found is None:
        return
    else:
        phrase = found["np"]
    if _MOVED.search(facts.clause(text, match.start())) or facts.is_unreal(passage, match.start(), match.end()):
        return
    nested = re.search(r"\bin (the [^,.;]{3,60}?) (?:with |on )", before)
    if nested and phrase.startswith("@") and re.search(r"\b(?:lives?|lived)\b", before):
        phrase = f"{phrase}'s {nested[1]}"
    yield from _fact(passage, roster, phrase, match, _reference(match, _named(before, roster), roster))


def _stated(passage: Passage, roster: Roster, phrase: str, match: re.Match[str], reference: str) -> Iterator[Fact]:
    """
    Yield in which direction something faces or lies, or at which end.
    """
    key = _thing(phrase, roster)
    told_apart = _TOLD_APART.search(phrase)
    key = f"{told_apart[0].lower()} {key}" if key and told_apart else key
    side = match["s"].lower().replace("-", "")
    if (
        key
        and not _MOVED.search(facts.clause(passage.text, match.start()))
        and not facts.is_unreal(passage, match.start(), match.end())
    ):
        yield _side(passage, roster, phrase, key, (side, reference), f"{side} {reference}")


def _named(text: str, roster: Roster) -> str:
    return re.sub(vocabulary.PERSON, lambda m: roster.name(int(m[0].strip("@?~"))), text)


def _listed(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """
    Yield what a card lists as `West bank: the old town, the mill`.
    """
    name, _, value = passage.text.partition(" : ")
    match = _SIDE.search(name)
    if match:
        for part in re.split(r"[,;]| and ", value):
            yield from _fact(passage, roster, part.strip(), match, _reference(match, "", roster))


def _field_phrase(passage: Passage, roster: Roster) -> str:
    name = passage.text.partition(" : ")[0]
    label = name.partition("'s ")[2] or name
    generic = {
        "location",
        "place",
        "where",
        "position",
        "stands",
        "lies",
        "address",
        "situation",
        "side",
        "bank",
        "site",
        "setting",
        "description",
    }
    if set(label.lower().split()) & {"home", "house", "residence", "lives", "address"} and roster.is_person(
        passage.subject
    ):
        return f"@{passage.subject}'s house"
    if set(label.lower().split()) & generic:
        return f"@{passage.subject}"
    return f"@{passage.subject}'s {label}"


def _reference(match: re.Match[str], before: str, roster: Roster) -> str:
    """
    Return of what it is the side: `bank` for a river's, else the last word of what is named.
    """
    if match["b"].lower() in {"bank", "shore"}:
        return "bank"
    stated = _named(match["ref"] or "", roster).lower()
    if not stated:
        head = re.search(r"([A-Za-z]+), (?:on |at )?(?:the )?$", before)
        stated = head[1].lower() if head else ""
    words = re.findall(r"[a-z]+", re.split(r"\b(?:and|with|where|which|that|above|below|from|in|at|on)\b", stated)[0])
    if words and words[-1] in {"river", "water", "stream", "brook", "canal"}:
        return "bank"
    return words[-1] if words else ""


def _fact(passage: Passage, roster: Roster, phrase: str, match: re.Match[str], reference: str) -> Iterator[Fact]:
    key = _thing(phrase, roster)
    side = match["s"].lower().replace("-", "")
    if (
        not key
        or side in {"near", "far"}
        or reference in _SEATS
        or (match["b"].lower() in {"edge", "end", "corner"} and not reference)
    ):
        return
    yield _side(passage, roster, phrase, key, (side, reference), f"{side} {match['b'].lower()}")


def _side(passage: Passage, roster: Roster, phrase: str, key: str, data: tuple[str, str], value: str) -> Fact:
    return Fact(
        kind="place_side",
        attribute="place_side",
        subject=_named(phrase, roster),
        key=(key,),
        value=value,
        data=data,
        passage=passage,
        is_sure="?" not in phrase,
    )


def _thing(phrase: str, roster: Roster) -> str:
    """
    Return by which word a thing is known again, with its owner where the word alone names many.
    """
    named = re.match(rf"({vocabulary.PERSON})(?!'s)\s*$", re.sub(r"^[Tt]he ", "", phrase.strip()))
    if named:
        number = int(named[1].strip("@?~"))
        return "" if roster.is_person(number) and not roster.may_be_place(number) else _head(roster.name(number))
    owner = re.match(rf"({vocabulary.PERSON})'s ", phrase)
    rest = re.sub(rf"{vocabulary.PERSON}(?:'s)? ?", "", phrase)
    head = _head(rest)
    if head in _GENERIC:
        return (
            f"{roster.name(int(owner[1].strip('@?'))).split()[-1].lower().rstrip('s')} {head}"
            if owner and head in {"house", "home", "shop", "room", "cottage", "farm"}
            else ""
        )
    return head


def _head(phrase: str) -> str:
    bare = re.split(r"\b(?:with|of|that|which|where|who|in|on|at)\b", phrase.lower())[0]
    words = [word for word in re.findall(r"[a-z]+(?:-[a-z]+)?", bare) if word not in _SMALL]
    return words[-1] if words else ""


def differ(one: Fact, other: Fact) -> bool:
    """
    Return whether two sides of one thing are opposite.
    """
    (first, reference), (second, reference_other) = one.data, other.data
    if reference != reference_other:
        return False
    return _OPPOSITE.get(first) == second or (first, second) in _CROSSED


_CROSSED = {
    (f"{a}{b}", f"{c}{d}")
    for a, c in (("north", "south"), ("south", "north"))
    for b in ("east", "west")
    for d in ("east", "west")
}
