"""Possessions: whose a thing is, and where it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})(?!'s)"
_IT = rf"(?P<it>(?:the|{vocabulary.PERSON}'s|that|this|its|a|an)(?: (?!and\b|of\b|to\b|from\b|out\b|in\b|into\b|on\b|with\b|back\b|for\b|at\b|was\b|had\b|that\b|which\b|off\b|over\b)[\w'-]+){{1,4}}?|@\d+)"
_OWNED = re.compile(
    rf"(?P<p>{vocabulary.PERSON})'s (?:[a-z-]+ )?(?P<i>{vocabulary.PERSON})(?!'s)|(?P<i2>{vocabulary.PERSON})(?!'s) (?:belong(?:s|ed)|had belonged) to (?P<p2>{vocabulary.PERSON})"
)
_KEPT = re.compile(
    rf"(?P<it>(?:the|{vocabulary.PERSON}'s)(?: [\w'-]+){{1,4}}?|@\d+) (?:was (?:always )?kept|is (?:always )?kept|lived|lives|always (?:hung|lay|stood|hangs|lies|stands)|had always (?:hung|lain|stood)) "
    r"(?P<where>(?:in|on|under|behind|beneath|over|above|inside) (?:the|a|an|@[?~]?\d+'s) (?:[\w'-]+ ){0,3}?[\w'-]+)(?=[,.;:]| (?:of|in|by|at|where|with|and)\b|$)",
    re.IGNORECASE,
)
_KEEPS = re.compile(
    rf"{_P} (?:always |still )?(?:kept|keeps|hid|hides|had hidden|locked|stored) {_IT} (?P<where>(?:in|on|under|behind|beneath|over|above|inside) (?:the|a|an|@[?~]?\d+'s) (?:[\w'-]+ ){{0,3}}?[\w'-]+)(?=[,.;:]| (?:of|in|by|at|where|with|and)\b|$)",
    re.IGNORECASE,
)
_OWNER_FIELD = re.compile(
    r"^(?:owner|owned_by|belongs_to|whose|keeper|held_by|holder|carried_by|bearer|worn_by|in_the_hands_of|possession|possessor)$"
)
_COMMON = frozenset(
    "hand hands head face eye eyes arm arms door chair table cup glass plate bread cigarette word words way time place "
    "breath voice look mouth lips hair finger fingers shoulder back bed room house window floor road wine tea coffee food "
    "drink matter thing things rest answer news hat coat coats cap jacket shirt boots boot shoes trousers gloves apron sleeve sleeves scarf "
    "shawl skirt handkerchief pipe candle match matches pen pencil pencils paper papers spoon stick "
    "child baby boy girl man woman weight gaze temper tongue secret job work chin fist feet foot knee knees others other one ones "
    "two same line light mug bowl pot bottle stone stones money coins spectacles belt pocket collar pack end oar oars rope tray "
    "horse reins wheel engine kettle pan cloth towel blanket bucket water fire lid tin name part half piece pieces corner "
    "log logs wood coal peat turf pan loaf dough soup meal meat fish potatoes bacon stew hay straw corn curtain curtains blind gate latch handle page pages note notes message eyebrow eyebrows".split()
)


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield whose things are, and where they are kept."""
    text = passage.text
    if passage.is_card:
        yield from _carded(passage, roster)
    if text.endswith("?") or passage.is_flashback:
        return
    for match in _OWNED.finditer(text):
        number, sure = facts.person(match, "p" if match["p"] else "p2")
        item = int((match["i"] or match["i2"]).strip("@?~"))
        if roster.is_person(number) and roster.entities[item - 1].kind == "item" and not passage.is_spoken:
            yield _fact(
                passage, _head(roster.name(item)), "", ("owner", number), roster.name(number), sure, roster.name(item)
            )
    for rule in (_KEPT, _KEEPS):
        for match in rule.finditer(text):
            yield from _kept(passage, roster, match)


def _carded(passage: Passage, roster: Roster) -> Iterator[Fact]:
    number = passage.subject
    if not number or roster.is_person(number):
        return
    value = passage.text.partition(" : ")[2]
    head = _head(roster.name(number))
    if _OWNER_FIELD.match(passage.field):
        owner = re.match(rf"(?:the )?({vocabulary.PERSON})", value)
        if owner:
            who = int(owner[1].strip("@?~"))
            yield _fact(passage, head, "", ("owner", who), roster.name(who), True, roster.name(number))


def _kept(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    head, owner = _item(match["it"], roster)
    where = _head(re.sub(vocabulary.PERSON + "'s", "the", match["where"]))
    if head and where and not facts.is_unreal(passage, match.start(), match.end()):
        yield _fact(passage, head, owner, ("kept", where), match["where"], True, match["it"], roster)


def _item(phrase: str, roster: Roster) -> tuple[str, str]:
    """Return by which word an item is known again, and whose it is said to be."""
    owner = re.match(rf"({vocabulary.PERSON})'s ", phrase)
    named = re.fullmatch(r"@[?~]?(\d+)", phrase)
    if named:
        number = int(named[1])
        return ("", "") if roster.is_person(number) else (_head(roster.name(number)), "")
    words = (
        re.sub(rf"^(?:{vocabulary.PERSON}'s|the|that|this|its|an?) ", "", phrase, flags=re.IGNORECASE).lower().split()
    )
    if not words:
        return "", ""
    head = words[-1].removesuffix("'s")
    if head in _COMMON and len(words) == 1:
        return "", ""
    if head in _COMMON:
        head = f"{words[-2]} {head}"
    return head, owner[1].strip("@?~") if owner else ""


def _head(phrase: str) -> str:
    words = re.findall(r"[a-z][\w-]*", re.split(r"\b(?:of|with|from)\b", phrase.lower())[0])
    return words[-1] if words else ""


def _fact(
    passage: Passage,
    head: str,
    owner: str,
    data: tuple[str, object],
    value: str,
    sure: bool,
    phrase: str,
    roster: Roster | None = None,
) -> Fact:
    shown = re.sub(vocabulary.PERSON, lambda m: roster.name(int(m[0].strip("@?~"))) if roster else m[0], phrase)
    return Fact(
        kind="possession",
        attribute="owner" if data[0] == "owner" else "possession",
        subject=shown,
        key=(head,),
        value=value,
        data=(*data, owner),
        passage=passage,
        is_sure=sure,
    )


def differ(one: Fact, other: Fact) -> bool:
    """Return whether a thing is said to be somebody else's, or to be kept elsewhere."""
    return bool(one.data[1] != other.data[1])
