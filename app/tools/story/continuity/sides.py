"""Left and right: on which side somebody's scars, lost eyes and lame legs are, and which hand is the better one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_PARTS = {
    "eye": "eye", "eyelid": "eye", "lid": "eye", "socket": "eye", "ear": "ear", "earlobe": "ear",
    "cheek": "face", "cheekbone": "face", "jaw": "face", "temple": "face", "brow": "face", "eyebrow": "face",
    "forehead": "face", "face": "face", "nostril": "face", "chin": "face",
    "hand": "arm", "arm": "arm", "forearm": "arm", "wrist": "arm", "elbow": "arm", "palm": "arm", "finger": "arm",
    "forefinger": "arm", "thumb": "arm", "knuckles": "arm", "shoulder": "arm", "fist": "arm", "sleeve": "arm",
    "leg": "leg", "knee": "leg", "foot": "leg", "ankle": "leg", "hip": "leg", "thigh": "leg", "shin": "leg",
    "calf": "leg", "toe": "leg", "heel": "leg", "boot": "leg", "foreleg": "leg", "paw": "leg", "hoof": "leg",
    "side": "side", "breast": "side", "ribs": "side", "lung": "side",
}  # fmt: skip
_PART = "|".join(sorted(_PARTS, key=len, reverse=True))
_MARKS = (
    ("scar", r"scar(?:s|red)?|weals?|gash|cicatrice|seam"),
    ("burn", r"burn(?:s|t|ed)?|scald(?:ed)?|brand(?:ed)?"),
    ("tattoo", r"tattoo(?:s|ed)?|inked"),
    ("birthmark", r"birthmark|mole|port-wine|strawberry mark|wart|freckle"),
    ("ring", r"earring|signet ring|wedding ring"),
    ("wound", r"bandage[ds]?|sling|splints?|plaster|sprained|stitches"),
    (
        "defect",
        (r"miss(?:ing|ed)|lost|lacks?|lacking|lacked|blind(?:ed)?|glass|patch|sewn|gone|put out|taken|took|without|"
        r"bad|lame|limp(?:s|ed|ing)?|stiff(?:ened)?|wooden|withered|crippled|maimed|twisted|crooked|dragg\w+|game|weak|"
        r"artificial|peg|hook|stump|severed|amputated|cut off|shattered|crushed|useless|paralysed|deaf|short of|dead|"
        r"milky|clouded|ruined|empty|lopped|torn|mangled|shot|favou?r(?:s|ed|ing)?|broken|prosthetic|tin|iron|only|"
        r"good|remaining|sound|seeing|one-eyed|stumps|hollow|pinned|webbed|withering|turned-in|clubbed|club|shorter|"
        r"steel|brass|metal|clockwork|stayed behind|left behind|parted|three fingers|four fingers|never been of|no use|no sight|no feeling|half|gap|ached?|aching|unseeing|sightless|whole|eyeless|numb|swollen"),
    ),
)  # fmt: skip
_ELSEWHERE = re.compile(
    r"\b(?:took|taken|lost|without|hook|patch|glass|iron|tin|short of|game|club|peg|dead|half|shot|only|good|torn|ring|steel|brass|metal|burn\w*|broken)\b",
    re.IGNORECASE,
)
_SMALL_PARTS = frozenset({"finger", "forefinger", "thumb", "toe", "heel", "boot", "knuckles", "palm"})
_SOUND = re.compile(r"^(?:only|good|remaining|sound|seeing|whole|one)$", re.IGNORECASE)
_SIDED = re.compile(
    rf"(?P<own>{vocabulary.PERSON}'s |the |an? |one |of |in |on |over |up |down |across |along |: )?(?P<adj>(?:[a-z][\w-]* ){{0,2}})(?P<side>left|right)"
    rf"(?:-hand)? (?:side of (?:{vocabulary.PERSON}'s |the |his |her )?)?(?P<mid>(?:(?!left|right)[a-z][\w-]* ){{0,2}}?)(?P<part>{_PART})s?\b",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\b(?P<adj>blind|deaf|lame|limp(?:s|ed|ing)?|paralysed|blind side|wooden leg)\b(?: [a-z]+){0,2}? (?:on|in|of|is|was|being|,|:)"
    r"(?: (?:on|in))? (?:the |its |his |her )?(?P<side>left|right)\b(?: side| (?P<part>eye|ear|leg|foot|arm))?",
    re.IGNORECASE,
)
_VIEWED = re.compile(
    r"\b(?:mirror|reflect\w*|looking-glass|as one faced|facing (?:him|her|me|it|@[?~]?\d+)|portrait|canvas|photograph\w*|painting|viewer|"
    r"from where|(?:opposite|either|neither|other|the same) (?:cheek|eye|hand|leg|arm|ear|side|foot|knee|feet)s?(?! of)|other one|"
    r"as you (?:face|look)|negative|engraving|backward|reversed|wrong way)\b",
    re.IGNORECASE,
)
_OF = re.compile(
    rf"\b(?P<part>{_PART})s? (?:of|on|in|off) (?:the |{vocabulary.PERSON}'s )(?P<side>left|right)\b(?! (?:{_PART}))",
    re.IGNORECASE,
)
_FOLLOWS = re.compile(rf"\b(?P<part>{_PART}), the (?P<side>left|right)(?: one)?(?=[,.;])")
_ELLIPTIC = re.compile(
    rf"\b(?P<part>{_PART})s?\b(?:(?!left|right)[^.!?]){{1,80}}?[;,:] (?:but |and )?(?:with )?(?:the|@[?~]?\d+'s) (?:left|right)(?= (?:was|is|had|has|being|lay|hung)\b)"
)
_GONE = re.compile(
    r"^(?:steel|stayed behind|left behind|parted|three fingers|four fingers|miss\w*|lost|lack\w*|gone|put out|taken|took|without|pinned|severed|amputated|cut off|stump|empty|gap|hook|artificial|left)$",
    re.IGNORECASE,
)
_HANDED = re.compile(
    rf"(?P<p>{vocabulary.PERSON})(?:(?!@)[^.;:!?]){{0,40}}?(?:,| is| was| am| being| were|:) ?(?:[a-z]+ ){{0,2}}?(?P<side>left|right)-handed",
    re.IGNORECASE,
)
_HAND_FIELD = re.compile(
    rf"(?P<p>{vocabulary.PERSON})'s (?:hand|handedness|dominant hand|writing hand|habits?|hands?)(?:[^:]{{0,12}}) : (?:[a-z]+ ){{0,3}}?(?P<side>left|right)\b",
    re.IGNORECASE,
)
_SKILLED = re.compile(
    rf"(?P<p>{vocabulary.PERSON})(?:(?!@[?~]?\d+\b(?!'s))[^.!?]){{0,40}}?\b(?:writ(?:es?|ing)|wrote|written|sign(?:s|ed|ing)|draws?|drew|sketch(?:es|ed)|"
    r"scrawl(?:s|ed)|scribbl(?:es|ed)|fenc(?:es|ed)|carv(?:es|ed)|sew(?:s|ed)|throws?|threw|paints?|painted)\b[^.!?]{0,80}?"
    rf"\b(?:with|in|using) (?P<q>{vocabulary.PERSON}'s |the )(?:[a-z]{{2,15}} )?(?P<side>left|right)(?: hand\b|(?= *[,.]))",
    re.IGNORECASE,
)
_OTHER_SENSE = re.compile(
    r"\bright (?:away|there|here|now|then|on|up|down|into|through|as|at|to)\b|\ball right\b", re.IGNORECASE
)


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield marks with their side, and the better hand."""
    text = _FOLLOWS.sub(r"\g<side> \g<part>", passage.text)
    text = _ELLIPTIC.sub(r"\g<0> \g<part>", text)
    passage = dataclasses.replace(passage, text=text) if text != passage.text else passage
    for match in _SIDED.finditer(text):
        if not _is_viewed(text, match):
            yield from _marked(passage, roster, match, _PARTS[match["part"].lower()])
    if _VIEWED.search(text):
        return
    for match in _AFTER.finditer(text):
        part = match["part"] or {"b": "eye", "d": "ear"}.get(match["adj"][0].lower(), "leg")
        yield from _marked(passage, roster, match, _PARTS[part.lower()])
    for match in _OF.finditer(text):
        yield from _marked(passage, roster, match, _PARTS[match["part"].lower()])
    for rule in (_HANDED, _HAND_FIELD, _SKILLED):
        for match in rule.finditer(text):
            number, sure = facts.person(match)
            if not facts.is_unreal(passage, match.start(), match.end()) and roster.is_person(number):
                yield _fact(passage, roster, number, sure, "hand", "hand", match["side"])
    if passage.is_card and passage.subject:
        for match in re.finditer(r"(?<![@\d'] )\b(left|right)-handed\b", text, re.IGNORECASE):
            yield _fact(passage, roster, passage.subject, True, "hand", "hand", match[1])


