"""Intervals: `a fortnight since the gates were shut`, held against the day on which it happened."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterator, Sequence

from app.tools.story import dates
from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_DAYS = {"day": (1, 0), "night": (1, 0), "week": (7, 2), "fortnight": (14, 2), "month": (30, 8), "year": (365, 40)}
"""Days of each unit, and how many of them a teller may be out."""
_UNIT = rf"(?P<n>{dates.NUMBER}|an?|the) (?:whole |full |long )?(?P<u>{'|'.join(_DAYS)})s?"
_LENGTH = re.compile(
    rf"\b(?:{_UNIT}(?P<exact> to the day)? (?P<how>since|ago|after|before|earlier|later)|(?P<y>the day before yesterday|yesterday|last night))\b",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\b(?:about|nearly|almost|some|over|more than|less than|only|perhaps|scarcely|not|within|every|another|within|for|in|of|or)\s$",
    re.IGNORECASE,
)
_LINKS = "on|in|at|to|up|down|out|with|from|for|and|by|before|after|that|as|again|over|into|round|until|when|behind|himself|herself|under|there|here"
_THING = rf"(?:the|that|this|our|its|{vocabulary.PERSON}'s) (?:(?!and\b|of\b)[a-z-]+ ){{0,2}}?(?P<o>[a-z]{{3,20}})(?=[,.;:!?]| (?:{_LINKS})\b|$)"
_DID = re.compile(rf"\b(?P<v>[a-z]{{3,14}})(?: up| down| out| off| in)? {_THING}", re.IGNORECASE)
_WAS_DONE = re.compile(
    rf"\b(?:the|that|this|our|its|{vocabulary.PERSON}'s) (?:(?!and\b|of\b)[a-z-]+ ){{0,2}}?(?P<o>[a-z]{{3,20}}) "
    r"(?:had been|have been|has been|was|were|is|are) (?P<v>[a-z]{3,14})\b",
    re.IGNORECASE,
)
_CAME = re.compile(
    rf"(?P<o>{vocabulary.PERSON})(?!'s) (?:had |has )?(?P<v>arrived|died|married|sailed|emigrated|vanished|disappeared|enlisted|returned|drowned)\b",
    re.IGNORECASE,
)
_BEFELL = re.compile(
    r"\b(?:the|that|our) (?:[a-z]+ )?(?P<o>[a-z]{3,20}) (?:had |has )?(?P<v>burst|collapsed|sank|fell|burned|burnt|opened|closed|failed|ended|sailed|exploded|flooded|filled|shut|froze|broke|docked|left|came|arrived)\b",
    re.IGNORECASE,
)
_PAST = {
    "shut": "close", "closed": "close", "broke": "break", "broken": "break", "hung": "hang", "hanged": "hang", "sold": "sell",
    "bought": "buy", "found": "find", "lost": "lose", "gave": "give", "given": "give", "burnt": "burn", "built": "build",
    "stole": "steal", "stolen": "steal", "cut": "cut", "laid": "lay", "blew": "blow", "blown": "blow", "sank": "sink",
    "sunk": "sink", "lit": "light", "rang": "ring", "rung": "ring", "fell": "fall", "dug": "dig", "won": "win", "shot": "shoot",
}  # fmt: skip
_NO_DEEDS = frozenset("the and for was were had has have been with into from their that this been being need".split())
_OFTEN = frozenset(
    "door doors window windows lamp light head hand hands eyes eye table fire pipe gate room house book letter bottle glass cup "
    "stairs road street same time way day night morning evening words word question face".split()
)
_UNREAL = re.compile(
    r"\b(?:had|would|will|shall|should|could|might|must|not|never|if|when|until|before|after|since|used to|going to)\b",
    re.IGNORECASE,
)
_CLAIMS = 40


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield what is said to have happened so many days ago."""
    day = _day(passage)
    text = passage.text
    if day is None or passage.is_card or passage.is_flashback or text.endswith("?"):
        return
    for match in _LENGTH.finditer(text):
        told = _told(match)
        if told is None or _VAGUE.search(text[: match.start()]) or facts.is_unreal(passage, match.start(), match.end()):
            continue
        days, slack = told
        for key in _keys_near(text, match):
            yield Fact(
                kind="dates_order",
                attribute="interval",
                subject=f"the {key[1]}" if "@" not in key[1] else roster.name(int(key[1].strip("@?~"))),
                key=("deed", *key),
                value=match[0],
                data=(day - days, slack),
                passage=passage,
            )


