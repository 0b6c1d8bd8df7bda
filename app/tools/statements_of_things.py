"""
What prose states of places, items and events: where they are, whose, of what they are made, and when.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from app.tools import dates
from app.tools.cast import Mention, Reading, is_person
from app.tools.statements_of_people import Rule, Statement

_MATERIALS = "brass|iron|silver|gold|golden|copper|bronze|steel|tin|wooden|glass|bone|ivory|stone|lead|leather|paper"
_STANDS = re.compile(
    r" (?P<verb>stands|stood|lies|lay|sits|sat|rises|rose|was built|is built|is kept|lives|lived|has lived|had lived)"
    r" (?:[a-z]{2,12} ){0,2}?(?:on|in|at|near|above|below|off|behind|under) (?:the |old )?"
    r"(?P<place>[A-Z][\w'’]{1,30}(?: [A-Z][\w'’]{1,30}){0,2})"
)
_ADJECTIVE = re.compile(r" (?:[\w-]{1,20} )?")
_MADE_OF = re.compile(rf"\b(?:the|that|his|her|their|this) ({_MATERIALS}) (\w{{2,30}})\b", re.IGNORECASE)
_BELONGS = re.compile(r" (?:belongs|belonged|had belonged) to ")
_DATE_AFTER = re.compile(
    r"(?:,| of| on| in| began on| came on| struck on| happened on| was on)? (?:the (?:night of )?)?"
)
_DATE_BEFORE = re.compile(r"(?:,| was| came| brought)? (?:the )?(?:(?:day|night|morning) of )?(?:the )?")
_DATE_CUES = (
    ("born", re.compile(r"\bborn\b")),
    ("died", re.compile(r"\b(?:died|dies|was killed|was buried)\b")),
    ("founded", re.compile(r"\bfounded\b")),
    ("built", re.compile(r"\bbuilt\b")),
    ("written", re.compile(r"\b(?:written|wrote)\b")),
)


def _places(reading: Reading) -> Iterator[Statement]:
    for mention in reading.mentions:
        match = _STANDS.match(reading.paragraph.text, mention.end)
        # People stand and sit in many places; only where they live is a fact.
        if match and (match["verb"].endswith(("lives", "lived")) or not is_person(mention.entity)):
            yield Statement(entity=mention.entity, attribute="location", value=match["place"], position=mention.start)


def _owners(reading: Reading) -> Iterator[Statement]:
    text = reading.paragraph.text
    for left, right in itertools.pairwise(reading.mentions):
        if right.entity.kind == "item" and is_person(left.entity) and left.is_possessive:
            if _ADJECTIVE.fullmatch(text, left.after, right.start):
                yield Statement(entity=right.entity, attribute="owner", value=left.entity.name, position=left.start)
        elif left.entity.kind == "item" and is_person(right.entity) and _BELONGS.fullmatch(text, left.end, right.start):
            yield Statement(entity=left.entity, attribute="owner", value=right.entity.name, position=left.start)


def _materials(reading: Reading) -> Iterator[Statement]:
    for match in _MADE_OF.finditer(reading.paragraph.text):
        entity = reading.cast.by_head.get(match[2].lower())
        if entity:
            yield Statement(entity=entity, attribute="material", value=match[1].lower(), position=match.start(1))


def _dated(reading: Reading) -> Iterator[Statement]:
    text = reading.paragraph.text
    for date in dates.find(text, bare_years=True):
        sentence = reading.paragraph.sentence_at(date.start)
        mentions = [mention for mention in reading.mentions if sentence.start <= mention.start < sentence.end]
        for mention in mentions:
            attribute = _date_attribute(text, mention, date)
            if attribute:
                yield Statement(entity=mention.entity, attribute=attribute, value=str(date), position=mention.start)


def _date_attribute(text: str, mention: Mention, date: dates.StoryDate) -> str | None:
    """
    Return what a date says of an entity near it; None where they only share a sentence.
    """
    follows = _DATE_AFTER.fullmatch(text, mention.end, date.start) or _DATE_BEFORE.fullmatch(
        text, date.end, mention.start
    )
    if follows and date.month is not None and mention.entity.kind in {"event", "thing", "unknown"}:
        return "date"
    between = text[mention.end : date.start]
    if not between or len(between) > 40 or re.search(r"[.!?;]", between):
        return None
    return next((name for name, cue in _DATE_CUES if cue.search(between)), None)


RULES: tuple[Rule, ...] = (_places, _owners, _materials, _dated)
"""All rules about things."""
