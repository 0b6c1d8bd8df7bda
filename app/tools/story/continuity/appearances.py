"""Appearance: the colours of eyes and hair."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story.continuity import facts
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

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
    "brunette": "brown dark", "snow": "white", "snowy": "white", "salt": "grey white", "grizzled": "grey",
}  # fmt: skip
_COLOURS = "|".join(sorted({*_EYES, *_HAIR}, key=len, reverse=True))
_C = rf"(?P<c>(?:[a-z]+-)?(?:{_COLOURS})(?:[- ](?:and[- ])?(?:{_COLOURS}))?(?:-[a-z]+)?)"
_FEATURE = r"(?P<f>eyes?|hair|beard|moustache|braids?|plaits?|curls|locks|mane|whiskers|tresses|ringlets)"
_WORDS = (
    r"(?:(?!eyes|hair|and\b|of\b|in\b|on\b|was\b|were\b|with\b|to\b|at\b|had\b|who\b|for\b)[a-z][\w-]*,? (?:and )?)"
)
_BE = r"(?:is|was|are|were|had been|has been|remained|looked|shone|be|am|had turned out)"
_GAP = r"(?:(?!in\b|on\b|at\b|with\b|to\b|from\b|over\b|under\b|into\b|for\b|by\b|not\b)[a-z]+,? )"
_LIKENESSES = {
    "black": "tar|coal|pitch|ink|soot|jet|raven|crow|midnight|rook", "white": "snow|milk|chalk|lamb|wool|thistledown",
    "blond": "straw|wheat|corn|butter|flax|barley|hay", "red": "fox|copper|rust|carrots?|flames?|fire|brick|embers|rowan",
    "grey": "slate|pewter|rain|iron|steel|lead|stone|gulls?|gunmetal|flint", "blue": "sky|cornflowers?|forget-me-nots|periwinkles?|gas|delft",
    "brown": "chestnuts?|walnuts?|tea|bark|earth|peat|hazelnuts?|cocoa|coffee|mahogany", "green": "grass|moss|leaves|bottle|sea-glass|gooseberries",
}  # fmt: skip
_LIKE = {
    word: colour
    for colour, words in _LIKENESSES.items()
    for word in re.findall(r"[a-z-]+", words.replace("s?", "") + " " + words.replace("?", ""))
}
_L = rf"(?:as|like|the (?:exact )?colour of|of the (?:exact )?colour of) (?:an? |the |old |new |wet |dry |fresh |ripe |strong ){{0,3}}(?P<l>{'|'.join(_LIKENESSES.values())})\b"
_RULES = (
    re.compile(rf"\b{_C},? {_WORDS}{{0,3}}?{_FEATURE}\b", re.IGNORECASE),
    re.compile(rf"(?<!\ba )\b{_FEATURE}(?: colou?r)?(?: :|,? (?:which |that )?{_BE}| of|, as| as|,) (?:[a-z]+ and )?{_GAP}{{0,5}}?{_C}\b(?! (?:with|from|in) )", re.IGNORECASE),
    re.compile(rf"\b{_FEATURE}\b[^.;:!?]{{0,45}}, (?:and |which )?(?:it |they )?(?:was|were|lay|fell|hung|shone|glowed|stood|ran)\b[^.;:!?]{{0,25}}? (?:as )?{_C} (?:and [a-z]+ )?as\b", re.IGNORECASE),
    re.compile(rf"\b{_FEATURE}(?: {_BE}| :|,)? {_L}", re.IGNORECASE),
    re.compile(rf"\b{_C}[- ](?P<f>eyed|haired|headed|bearded)\b", re.IGNORECASE),
    re.compile(r"\b(?P<f>head)(?: of hair)? as (?P<c>red|black|fair|white|yellow) as\b|(?:'s|\bthe|\bthat|\ba) (?P<c2>red|black|fair|white|yellow|golden|dark|grey) (?P<f2>head)\b(?! of (?!@|hair))", re.IGNORECASE),
    re.compile(r"\b(?:an?|the) (?P<c>red)(?P<f>head)\b|\b(?:was|is|,) an? (?:[a-z]+ )?(?P<c2>blonde?|brunette)(?P<f2>)(?= [,.;]|[,.;]| (?:with|in|of|who))", re.IGNORECASE),
)  # fmt: skip
_CHANGED = re.compile(
    r"\b(?:dye\w*|gone|went|turned|turning|going|bleach\w*|wig|powder\w*|once|used to|lamplight|firelight|moonlight|"
    r"candlelight|dust|flour|soot|ash|paint\w*|mirror|shadow|light|in that light|dust\w*|looked|lens\w*|growing|streaked|"
    r"touched|blood|weeping|crying|rimmed|bloodshot|stranger|nearly|almost)\b",
    re.IGNORECASE,
)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|has|have|had|do|does|did|will|can|could|got|get|let|look|see|not)\b", re.IGNORECASE
)


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield the colours of eyes and hair."""
    for rule in _RULES:
        for match in rule.finditer(passage.text):
            number, sure = facts.bearer(passage, match.start(), match.end(), roster)
            if roster.is_person(number) and _is_own(passage, match, number):
                yield from _fact(passage, roster, match, number, sure)


def _is_own(passage: Passage, match: re.Match[str], number: int) -> bool:
    """Return whether a colour is not that of somebody whom the clause names without a name: `the
    boy's eyes were blue`.
    """
    before = facts.clause(passage.text, match.start())
    owner = re.search(r"(\S+)'s (?:[\w-]+,? ){0,3}$", before)
    if re.search(r"\b(?:has|have|had|inherited) .*'s ", before):
        return True
    return not (owner and "@" not in owner[1]) and not _NO_LOOK.search(before)


_NO_LOOK = re.compile(
    r"\b(?:an? hair|glass of|pair of|box of|painted|wearing|doll|dolls|horse|cat|dog|portrait) (?:[\w-]+ ){0,3}$"
)


def _fact(passage: Passage, roster: Roster, match: re.Match[str], number: int, sure: bool) -> Iterator[Fact]:
    parts = match.groupdict()
    feature = (parts["f"] or parts.get("f2") or "hair").lower()
    stated = (parts.get("c") or parts.get("c2") or _LIKE[(parts.get("l") or "").lower()]).lower()
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
    if re.search(r"\d's|'s ", stretch):
        return
    if passage.is_spoken and not _FINITE.search(passage.text):
        return
    if not basic or facts.is_unreal(passage, match.start(), match.end()):
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
    """Return whether two colours exclude each other."""
    return not one.data & other.data
