"""
Appearance: the colours of eyes and hair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.continuity import facts, vocabulary
from app.tools.continuity.facts import Fact
from app.tools.continuity.passages import Passage
from app.tools.continuity.roster import Roster

_EYES = {
    "grey": "grey", "gray": "grey", "slate": "grey", "ash": "grey", "pewter": "grey", "steel": "grey", "smoke": "grey",
    "blue": "blue", "azure": "blue", "sapphire": "blue", "cornflower": "blue", "green": "green", "emerald": "green",
    "brown": "brown", "hazel": "hazel", "amber": "amber", "black": "black dark", "violet": "violet",
    "dark": "brown black dark", "chestnut": "brown", "chocolate": "brown", "silver": "grey", "golden": "amber",
    "yellow": "amber", "pale": "grey blue green pale", "turquoise": "blue green",
}  # fmt: skip
_HAIR = {
    "black": "black dark", "raven": "black dark", "jet": "black dark", "ebony": "black dark", "dark": "black brown dark",
    "brown": "brown dark", "chestnut": "brown red", "auburn": "red brown", "mousy": "brown", "red": "red",
    "ginger": "red", "copper": "red", "coppery": "red", "russet": "red brown", "carroty": "red", "rust": "red",
    "sandy": "blond sandy red", "blond": "blond", "blonde": "blond", "fair": "blond", "flaxen": "blond",
    "straw": "blond", "golden": "blond", "gold": "blond", "yellow": "blond", "honey": "blond brown", "tow": "blond",
    "grey": "grey", "gray": "grey", "silver": "grey white", "silvery": "grey white", "iron": "grey", "white": "white",
    "snow": "white", "snowy": "white", "salt": "grey white", "grizzled": "grey",
}  # fmt: skip
_COLOURS = "|".join(sorted({*_EYES, *_HAIR}, key=len, reverse=True))
_C = rf"(?P<c>(?:[a-z]+-)?(?:{_COLOURS})(?:[- ](?:and[- ])?(?:{_COLOURS}))?(?:-[a-z]+)?)"
_FEATURE = r"(?P<f>eyes?|hair|beard|moustache|braids?|plaits?|curls|locks|mane|whiskers)"
_WORDS = r"(?:(?!eyes|hair|and\b|of\b)[a-z][\w-]*,? (?:and )?)"
_P = rf"(?P<p>{vocabulary.PERSON})"
_BE = r"(?:is|was|are|were|had been|remained|looked|shone|:)"
_RULES = (
    re.compile(rf"{_P}'s {_WORDS}{{0,3}}?{_C},? {_WORDS}{{0,3}}?{_FEATURE}\b", re.IGNORECASE),
    re.compile(rf"{_P}'s {_WORDS}{{0,3}}?{_FEATURE}(?: color| colour)?,? (?:which |that )?{_BE} (?:(?:of )?[a-z]+,? ){{0,4}}?{_C}\b", re.IGNORECASE),
    re.compile(rf"{_P}'s {_WORDS}{{0,2}}?{_FEATURE},? (?:as )?{_C}(?=[,. ])", re.IGNORECASE),
    re.compile(rf"{_P}(?:,? who)?,? (?:still |also |\w+ly )?(?:has|had|have|with|whose|having|wore) (?:(?!'s)[^.;:!?@]){{0,60}}?\b{_C},? {_WORDS}{{0,3}}?{_FEATURE}\b", re.IGNORECASE),
    re.compile(rf"{_P},? (?:whose )(?:[a-z]+ )?{_FEATURE} {_BE} (?:[a-z]+,? ){{0,3}}?{_C}\b", re.IGNORECASE),
    re.compile(rf"{_P}(?:,? who)? (?:has|had|have) {_FEATURE} (?:of|the colour of|as) (?:[a-z]+ ){{0,3}}?{_C}\b", re.IGNORECASE),
    re.compile(rf"{_P}(?:,? (?:who |still )?(?:is|was|were|am|stood|sat|being),? |,? )(?:an? |the )?(?:(?!and\b)[\w-]+,? (?:and )?){{0,4}}?{_C}[- ](?P<f>eyed|haired|headed|bearded)\b", re.IGNORECASE),
    re.compile(rf"{_C}-(?P<f>eyed|haired|headed|bearded) (?:[a-z]+ ){{0,2}}?{_P}(?!'s)", re.IGNORECASE),
    re.compile(rf"{_P} (?:looked|stared|gazed|peered|regarded|watched|studied|glared|blinked|surveyed|considered|fixed)\b[^.;:!?@]{{0,50}} (?:with|out of|from) (?:(?:an?|pair|of|two|very|both|those|large|wide) ){{0,5}}{_C} {_FEATURE}\b", re.IGNORECASE),
)  # fmt: skip
_MORE_RULES = (
    re.compile(
        rf"{_P}(?: (?:is|was|were|am)|,) (?:an?|the) (?:[\w-]+,? (?:and )?){{0,5}}?(?:[a-z]+) (?:of [\w-]+ )?with {_WORDS}{{0,2}}?{_C},? {_WORDS}{{0,2}}?{_FEATURE}\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P} [^.;:!?@]{{0,40}}\b(?:strands?|locks?|wisps?|curls?|mass|mop|tangle|coils?|plaits?|fringe|thatch|rope|shock|cloud|knot|head) of {_WORDS}{{0,2}}?{_C},? {_WORDS}{{0,2}}?(?P<f>hair|curls)\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P} (?:has|had|have) [^.;:!?]{{0,50}}?{vocabulary.PERSON}'s (?:[a-z]+'s )?{_WORDS}{{0,2}}?{_C},? {_WORDS}{{0,2}}?{_FEATURE}\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}(?:(?!'s)[^.;:!?@]){{0,60}} with {_WORDS}{{0,2}}?{_FEATURE} (?:as|like|the colour of|of) (?:[a-z]+ ){{0,3}}?{_C}\b",
        re.IGNORECASE,
    ),
)
_CARD = re.compile(rf"\b{_C},? {_WORDS}{{0,2}}?{_FEATURE}\b", re.IGNORECASE)
_CARD_AFTER = re.compile(rf"\b{_FEATURE}(?: :|,| is| are| was| were| of)? (?:[a-z]+ ){{0,2}}?{_C}\b", re.IGNORECASE)
_CHANGED = re.compile(
    r"\b(?:dye\w*|gone|went|turned|turning|going|bleach\w*|wig|powder\w*|once|used to|lamplight|firelight|moonlight|"
    r"candlelight|dust|flour|soot|ash|paint\w*|mirror|shadow|light|in that light|dust\w*|looked|lens\w*|growing|streaked|"
    r"touched|blood|weeping|crying|rimmed|bloodshot|stranger|nearly|almost)\b",
    re.IGNORECASE,
)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|has|have|had|do|does|did|will|can|could|got|get|let|look|see|not)\b", re.IGNORECASE
)
_SIMILE = re.compile(r"\bas (?:[a-z]+ )?$")


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """
    Yield the colours of eyes and hair.
    """
    for rule in (*_RULES, *_MORE_RULES):
        for match in rule.finditer(passage.text):
            number, sure = facts.person(match)
            yield from _fact(passage, roster, match, number, sure)
    if passage.is_card and passage.subject:
        for rule in (_CARD, _CARD_AFTER):
            for match in rule.finditer(passage.text):
                if "@" not in passage.text[max(match.start() - 12, 0) : match.start()].replace(
                    f"@{passage.subject}", ""
                ):
                    yield from _fact(passage, roster, match, passage.subject, True)


def _fact(passage: Passage, roster: Roster, match: re.Match[str], number: int, sure: bool) -> Iterator[Fact]:
    feature, stated = match["f"].lower(), match["c"].lower()
    attribute = (
        "eye_colour"
        if feature.startswith("eye")
        else "beard_colour"
        if "beard" in feature or feature in {"moustache", "whiskers"}
        else "hair_colour"
    )
    classes = _EYES if attribute == "eye_colour" else _HAIR
    basic = {name for word in re.findall(r"[a-z]+", stated) for name in classes.get(word, "").split()}
    stretch = passage.text[match.start() : match.end()]
    between = stretch.replace(match["p"], "", 1) if "p" in match.re.groupindex and match["p"] else stretch
    inherited = re.search(r"\b(?:has|had|have)\b.*\b(?:father|mother|grand\w+|aunt|uncle)'s ", between)
    if passage.is_spoken and not _FINITE.search(passage.text):
        return
    if not basic or ("'s " in between[2:] and not inherited) or facts.is_unreal(passage, match.start(), match.end()):
        return
    if passage.is_card and re.match(
        r"\W*(?:when|until|as a (?:child|boy|girl)|in (?:his|her) youth|once)\b", passage.text[match.end() :]
    ):
        return
    if not passage.is_card and (
        _CHANGED.search(facts.clause(passage.text, match.start()) + stretch) or facts.is_earlier(passage)
    ):
        return
    yield Fact(
        kind="appearance",
        attribute=attribute,
        subject=roster.name(number),
        key=(str(number),),
        value=stated.replace("gray", "grey").replace("blonde", "blond"),
        data=frozenset(basic),
        passage=passage,
        is_sure=sure,
    )


def differ(one: Fact, other: Fact) -> bool:
    """
    Return whether two colours exclude each other.
    """
    return not one.data & other.data