def _is_viewed(text: str, match: re.Match[str]) -> bool:
    """Return whether the clause speaks of a mirror, a portrait or the opposite side."""
    start = max(text.rfind(";", 0, match.start()), text.rfind(". ", 0, match.start()), 0)
    end = text.find(";", match.end())
    return _VIEWED.search(text, start, end if end > 0 else len(text)) is not None


def _marked(passage: Passage, roster: Roster, match: re.Match[str], part: str) -> Iterator[Fact]:
    text = passage.text
    if _OTHER_SENSE.match(text, match.start("side")):
        return
    mark = _mark(text, match)
    if mark is None:
        yield from _used(passage, roster, match, part)
        return
    if facts.is_unreal(passage, match.start(), match.end()):
        return
    number, sure = _bearer(passage, match, roster)
    if not number:
        return
    side = match["side"].lower()
    kind, word = mark
    if kind == "defect" and _SOUND.match(word):
        side = "right" if side == "left" else "left"
    if kind == "defect" and part == "face":
        part = "eye" if re.search(r"\b(?:blind|eye|lid|patch)\b", text, re.IGNORECASE) else part
    group = part if kind in {"defect", "wound"} else ("face" if part in {"eye", "ear"} else part)
    if kind in {"scar", "burn", "tattoo", "birthmark"} and re.search(r"\b(?:another|second|scars|burns)\b", text):
        return
    how = "gone" if kind == "defect" and _GONE.match(word) and match["part"] not in _SMALL_PARTS else "marked"
    yield _fact(passage, roster, number, sure, kind, group, side, how)


