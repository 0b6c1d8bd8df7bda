"""Ranks, trades and kinship."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})"
_Q = rf"(?P<q>{vocabulary.PERSON})"
_RANK = rf"(?P<r>{'|'.join(sorted(vocabulary.RANKS, key=len, reverse=True))})"
_KIN = rf"(?P<k>{'|'.join(sorted(vocabulary.KINSHIP, key=len, reverse=True))})"
_TRADE = rf"(?P<t>{'|'.join(sorted(vocabulary.TRADES, key=len, reverse=True))}|[a-z]{{3,12}}(?:smith|wright|monger|keeper|maker|master|mistress|founder))"
_ADJ = r"(?:(?:elder|older|eldest|younger|youngest|only|late|dead|twin|big|little|own|dear|poor|baby|first|second|beloved|maiden|favourite|great) )*"
_BEING = r"(?: of [^,.;@]{3,30})?(?:,? who)?(?: is| was| had been| has been| has always been)"
_TITLED = re.compile(rf"\b(?:[Tt]he )?{_RANK}\.? {_P}(?!'s (?:{'|'.join(vocabulary.KINSHIP)}))", re.IGNORECASE)
_RANKED = (
    re.compile(
        rf"{_P}(?:{_BEING}|,)(?: only| still| now)? (?:a|an|the) (?:[a-z-]+ ){{0,2}}?{_RANK}\b(?! of police's)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_P}'s (?:rank|position|role|title|post|grade|occupation|office) : (?:[a-z-]+ ){{0,2}}?{_RANK}\b",
        re.IGNORECASE,
    ),
)
_CARD_RANK = re.compile(rf"(?:the |an? )?(?:[a-z-]+ )?{_RANK}\b(?!'s)", re.IGNORECASE)
_CARD_TRADE = re.compile(rf"(?:the |an? )?(?:[a-z-]+ ){{0,2}}?{_TRADE}\b(?!'s| @)", re.IGNORECASE)
_TRADED = (
    re.compile(
        rf"{_P}(?:(?:,? who)?(?: is| was| am| worked as|,))(?: only| still| now| once)? (?:a|an|the) (?:(?!of\b)[\w'-]+ ){{0,2}}?{_TRADE}\b(?!'s|-| (?:boy|girl|woman|man)\b)",
        re.IGNORECASE,
    ),
    re.compile(rf"\bthe {_TRADE},? {_P}(?!'s)", re.IGNORECASE),
    re.compile(rf"{_P},? the (?:[a-z]+ )?{_TRADE}(?=[,.;]| of\b)", re.IGNORECASE),
    re.compile(
        rf"{_P}'s (?:role|occupation|trade|job|profession|work|calling) : (?:[\w-]+ ){{0,3}}?{_TRADE}\b", re.IGNORECASE
    ),
)
_KINSHIPS = (
    re.compile(
        rf"{_P}'s {_ADJ}{_KIN}(?:,| was| is| :|, who was|, you (?:know|see),?|) (?:the )?(?:[A-Z][a-z]+ )?{_Q}(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_Q}(?:,? who)?(?:,| is| was| had been| being|'s (?:role|family|relations?|kin|relation|relationships|position) :)(?: only| just| not even| also)? {_P}'s {_ADJ}{_KIN}\b(?!'s)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_Q}(?:,? who)?(?:,| is| was|'s (?:role|family|relations?|kin|relation|relationships|position) : (?:[^@]{{0,60}}; ?)?)(?: the| an?)? ?{_ADJ}{_KIN} (?:of|to) {_P}(?!'s)",
        re.IGNORECASE,
    ),
)
_FAMILY_PART = re.compile(rf"\b{_ADJ}{_KIN} (?:of|to) {_P}(?!'s)", re.IGNORECASE)
_FAMILY_NAME = re.compile(rf"(?:^|[:;,(] ?|\bone |\ban? ){_ADJ}{_KIN},? (?:\(|: )?{_P}(?!'s)", re.IGNORECASE)
_CARD_KIN = re.compile(
    rf"^(?:[^:]{{0,60}} : )?(?:[^@:]{{0,40}}, )?{_P}'s {_ADJ}{_KIN}\b(?!'s| @| [A-Z])", re.IGNORECASE
)
_MUTUAL = re.compile(
    rf"{_P} and {_Q} (?:were|are|had been) (?:[a-z-]+ )?(?P<k>brothers|sisters|cousins|twins|siblings|husband and wife|man and wife|married|half-brothers|half-sisters|brother and sister)\b",
    re.IGNORECASE,
)
_MARRIED = re.compile(rf"{_P}(?: is| was| had been)? married (?:to )?{_Q}(?!'s)", re.IGNORECASE)
_PROMOTED = re.compile(
    r"\b(?:promot\w+|since (?:the|last|this|yesterday|\w+day)\b|stripes?|gazetted|demot\w+|reduced to|brevet|acting|formerly|former|retired|"
    rf"(?:made(?: @[?~]?\d+)?|become|became|becomes|be|being|been|then|once|call(?:ed|s)? (?:him|her|me|you|@[?~]?\d+)|joined (?:\w+ )?as|as|rank of) (?:an? |up )?(?:first |full |the )?(?:{'|'.join(sorted(vocabulary.RANKS))}))\b",
    re.IGNORECASE,
)
_LIKE = re.compile(
    r"\b(?:like|as (?:a|if|though)|some|calls?|called|almost|than|as good as|no|not|pretend\w*|said to be|wish\w*|would have|step|foster|sworn)\b[^.;]{0,24}$",
    re.IGNORECASE,
)
_COMPATIBLE = [
    set(pair.split())
    for pair in (
        "parent step-parent|sibling half-sibling|spouse betrothed|spouse cousin|uncle great-uncle|parent godparent|uncle godparent|"
        "sibling step-sibling|grandparent parent"
    ).split("|")
]
_CHURCH = re.compile(r"\b(?:Father|Mother|Sister|Brother|Aunt|Uncle|Granny) $")


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield ranks, trades and who is what to whom."""
    if passage.text.endswith("?"):
        return
    yield from _ranks(passage, roster)
    yield from _kinships(passage, roster)


