"""
Deaths: who is dead, since when, and who acts all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools import dates
from app.tools.continuity import facts, vocabulary
from app.tools.continuity.facts import Fact
from app.tools.continuity.passages import Passage
from app.tools.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})"
_DIED = (
    r"(?:died|dies|has died|had died|perished|drowned|was drowned|had drowned|was (?:killed|hanged|murdered|buried|shot dead|"
    r"stabbed to death|beheaded|burned to death|lost at sea)|had been (?:killed|hanged|murdered|buried|drowned|shot)|"
    r"(?:is|was|lay|lies|had been|has been|being) (?:[a-z-]+ ){0,3}?(?:dead|buried)(?! (?:tired|sure|certain|set|on|ahead|asleep|calm|drunk|serious|"
    r"right|against|to|of night|in a|in thought|in work|under a))|passed away|"
    r"breathed (?:his|her|@[?~]?\d+'s) last|bled to death|froze to death|did not wake|stopped breathing)"
)
_RULES = (
    re.compile(rf"{_P}(?!'s)(?:,? who)? (?:[a-z]+ly )?{_DIED}\b(?! (?:to )?(?:know|see|laugh))", re.IGNORECASE),
    re.compile(
        rf"{_P}'s (?:own )?(?:death|corpse|grave|funeral|murder|burial|coffin|headstone|gravestone|tomb|dead body|wake|widow|widower|ghost)\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:death|corpse|grave|funeral|murder|body|burial|coffin|headstone|tomb|widow|widower) of (?:the late |poor |old )?{_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:the late|poor dead) (?:[A-Z][a-z]+ )?{_P}", re.IGNORECASE),
    re.compile(
        rf"\b(?:buried|bury|burying|hanged|killed|murdered|mourned|mourning for|shot and killed|laid out) (?:poor |old |[A-Z][a-z]+ ){{0,2}}{_P}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:, dead|, who was dead| dead)\b(?= (?:these|and buried|in the ground|for|since|now|at last|on the|,|\.))",
        re.IGNORECASE,
    ),
)
_CARD = re.compile(rf"{_P}'s (?:died|death|date of death|status|fate|grave|state|end) : (?P<v>.+)", re.IGNORECASE)
_CARD_DEAD = re.compile(
    r"^(?:dead|deceased|died|drowned|killed|murdered|buried|hanged|in the churchyard|lost)\b", re.IGNORECASE
)
_CARD_ALIVE = re.compile(r"^(?:alive|living)\b", re.IGNORECASE)
_ACTS = re.compile(
    rf"{_P}(?!'s)(?:,? (?:[a-z]+ly|himself|herself|too|then|only))? (?P<v>[a-z]+ed|{'|'.join('said asked came went stood sat took gave held ran rose spoke shook turned put laid drew led made got fell began met brought caught sent told wrote read smiled lit let kept set cut drank ate wore bent threw blew swore sang saw heard looked leaned shut stepped nodded grinned is waits says comes goes stands sits'.split())})\b",
    re.IGNORECASE,
)
_SAYS = re.compile(rf"\b(?:{vocabulary.SPEECH_VERBS}) (?:(?:old|young|the) )?{_P}(?!'s)", re.IGNORECASE)
_OBJECT = re.compile(r"\b(?:to|from|of|with|for|by|near|than|about) $")
_NOT_SEEN = re.compile(
    r"\b(?:had|dreamt?|dreamed|remember\w*|recall\w*|memory|ghost|grave|tomb\w*|portrait|photograph|letter|diary|once|always|"
    r"used|would|could|if|never|years? (?:ago|before)|when|since|before|after|until|whom|which|that|whose|who|what|the (?:day|"
    r"night|year|morning|time|winter|summer)|died|dead|buried|killed|drowned|late|last|voice|as though|like|where|because|"
    r"thought of|name|said to have|believed|in the days|left|meant|called|lived|loved|taught|built|owned)\b",
    re.IGNORECASE,
)
_PRESUMED = re.compile(
    r"\b(?:thought|believed|presumed|said|reported|supposed|taken|given up|rumou?r\w*|as if|seemed|feared|half|nearly|almost|"
    r"think|thinks|believe|believes|they say|not|never|if|might|would|could|may|until|till|before|when|dream\w*|unless|like|"
    r"wish\w*|imagin\w*|as good as|list\w*|papers?|lie|lied|lying|must be|must have|will|shall|want\w*|than|told (?:me|us|him|her) that|"
    r"told (?:me|us|him|her|@[?~]?\d+) @)\b",
    re.IGNORECASE,
)


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """
    Yield who is dead, and who is seen alive.
    """
    text = passage.text
    for match in _CARD.finditer(text):
        yield from _carded(passage, roster, match)
    for rule in _RULES:
        for match in rule.finditer(text):
            number, sure = facts.person(match)
            before = facts.clause(text, match.start())
            if _is_presumed(before) or _is_presumed(match[0]) or text.endswith("?"):
                continue
            pronoun = "~" in match["p"] and (match.start("p") > 1 or passage.is_spoken)
            if roster.is_person(number):
                yield _fact(passage, roster, number, sure and not pronoun, "dead")
    if not passage.is_spoken and not passage.is_card and not passage.is_flashback:
        yield from _seen(passage, roster)


def _is_presumed(text: str) -> bool:
    return bool(_PRESUMED.search(re.sub(r"\bMay\b", "", text)))


def _seen(passage: Passage, roster: Roster) -> Iterator[Fact]:
    for rule in (_ACTS, _SAYS):
        for match in rule.finditer(passage.text):
            number, sure = facts.person(match)
            if _OBJECT.search(passage.text, 0, match.start()):
                continue
            if roster.is_person(number) and not _NOT_SEEN.search(passage.text[: match.end() + 12]):
                yield _fact(passage, roster, number, sure, "alive")
                return


def _carded(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    number, _ = facts.person(match)
    field = match[0].split("'s ", 1)[1].split(" : ")[0].lower()
    value = match["v"].strip()
    if _CARD_ALIVE.match(value):
        yield _fact(passage, roster, number, True, "living")
    is_death = field in {"died", "death", "date of death", "grave"} or _CARD_DEAD.match(value)
    if is_death and not _is_presumed(value):
        yield _fact(passage, roster, number, True, "dead")


def _fact(passage: Passage, roster: Roster, number: int, sure: bool, value: str) -> Fact:
    return Fact(
        kind="death",
        attribute="status",
        subject=roster.name(number),
        key=(str(number),),
        value=value,
        data=(value, _when(passage) if value == "dead" else None),
        passage=passage,
        is_sure=sure,
    )


def _when(passage: Passage) -> dates.StoryDate | int | None:
    scene = re.search(r"\bscene (\d{1,4})\b", passage.text, re.IGNORECASE)
    if scene:
        return int(scene[1])
    found = dates.find(passage.text, bare_years=True)
    return found[0] if found else None


def differ(one: Fact, other: Fact) -> bool:
    """
    Return whether somebody acts who is dead by then.
    """
    if isinstance(one.data, dates.StoryDate) and isinstance(other.data, dates.StoryDate):
        return one.data.contradicts(other.data)
    by_value = {fact.data[0]: fact for fact in (one, other)}
    dead = by_value.get("dead")
    if dead is None or len(by_value) < 2:
        return False
    if "living" in by_value:
        return not dead.passage.is_card
    seen, when = by_value["alive"].passage, dead.data[1]
    if seen.is_flashback:
        return False
    if isinstance(when, int):
        return seen.number is not None and seen.number > when
    same_year = (
        seen.date is not None
        and isinstance(when, dates.StoryDate)
        and seen.date.month is None
        and seen.date.year == when.year
    )
    if same_year:
        return not dead.passage.is_card and seen.order > dead.passage.order
    if isinstance(when, dates.StoryDate) and seen.date is not None:
        return when.is_before(seen.date) and (
            when.year is not None or not dead.passage.is_card or seen.date.year is None
        )
    if isinstance(when, dates.StoryDate) and when.year is not None and dead.passage.is_card and not seen.is_alone:
        return False
    return dead.passage.is_card or seen.order > dead.passage.order


def is_dated(fact: Fact) -> bool:
    """
    Return whether a death has a date, or is told by a scene.
    """
    return not fact.passage.is_card or not isinstance(fact.data, tuple) or fact.data[1] is not None