def _used(passage: Passage, roster: Roster, match: re.Match[str], part: str) -> Iterator[Fact]:
    """Yield a hand, an eye or a leg that somebody uses, so that it cannot be the one that is gone."""
    own = match.groupdict().get("own") or ""
    if part in {"arm", "leg", "eye"} and own.startswith("@") and not passage.is_spoken:
        number, sure = _bearer(passage, match, roster)
        if number and not facts.is_unreal(passage, match.start(), match.end()) and not facts.is_earlier(passage):
            yield _fact(passage, roster, number, sure, "defect", part, match["side"], "used")


def _mark(text: str, match: re.Match[str]) -> tuple[str, str] | None:
    """Return the class and the word of the mark that is nearest to a part of the body in its clause."""
    before = facts.clause(text, match.start())[-90:]
    own = match.groupdict().get("own") or ""
    if own.startswith("@") and re.search(r"\b(?:left|leaving) $", text[: match.start()]):
        return "defect", "lost"
    inside = text[match.start() : match.end()]
    after = re.split(r"[.;:!?]", text[match.end() : match.end() + 75], maxsplit=1)[0]
    after = _ELSEWHERE.sub("", after)
    for stretch in (inside, before, after):
        for kind, words in _MARKS:
            found = re.search(rf"\b(?:{words})\b", stretch, re.IGNORECASE)
            if found and not (kind == "defect" and stretch is not inside and _SOUND.match(found[0])):
                return kind, found[0]
    return None


def _bearer(passage: Passage, match: re.Match[str], roster: Roster) -> tuple[int, bool]:
    own = match.groupdict().get("own") or ""
    if own.startswith("@"):
        return int(own.strip().removesuffix("'s").strip("@?~")), "?" not in own
    inner = re.search(vocabulary.PERSON + "(?='s)", match[0])
    if inner:
        return int(inner[0].strip("@?~")), "?" not in inner[0]
    return facts.bearer(passage, match.start(), match.end(), roster)


def _fact(
    passage: Passage, roster: Roster, number: int, sure: bool, mark: str, part: str, side: str, how: str = "marked"
) -> Fact:
    return Fact(
        kind="side",
        attribute="hand" if mark == "hand" else "side",
        subject=roster.name(number),
        key=(str(number), mark, part),
        value=side.lower() if mark == "hand" else f"{side.lower()} ({mark if how == 'marked' else how})",
        data=(side.lower(), how),
        passage=passage,
        is_sure=sure,
    )


def differ(one: Fact, other: Fact) -> bool:
    """Return whether one says left and the other right, or whether a hand is used that is gone."""
    (first, how), (second, how_other) = one.data, other.data
    if "used" in {how, how_other}:
        return first == second and "gone" in {how, how_other}
    return bool(first != second)