def _ranks(passage: Passage, roster: Roster) -> Iterator[Fact]:
    text = passage.text
    if _PROMOTED.search(text) and not passage.is_card:
        for number in {int(m.strip("@?~")) for m in re.findall(vocabulary.PERSON, text)}:
            if re.search(_RANK, text, re.IGNORECASE) and roster.is_person(number):
                yield _fact(passage, roster, "rank", number, (str(number),), "changed", "", True)
        return
    alone = not re.search(rf"@(?![?~]?{passage.subject}\b)", text)
    if (
        passage.is_card
        and passage.subject
        and alone
        and len(set(re.findall(_RANK.replace("?P<r>", ""), text.lower()))) > 1
    ):
        yield _fact(passage, roster, "rank", passage.subject, (str(passage.subject),), "changed", "", True)
        return
    for rule in (_TITLED, *_RANKED):
        for match in rule.finditer(text):
            number, sure = facts.person(match)
            if (rule is _TITLED and _CHURCH.search(text[: match.start("p")])) or not roster.is_person(number):
                continue
            if not facts.is_unreal(passage, match.start(), match.end()):
                yield _fact(
                    passage, roster, "rank", number, (str(number),), match["r"].lower(), match["r"].lower(), sure
                )
    trade = _CARD_TRADE.match(text) if passage.is_card and passage.subject and not passage.field else None
    if trade and roster.is_person(passage.subject):
        word = trade["t"].lower()
        yield _fact(passage, roster, "trade", passage.subject, (str(passage.subject),), word, word, True)
    own = _CARD_RANK.match(text) if passage.is_card and passage.subject else None
    if own and roster.is_person(passage.subject):
        yield _fact(
            passage, roster, "rank", passage.subject, (str(passage.subject),), own["r"].lower(), own["r"].lower(), True
        )
    for rule in _TRADED:
        for match in rule.finditer(text):
            number, sure = facts.person(match)
            if roster.is_person(number) and not facts.is_unreal(passage, match.start(), match.end()):
                yield _fact(
                    passage, roster, "trade", number, (str(number),), match["t"].lower(), match["t"].lower(), sure
                )


def _kinships(passage: Passage, roster: Roster) -> Iterator[Fact]:
    text = passage.text
    for rule in _KINSHIPS:
        for match in rule.finditer(text):
            (one, sure), (other, sure_other) = facts.person(match), facts.person(match, "q")
            if not _LIKE.search(facts.clause(text, match.start("k"))) and not facts.is_unreal(
                passage, match.start(), match.end()
            ):
                yield from _related(passage, roster, one, other, match["k"], sure and sure_other)
    for rule in (_MUTUAL, _MARRIED):
        for match in rule.finditer(text):
            word = {
                "husband and wife": "wife",
                "man and wife": "wife",
                "married": "wife",
                "brother and sister": "sister",
            }
            stated = match.groupdict().get("k", "married").lower()
            (one, sure), (other, sure_other) = facts.person(match), facts.person(match, "q")
            yield from _related(passage, roster, one, other, word.get(stated, stated.rstrip("s")), sure and sure_other)
    if passage.is_card and passage.subject:
        for match in _FAMILY_PART.finditer(text):
            yield from _related(passage, roster, facts.person(match)[0], passage.subject, match["k"], True)
        own = _CARD_KIN.search(text)
        if own and facts.person(own)[0] != passage.subject:
            yield from _related(passage, roster, facts.person(own)[0], passage.subject, own["k"], True)
        for match in _FAMILY_NAME.finditer(text):
            if not re.match(r" of\b", text[match.end("k") :]):
                yield from _related(passage, roster, passage.subject, facts.person(match)[0], match["k"], True)


def _related(passage: Passage, roster: Roster, one: int, other: int, word: str, sure: bool) -> Iterator[Fact]:
    """Yield that `other` is this to `one`; the pair is put into one order, and the relation turned with it."""
    if one == other or not (roster.is_person(one) and roster.is_person(other)):
        return
    relation = vocabulary.KINSHIP.get(word.lower(), "")
    if not relation:
        return
    if one > other:
        one, other, relation = other, one, vocabulary.INVERSE.get(relation, relation)
    yield _fact(passage, roster, "relation", one, (str(one), str(other)), word.lower(), relation, sure, other)


def _fact(
    passage: Passage,
    roster: Roster,
    attribute: str,
    number: int,
    key: tuple[str, ...],
    value: str,
    data: object,
    sure: bool,
    other: int = 0,
) -> Fact:
    subject = roster.name(number) + (f" and {roster.name(other)}" if other else "")
    return Fact(
        kind="rank_relation",
        attribute=attribute,
        subject=subject,
        key=key,
        value=value,
        data=data,
        passage=passage,
        is_sure=sure,
    )


def differ(one: Fact, other: Fact) -> bool:
    """Return whether nobody can be both."""
    first, second = str(one.data), str(other.data)
    if first == second or not first or not second:
        return False
    if one.attribute == "rank":
        return any(first in ladder and second in ladder for ladder in vocabulary.RANK_LADDERS)
    if one.attribute == "trade":
        return first not in second and second not in first
    return {first, second} not in _COMPATIBLE
