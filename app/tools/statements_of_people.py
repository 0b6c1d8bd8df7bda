"""
What prose states of people: eyes and hair, the hand they use, age, and that they speak or are dead.

Each rule reads one kind of statement off a paragraph. All are cautious: a statement whose subject is not clear is none,
since a false alarm costs a writer more than a miss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.tools import dates, prose
from app.tools.canon import Entity
from app.tools.cast import Mention, Reading

_EYE_COLOURS = "grey|gray|green|blue|brown|hazel|amber|black|violet|silver"
_EYE_COLOUR_NAMES = frozenset(_EYE_COLOURS.split("|"))
_POSSESSIVE = re.compile(r"\w['’]s\b")
_HAIR_COLOURS = f"{_EYE_COLOURS}|red|blond|blonde|auburn|white|copper|golden|chestnut|fair|dark"
_COLOUR = f"(?:{_HAIR_COLOURS})(?:-(?:{_HAIR_COLOURS}))?"

_COLOURED = re.compile(rf"\b({_COLOUR}),? (?:[\w-]{{2,15}},? ){{0,2}}(eyes|hair)\b", re.IGNORECASE)
_IS_COLOURED = re.compile(
    rf"\b(eyes|hair) (?:was|were|is|are|had been) (?:[\w-]{{1,15}} ){{0,2}}?({_COLOUR})\b",
    re.IGNORECASE,
)
_COLOUR_EYED = re.compile(rf"\b({_HAIR_COLOURS})-(eyed|haired)\b", re.IGNORECASE)
_FEATURES = {"eyes": "eye_colour", "eyed": "eye_colour", "hair": "hair_colour", "haired": "hair_colour"}
_BEARS = re.compile(r",? (?:who |still |\w{2,12}ly )?(?:has|had|with|whose) [^.;:!?]{0,20}")
_IS_SO = re.compile(r",? (?:was |is |stood )?(?:\w{2,12},? (?:and )?)?")

_HANDED = re.compile(r"\b(left|right)-handed\b", re.IGNORECASE)
_SKILLED = re.compile(
    r"\b(?:writ(?:es?|ing)|wrote|written|sign(?:s|ed|ing)|draws?|drew|sketch(?:es|ed)|scrawl(?:s|ed)|scribbl(?:es|ed)|"
    r"fenc(?:es|ed)|carv(?:es|ed)|sew(?:s|ed)|throws?|threw|paints?|painted)\b[^.!?]{0,80}?"
    r"\b(?:with|in|using) (?:\w{2,20}['’]s |his |her |their )(?:\w{2,15} )?(left|right) hand\b",
    re.IGNORECASE,
)

_AGE = re.compile(
    rf"(?:, (?:aged )?| (?:was|is|turned|had turned|had just turned) (?:only |just |barely |still )?)({dates.NUMBER})"
    r"(?= years? old| years? of age|[,.;!?—–]| and | when | that | but |$)",
    re.IGNORECASE,
)
_PRONOUN_AGE = re.compile(
    rf"\b(he|she)(?: was| is| had turned) (?:only |just |barely |still )?({dates.NUMBER})"
    r"(?= years? old| years? of age|[,.;])",
    re.IGNORECASE,
)
_YOUNGEST_TOLD = 3

_SPEAKS = (
    "said|says|asked|asks|answered|answers|whispered|whispers|shouted|shouts|cried|cries|replied|replies|called|muttered|"
    "murmured|added|went on|snapped|sighed|told|repeated|began|warned|laughed"
)
_SPEECH_VERB_BEFORE = re.compile(rf"\b(?:{_SPEAKS}) (?:[a-z]{{2,10}} )?$")
_SPEECH_VERB_AFTER = re.compile(rf" (?:{_SPEAKS})\b")

_IS_DEAD = re.compile(
    r" (?:(?:was|is|lay|lies) (?P<between>(?:\w{2,12} ){0,3})dead\b"
    r"(?! (?:tired|sure|certain|set|on|ahead|asleep|calm|drunk))"
    r"|(?:had died|died|dies|has died)\b)"
)
_DEATH_OF = re.compile(r"\b(?:death|corpse|grave|funeral|murder) of $")
_DEATH = re.compile(r" (?:death|corpse|grave|funeral|murder)\b")
_UNREAL = re.compile(
    r"\b(?:if|unless|would|might|could|may|until|till|before|not|never|nearly|almost|half|as|like)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """
    What a rule has read off a paragraph.
    """

    entity: Entity
    """Whom or what it is about."""
    attribute: str
    """As in canon facts."""
    value: str
    """What is stated."""
    position: int
    """Where it stands in the paragraph."""
    is_shown: bool = False
    """For `status`: whether it is seen (someone speaks) and not told."""


Rule = Callable[[Reading], Iterator[Statement]]
"""One way to read statements off a paragraph."""


def _features(reading: Reading) -> Iterator[Statement]:
    text = reading.paragraph.text
    for match in _COLOURED.finditer(text):
        entity = reading.owner(match.start()) or _bearer(reading, match.start(), _BEARS)
        yield from _feature(entity, match[2], match[1], match.start())
    for match in _IS_COLOURED.finditer(text):
        yield from _feature(reading.owner(match.start()), match[1], match[2], match.start())
    for match in _COLOUR_EYED.finditer(text):
        following = next((mention.entity for mention in reading.people if mention.start == match.end() + 1), None)
        entity = following or _bearer(reading, match.start(), _IS_SO)
        yield from _feature(entity, match[2], match[1], match.start())


def _feature(entity: Entity | None, word: str, colour: str, position: int) -> Iterator[Statement]:
    attribute = _FEATURES[word.lower()]
    value = colour.lower().replace("gray", "grey").replace("blonde", "blond")
    # Red or white eyes are a mood, not a colour.
    possible = attribute == "hair_colour" or set(value.split("-")) <= _EYE_COLOUR_NAMES
    if entity and possible:
        yield Statement(entity=entity, attribute=attribute, value=value, position=position)


def _bearer(reading: Reading, position: int, link: re.Pattern[str]) -> Entity | None:
    """
    Return the person named last before a position, if the words between say that it is theirs.
    """
    mention = reading.preceding(position)
    if mention is None or mention.is_possessive:
        return None
    between = reading.paragraph.text[mention.end : position]
    fits = link.fullmatch(between) and not _POSSESSIVE.search(between) and not _UNREAL.search(between)
    return mention.entity if fits else None


def _hands(reading: Reading) -> Iterator[Statement]:
    text = reading.paragraph.text
    for match in _HANDED.finditer(text):
        entity = _bearer(reading, match.start(), _IS_SO)
        if entity:
            yield Statement(entity=entity, attribute="hand", value=match[1].lower(), position=match.start())
    for match in _SKILLED.finditer(text):
        entity = reading.owner(match.start(1))
        if entity:
            yield Statement(entity=entity, attribute="hand", value=match[1].lower(), position=match.start(1))


def _ages(reading: Reading) -> Iterator[Statement]:
    text = reading.paragraph.text
    for mention in reading.people:
        match = _AGE.match(text, mention.after)
        if match and not mention.is_possessive:
            yield from _aged(mention.entity, match[1], mention.start)
    for match in _PRONOUN_AGE.finditer(text):
        entity = reading.meant(match[1], match.start())
        if entity:
            yield from _aged(entity, match[2], match.start())


def _aged(entity: Entity, stated: str, position: int) -> Iterator[Statement]:
    years = dates.number(stated)
    if years is not None and years >= _YOUNGEST_TOLD:
        yield Statement(entity=entity, attribute="age", value=str(years), position=position)


def _speakers(reading: Reading) -> Iterator[Statement]:
    paragraph = reading.paragraph
    for mention in reading.people if paragraph.speech else ():
        if not paragraph.is_spoken(mention.start) and not mention.is_possessive and _says(paragraph, mention):
            yield Statement(
                entity=mention.entity, attribute="status", value="alive", position=mention.start, is_shown=True
            )


def _says(paragraph: prose.Paragraph, mention: Mention) -> bool:
    """
    Decide whether a name is given as that of a speaker: `…" said Orrin`, `…" Orrin said`, `Orrin said, "…`.
    """
    before = _SPEECH_VERB_BEFORE.search(paragraph.text, max(mention.start - 24, 0), mention.start)
    if before and paragraph.is_spoken(before.start() - 2):
        return True
    after = _SPEECH_VERB_AFTER.match(paragraph.text, mention.end)
    follows = any(paragraph.is_spoken(place) for place in range(after.end(), after.end() + 24)) if after else False
    return after is not None and (follows or paragraph.is_spoken(mention.start - 2))


def _deaths(reading: Reading) -> Iterator[Statement]:
    text = reading.paragraph.text
    for mention in reading.people:
        dies = _IS_DEAD.match(text, mention.end)
        told = _DEATH.match(text, mention.after) if mention.is_possessive else None
        named = _DEATH_OF.search(text, max(mention.start - 16, 0), mention.start)
        clause = text[max(mention.start - 30, 0) : mention.start] + (dies["between"] or "" if dies else "")
        if (dies or told or named) and not _UNREAL.search(clause):
            yield Statement(entity=mention.entity, attribute="status", value="dead", position=mention.start)


RULES: tuple[Rule, ...] = (_features, _hands, _ages, _speakers, _deaths)
"""All rules about people."""
