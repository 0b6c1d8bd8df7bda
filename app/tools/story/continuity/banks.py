"""Banks and sides: on which side of a river, a street or a square something stands, and at which end."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_PAIRS = (
    "east west|north south|left right|sunny shady|upper lower|sun shade|weather lee|windward leeward|river land|landward seaward|"
    "river hill|port starboard|odd even|this other|up down|top bottom|head foot|head mouth|spinward antispinward|street courtyard|street yard|"
    "street garden|front back|upstream downstream|near far|fore aft|bow stern|river street|square courtyard|square yard|eastern western|opposite next"
)
_OPPOSITE = {frozenset(pair.split()) for pair in _PAIRS.split("|")}
_OPPOSITE |= {
    frozenset({f"{a}{b}", f"{c}{d}"})
    for a, c in (("north", "south"), ("south", "north"))
    for b in ("east", "west")
    for d in ("east", "west")
}
_S = (
    r"(?P<s>(?:north|south)-?(?:east|west)|north|south|east|west|left|right|near|far|sunny|sun|shady|shade|landward|seaward|river|land|hill|even|odd|weather|lee|"
    r"windward|leeward|upper|lower|port|starboard|spinward|antispinward|street|courtyard|yard|garden|upstream|downstream|square)(?:ern(?:most)?)?(?:-hand|wards?|erly)?"
)
_B = r"(?P<b>bank|side|shore|edge|end|slope|corner|quay|arm|wall|face|wing|pavement|half|aisle|point|tip|beach|coast|ridge|cliff|cliffs)"
_SIDE = re.compile(
    rf"\b{_S} {_B}\b(?: (?:of|to) (?P<ref>(?:the |our |{vocabulary.PERSON}'s )?[^,.;:!?()—]{{2,40}}))?", re.IGNORECASE
)
_TOWARDS = re.compile(
    rf"(?<![\w-])(?P<s>(?:north|south)?-?(?:east|west)|north|south|upstream|downstream) of (?P<b>)(?P<ref>the [a-z]+|{vocabulary.PERSON})|\bto (?P<s2>port|starboard)\b",
    re.IGNORECASE,
)
_HEIGHT = re.compile(
    r"(?:\bat (?:the|its) (?:very )?|: )(?P<s>top|bottom|head|foot|mouth|upper|lower)(?: end)?,? of (?P<b>)(?:the )?(?P<ref>valley|dale|street|village|hill|lane|town|road|glen|cliff|garden|pass|inlet|bay|loch|lake|square|@\d+|[A-Z][\w ]{2,20})"
)
_FACES = re.compile(
    r"\b(?:faced|faces|fronted|fronts|looked|looks) (?:due )?(?P<s>north|south|east|west)\b(?P<b>)(?P<ref>)(?! of| (?:wind|end))"
)
_LOOKS = re.compile(
    r"\b(?:looks?|looked|looking|faces|faced|facing|gives?|gave|giving|opens?|opened) (?:right |straight |out |down )*(?:on|onto|over|into|upon|to)? ?(?:the )(?P<s>street|courtyard|yard|garden|river|square|sea)\b(?P<b>)(?P<ref>)"
)
BUILDINGS = (
    "abbey|almshouse|arches|armoury|bakehouse|bakery|bank|barn|barracks|bathhouse|boathouse|brewery|cabin|café|cafe|camp|castle|cemetery|chapel|church|churchyard|"
    "cottage|court|courthouse|convent|customs house|dairy|dispensary|dock|factory|farm|farmhouse|ferry house|ferry|forge|fort|foundry|fountain|gaol|gatehouse|"
    "granary|graveyard|greenhouse|guardhouse|hall|harbour office|hospital|hotel|house|hut|infirmary|inn|jail|jetty|kennels|kiln|kitchen|laboratory|landing|"
    "laundry|library|lighthouse|lock|lodge|manor|market|mill|monastery|morgue|museum|observatory|office|orchards?|palace|parsonage|pharmacy|pier|pool|post office|prison|pub|"
    "pump|quarry|rectory|ropewalk|sawmill|school|schoolhouse|shed|shop|shrine|signal box|slaughterhouse|smithy|stables?|station|store|studio|study|surgery|synagogue|"
    "tannery|tavern|temple|theatre|tower|town hall|treasury|vicarage|village|wardrobe|warehouse|well|windmill|workshop|yard|room|bedroom|graves?|oak|elm|yew|willow|harbour|"
    r"[a-z]{3,}(?:works|house|yard|mill)"
)
"""Nouns of buildings and other landmarks, as alternatives of an expression."""
_GENERIC = frozenset(
    "house cottage room cabin shop office farm hut store yard well tower camp shed study bedroom kitchen lock hall grave".split()
)
_NP = rf"(?:(?:[Tt]he|[Oo]ur|[Tt]heir|[Aa]n?|[Oo]ld|{vocabulary.PERSON}'s)(?: (?!of\b|on\b|at\b|in\b|and\b|was\b|to\b)[\w'’-]+){{0,3}}? (?:{BUILDINGS})\b(?!'s|-| (?:{BUILDINGS})\b)(?: of {vocabulary.PERSON})?|{vocabulary.PERSON}(?!')|(?:[Tt]he )(?:[A-Z][\w'’]+ ?){{1,3}})"
_PHRASE = re.compile(rf"(?P<np>{_NP})")
_STANDS = (
    r"(?:stands?|stood|lies?|lay|is|was|were|are|sits|sat|rises|rose|ran|runs|leans|leaned|stretche[sd]|spread|crouche[sd]|built|perched|huddled|clung|clings|"
    r"begins?|began|occupie[sd]|backs|backed|hung|squatted|came|comes|kept|lives?|lived|had been|has been|overlooked)"
)
_BESIDE = re.compile(
    rf"^(?:,? (?:which|that))? (?:{_STANDS})? ?(?:directly |straight |right |just |exactly )?"
    r"(?:(?P<o>opposite(?: to)?|across (?:the [a-z]+ )?from|facing|faced|looked (?:straight )?(?:across )?at)|(?P<n>next (?:door )?to|wall to wall with|adjoin(?:s|ed|ing)|"
    r"shar(?:es|ed) a wall with|(?:built|leaned|leaning) against|beside)) $"
)
_BETWEEN = re.compile(
    rf"^(?:,? (?:which|that))?(?:,[^,.;@]{{1,60}},)? ?(?:(?:had |has |still |always |also |itself )*{_STANDS}\b)?[^.;!?@]{{0,70}}$"
)
_ADJACENT = re.compile(
    r"^,? (?:(?:there|standing|lying|over|just|down|up|out|right|that stood|built|and camp) )*(?:(?:on|at|along|by|from|in|to|of|under|,) )*(?:the |its )?(?:very )?$"
)
_INVERTED = re.compile(
    rf"^(?: (?:of|from|as) [^;.]{{3,40}}?)?,? (?:(?:and )?(?:there|where|then),? )?(?:{_STANDS} )?(?:(?:also|then|only|under|below|above|beneath) )?(?:(?:[a-z]+ ){{0,2}}of )?$"
)
_MOVED = re.compile(
    r"\b(?:moved|once|formerly|used to|rebuilt|until|before|crossed|cross|crossing|walked|rowed|swam|went|climbed|drove|rode|as you|as one|going|coming|"
    r"facing|heading|not|never|carried|reached|steered|made for|turned|sailed|ran|came (?:to|down|up|over|out|round|from))\b",
    re.IGNORECASE,
)
_TOLD_APART = "upper|lower|other|second|first|third|new|north|south|east|west"
_PLAIN = frozenset(
    "the a an our their old little big own new small tall dark whole very last first next other same s".split()
)
_SEATS = frozenset({"table", "bed", "bench", "room", "boat", "deck", "queue", "stage", "altar", "face", "head", "body"})
_FIELD = re.compile(
    r"^(?:location|place|where|position|stands|lies|address|situation|side|bank|site|setting|description)\b"
)
_BANKS = frozenset({"bank", "shore", "side", "quay", "edge", ""})


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield what stands on which side."""
    text = passage.text
    if text.endswith("?") or facts.is_earlier(passage):
        return
    for rule in (_SIDE, _TOWARDS, _HEIGHT, _LOOKS, _FACES):
        for match in rule.finditer(text):
            if not facts.is_unreal(passage, match.start(), match.end()):
                yield from _placed(passage, roster, match)
    yield from _beside(passage, roster)
    name, _, value = text.partition(" : ")
    listed = _SIDE.search(name) if passage.is_card and passage.field else None
    for part in re.split(r"[,;]| and ", value) if listed else ():
        assert listed is not None
        yield from _fact(passage, roster, part.strip(), listed)