def _day(passage: Passage) -> int | None:
    date = passage.date
    if date is None or date.month is None or date.day is None:
        return None
    try:
        return dt.date(date.year or 2001, date.month, date.day).toordinal()
    except ValueError:
        return None


def _stated(passage: Passage) -> int | None:
    """Return the only day that a passage itself names."""
    found = dates.find(passage.text)
    if len(found) != 1 or passage.date is None:
        return None
    return _day(
        dataclasses.replace(passage, date=dataclasses.replace(found[0], year=found[0].year or passage.date.year))
    )


def _told(match: re.Match[str]) -> tuple[int, int] | None:
    """Return how many days a length has, and by how many it may be out; None if it is not counted
    from the scene's day.
    """
    if match["y"]:
        return (2, 0) if match["y"].lower().startswith("the") else (1, 1)
    if match["how"].lower() not in {"since", "ago"} or match["n"].lower() == "the":
        return None
    count = 1 if match["n"].lower() in {"a", "an"} else dates.number(match["n"])
    if count is None or not 1 <= count < 100:
        return None
    days, slack = _DAYS[match["u"].lower()]
    return count * days, 0 if match["exact"] else 1 + slack * (1 if count < 4 else 2)


def _keys_near(text: str, match: re.Match[str]) -> set[tuple[str, str]]:
    """Return what was done, from the part of a sentence to which a length belongs."""
    how = (match["how"] or "ago").lower()
    after = re.split(r"[.;:!?]", text[match.end() :])[0]
    if how == "since":
        return set(_deeds(after))
    before = re.split(r"[.;:!?]", text[: match.start()])[-1]
    return (
        set(_deeds(before.rpartition(" and ")[2].strip()))
        if len(before) > 12
        else set(_deeds(after.partition(" and ")[0]))
    )


def _deeds(text: str) -> Iterator[tuple[str, str]]:
    """Yield each verb in the past with the thing to which it was done, or the person who did it."""
    for rule in (_DID, _WAS_DONE, _CAME, _BEFELL):
        for match in rule.finditer(text):
            verb, thing = match["v"].lower(), match["o"].lower()
            stem = (
                _PAST.get(verb)
                or (verb if rule is _BEFELL else "")
                or (verb.removesuffix("d").removesuffix("e") if verb.endswith("ed") else "")
            )
            if stem and verb not in _NO_DEEDS and thing not in _OFTEN and stem not in _OFTEN:
                yield stem, thing.replace("~", "").replace("?", "")


def conflicts(told: Sequence[Fact], read_passages: Sequence[Passage]) -> Iterator[tuple[Fact, Fact]]:
    """Yield each interval that leads to a day on which it did not happen, with the scene in which it did."""
    claims = [fact for fact in told if fact.attribute == "interval"][:_CLAIMS]
    wanted = {fact.key[1:] for fact in claims}
    happened: dict[tuple[str, ...], list[tuple[int, Passage]]] = {}
    for passage in read_passages if claims else ():
        day = _stated(passage) or _day(passage)
        if day is None or passage.is_card or passage.is_spoken or passage.is_flashback or facts.is_earlier(passage):
            continue
        for key in wanted & set(_deeds(_real(passage.text))):
            happened.setdefault(key, []).append((day, passage))
    reported: set[tuple[str, int]] = set()
    for claim in claims:
        stated, slack = claim.data
        days = [(day, p) for day, p in happened.get(claim.key[1:], ()) if p.order != claim.passage.order]
        place = (claim.passage.path, claim.passage.line)
        if not days or len({day for day, _ in days}) > 1 or place in reported:
            continue
        day, passage = days[0]
        if abs(day - stated) > slack:
            reported.add(place)
            yield _happened(claim, passage), claim


def _real(text: str) -> str:
    """Return the clauses of a sentence that tell what happens, without wishes and what lies further back."""
    return "; ".join(part for part in re.split(r"[;:]|, (?:and|but)\b| and ", text) if not _UNREAL.search(part))


def _happened(claim: Fact, passage: Passage) -> Fact:
    return Fact(
        kind=claim.kind,
        attribute=claim.attribute,
        subject=claim.subject,
        key=claim.key,
        value=str(passage.date),
        data=(_day(passage), 0),
        passage=passage,
    )