def _beside(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield which two buildings stand opposite or next to each other."""
    found = list(_PHRASE.finditer(passage.text))
    for one, other in itertools.pairwise(found):
        match = _BESIDE.match(passage.text[one.end() : other.start()])
        keys = sorted((_key(one["np"], roster), _key(other["np"], roster)))
        if match and all(keys) and keys[0] != keys[1]:
            how = "opposite" if match["o"] else "next"
            yield Fact(
                kind="place_side",
                attribute="place_side",
                subject=_named(one["np"], roster),
                key=("beside", *keys),
                value=f"{how} to {keys[1]}",
                data=(how, "beside"),
                passage=passage,
            )


def _placed(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    """Yield what the words before or after a side place there."""
    text = passage.text
    opening = max(text.rfind(mark, 0, match.start()) for mark in (";", ". ", "!", "—", " : ")) + 1
    before, after = text[opening : match.start()], re.split(r"[;.!?—]", text[match.end() :])[0]
    named = [m for m in _PHRASE.finditer(before) if _key(m["np"], roster)]
    moved = _MOVED.search(facts.clause(text, match.start()))
    for found in reversed(named):
        gap = before[found.end() :]
        if re.search(r"\b(?:was|is|were|are|as) $", before[: found.start()]):
            continue
        if _ADJACENT.match(gap) or (not moved and re.search(rf"\b{_STANDS}\b", gap) and _BETWEEN.match(gap)):
            yield from _fact(passage, roster, found["np"], match)
            return
    placed, placed_end = False, 0
    for found in _PHRASE.finditer(after):
        gap = after[: found.start()]
        listed = placed and re.fullmatch(
            r"(?:[^@]{0,30})?(?:,| and|, then| then|, and) (?:the )?", after[placed_end : found.start()]
        )
        if _key(found["np"], roster) and (listed or (not placed and _INVERTED.match(gap) and gap.strip(" ,"))):
            yield from _fact(passage, roster, found["np"], match)
            placed, placed_end = True, found.end()
        elif not placed and gap.strip() == "," and _key(found["np"], roster):
            yield from _fact(passage, roster, found["np"], match)
            return
    if not placed and passage.is_card and passage.field and (_FIELD.match(passage.field) or not named):
        home = {"home", "house", "residence", "lives", "address", "cabin"} & set(passage.field.split("_"))
        label = text.partition(" : ")[0].partition("'s ")[2]
        if re.search(rf"\b(?:{BUILDINGS})\b", label):
            yield from _fact(passage, roster, f"the {label}" if "@" not in label else label, match)
            return
        subject = f"@{passage.subject}"
        yield from _fact(
            passage,
            roster,
            f"{subject}'s {'house' if home else label}" if home or not _FIELD.match(passage.field) else subject,
            match,
        )


def _fact(passage: Passage, roster: Roster, phrase: str, match: re.Match[str]) -> Iterator[Fact]:
    key = _key(phrase, roster)
    side = (match["s"] or match["s2"]).lower().replace("-", "")
    kind = (match["b"] or "").lower()
    reference = _reference(match["ref"] or "", kind, roster)
    if (
        not key
        or side in {"near", "far"}
        or reference in _SEATS
        or (kind in {"edge", "end", "corner"} and not reference)
    ):
        return
    apart = re.search(rf"\b(?:{_TOLD_APART}) (?:[a-z]+ )?{re.escape(key.split()[-1])}", phrase, re.IGNORECASE)
    yield Fact(
        kind="place_side",
        attribute="place_side",
        subject=_named(phrase, roster),
        key=(apart[0].lower() if apart else key,),
        value=f"{side} {kind}".strip(),
        data=(side, reference),
        passage=passage,
        is_sure="?" not in phrase,
    )


def _named(text: str, roster: Roster) -> str:
    return re.sub(vocabulary.PERSON, lambda m: roster.name(int(m[0].strip("@?~"))), text)


def _reference(stated: str, kind: str, roster: Roster) -> str:
    """Return of what it is the side: `bank` for a river's, a wing or an aisle, else the last word of what is named."""
    if kind in {"wing", "aisle", "slope", "wall", "face"}:
        return kind
    named = re.split(r"\b(?:and|with|where|which|that|above|below|from|in|at|on|as)\b", _named(stated, roster).lower())[
        0
    ]
    words = re.findall(r"[a-z]+", named)
    if not words or (kind in _BANKS and words[-1] in {"river", "water", "stream", "brook", "canal", "inlet"}):
        return "bank" if kind in {"bank", "shore"} or words else ""
    return "bank" if kind in {"bank", "shore"} else words[-1]


def _key(phrase: str, roster: Roster) -> str:
    """Return by which word a building is known again, with its owner where the word alone names many."""
    named = re.fullmatch(rf"(?:[Tt]he )?({vocabulary.PERSON})", phrase.strip())
    if named:
        number = int(named[1].strip("@?~"))
        place = not roster.is_person(number) or roster.may_be_place(number)
        return roster.name(number).lower().removeprefix("the ").split()[-1] if place else ""
    owner = re.search(rf"({vocabulary.PERSON})(?:'s|$)", phrase)
    bare = re.sub(rf" of {vocabulary.PERSON}$", "", phrase)
    head = next(reversed(re.findall(rf"\b(?:{BUILDINGS})\b", bare.lower())), "")
    if not head and re.fullmatch(r"(?:[Tt]he )?(?:[A-Z][\w'’]+ ?)+", phrase):
        return phrase.lower().split()[-1]
    if head in _GENERIC:
        other = re.search(r"(\w+)(?:'s|s') ", re.sub(vocabulary.PERSON, "", bare))
        made = re.search(rf"([a-z]+) {head}$", re.sub(rf"{vocabulary.PERSON}'s ", "", bare.lower()))
        whose = roster.name(int(owner[1].strip("@?~"))).lower() if owner else other[1] if other else ""
        who = made[1] if made and made[1] not in _PLAIN else whose
        return f"{who} {head}" if who else ""
    return head


def differ(one: Fact, other: Fact) -> bool:
    """Return whether two sides of one thing are opposite."""
    (first, reference), (second, reference_other) = one.data, other.data
    return frozenset({first, second}) in _OPPOSITE and (
        reference == reference_other or "" in {reference, reference_other}
    )
