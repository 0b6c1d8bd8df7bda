"""Ages: what a story says of how old somebody is, and when two of these cannot both be."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story import dates
from app.tools.story.continuity import facts, relative_ages, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_P = rf"(?P<p>{vocabulary.PERSON})"
_N = rf"(?P<n>{dates.NUMBER})"
_BE = r"(?: (?:is|was|am|are|were|being))"
_YEARS = r"(?: years? old| years? of age|(?= years?[,.;]))?"
_ENDS = r"(?=$|[,.;:!?)\"'”’—–]| and | but | or | years? | when @| that | with | at )(?! (?:of|or two|miles|feet|hours|weeks|days|months|years (?:ago|before|later|since|in|at|of (?!age))))"
_KIND = (
    r"(?:man|woman|boy|girl|child|lad|lass|youth|fellow|person|widow|widower|gentleman|lady|spinster|bachelor|maid|"
    rf"creature|sailor|soldier|teenager|orphan|{'|'.join(sorted(vocabulary.TRADES | vocabulary.RANKS))})"
)
_NOT_YEARS = (
    r"(?! ?(?:of (?!age)|or |to |o'clock|per|percent|pounds?|shillings?|pence|dollars?|miles?|feet|foot|yards?|inches|hours?|minutes?|seconds?|"
    r"days?|weeks?|months?|times|metres?|kilometres?|years (?!old|of age|younger|older|\w+'s))|[-:.,]\d|-)"
)
_STATED = (
    re.compile(
        rf"(?:{vocabulary.PERSON}|\bwho|\band|\bbut|,){_BE}(?: [a-z]+ly)?(?: (?:only|just|now|still|already|then|all of|by now|himself|herself|myself|aged|turned|of age,?|a good|fully))* (?P<n>{dates.NUMBER}){_YEARS}{_NOT_YEARS}(?= *[,.;:!?)\"'”’—–]| *$| (?:and|but|or|that|this|when|with|at|in|on|then|now|last|next|come|years|because|by|if|as|which|who|before|after|too|to)\b)",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?P<n>{dates.NUMBER})[- ](?:years?|summers|winters)[- ](?:old|of age)\b", re.IGNORECASE),
    re.compile(rf"\b(?:aged?|at the age of|of the age of) (?P<n>{dates.NUMBER})\b{_NOT_YEARS}", re.IGNORECASE),
    re.compile(rf"\b{_KIND} (?:of|at) (?P<n>{dates.NUMBER})\b{_NOT_YEARS}", re.IGNORECASE),
    re.compile(rf"{vocabulary.PERSON},? (?:now |still |just |only )?(?P<n>{dates.NUMBER})(?: years old)?(?=[,;)]| and )(?! \d)(?<!\d,)"),
    re.compile(rf"{vocabulary.PERSON} \((?:aged? )?(?P<n>{dates.NUMBER})[,);]"),
    re.compile(rf"{vocabulary.PERSON}'s age[^:]{{0,30}} : (?P<n>{dates.NUMBER})(?![-–/]\d)", re.IGNORECASE),
    re.compile(rf"{vocabulary.PERSON}'s (?P<n>{dates.NUMBER}) years\b(?! (?:of|in|at|as|on|with|among|under|there|here|away|abroad))", re.IGNORECASE),
    re.compile(rf"^at (?P<n>{dates.NUMBER}),? (?:with [^.;]{{3,80}}, )?(?={vocabulary.PERSON}(?!'s) (?:is|was|could|can|still|knew|looked|had no|did|has)\b)", re.IGNORECASE),
)  # fmt: skip
_TURNS = re.compile(
    rf"{_P}(?: had| has| have| would| will)?(?: only| just)? (?:turn(?:ed|s)?|reached) {_N}{_ENDS}", re.IGNORECASE
)
_BIRTHDAY = re.compile(rf"{_P}'s (?P<n>[a-z-]+(?:th|st|nd|rd)|\d+(?:th|st|nd|rd)) birthday", re.IGNORECASE)
_HOW_OLD = re.compile(rf"\bhow old (?:are|will) you\b(?:[^?@]{{0,30}}(?P<p>{vocabulary.PERSON}))?", re.IGNORECASE)
_ANSWER = re.compile(rf"[\"“‘' ]{{0,3}}(?:I am )?(?P<n>{dates.NUMBER})(?=[,.!;])", re.IGNORECASE)
_BORN = re.compile(
    rf"{_P}(?:'s (?:born|birthday|birth|date of birth|birth date|year of birth|birth year|dob)(?: :| (?:was|is))| (?:is|was|had been|were) born(?: (?:[a-z]+ ){{0,3}}?(?:on|in)\b)?) ?(?P<when>.{{3,60}})",
    re.IGNORECASE,
)
_THEN = re.compile(
    r"^ (?:when|the (?:year|day|summer|winter|night) (?:that |@|he |she |the )|years older|years younger|years his|years her)",
    re.IGNORECASE,
)
_ESTIMATE = re.compile(
    r"\b(?:about|nearly|almost|around|some|perhaps|maybe|roughly|over|past|under|close to|not yet|more than|less than|"
    r"might have been|could have been|may have been|looked|seemed|might be|could be|must be|must have been|guess\w*|as if|"
    r"not|never|like|would (?:be|have been)|will be|if)\b",
    re.IGNORECASE,
)
_YOUNGEST = 3
_OLDEST = 130
_TIME_JUMP = 10


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield ages and dates of birth."""
    for rule in _STATED:
        for match in rule.finditer(passage.text):
            yield from _stated(passage, roster, match)
    for match in _TURNS.finditer(passage.text):
        yield from _aged(passage, roster, match, "turns")
    for match in _BIRTHDAY.finditer(passage.text):
        yield from _aged(passage, roster, match, "turns")
    yield from _answered(passage, roster)
    for match in _BORN.finditer(passage.text):
        yield from _born(passage, roster, match)


def _answered(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield the age with which somebody answers `How old are you, Barnaby?`"""
    asked = _HOW_OLD.search(passage.answers)
    match = _ANSWER.match(passage.text)
    if asked and match and not _ESTIMATE.search(passage.text[: match.end()]):
        years = dates.number(match["n"])
        named = asked["p"]
        number = int(named.strip("@?~")) if named else passage.speaker
        if years is not None and years >= _YOUNGEST and roster.is_person(number):
            yield _fact(passage, roster, number, True, "is", years)


def _stated(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    """Yield an age with the one of whom it is told, wherever the name stands."""
    text = passage.text
    inside = re.match(vocabulary.PERSON, match[0])
    if inside:
        number, sure = facts.person(inside, 0)
    else:
        number, sure = facts.bearer(passage, match.start(), match.end(), roster)
        following = re.match(rf"(?:(?:,? [a-z]+){{0,2}},? )?({vocabulary.PERSON})(?!'s)", text[match.end() :])
        if following and ("@" not in text[: match.start()] or "old" in match[0]):
            number, sure = facts.person(following, 1)
    years = dates.number(match["n"])
    if years is None or not _YOUNGEST <= years <= _OLDEST or not roster.is_person(number):
        return
    before = facts.clause(text, match.start("n"))
    if _ESTIMATE.search(before[-40:]) or (text.rstrip("\"'”’").endswith("?") and passage.is_spoken):
        return
    if _WHEN.search(before) or _THEN.match(text[match.end("n") :]):
        return
    if years < _GROWN and re.search(r"\b(?:only|just|but)\b", before) and _THAT_TIME.search(text):
        return
    if "had been" in before or facts.is_earlier(passage) or (passage.is_spoken and re.search(r"\bwas\b", match[0])):
        return
    yield _fact(passage, roster, number, sure, "is", years)


_GROWN = 16
_THAT_TIME = re.compile(
    r"\b(?:that|the) (?:summer|winter|year|spring|autumn|day)\b|\bthen\b|\bat the time\b", re.IGNORECASE
)
_WHEN = re.compile(
    r"\b(?:if|when|since|before|until|as|like|the year|while|after|than|once)\b[^,]{0,30}$", re.IGNORECASE
)


def _aged(passage: Passage, roster: Roster, match: re.Match[str], how: str) -> Iterator[Fact]:
    number, sure = facts.person(match)
    years = dates.number(match["n"]) or dates.ordinal(match["n"])
    before = facts.clause(passage.text, match.start("p"))
    between = passage.text[match.end("p") : match.start("n")] if match.start("n") > match.end("p") else before
    if years is None or not _YOUNGEST <= years <= _OLDEST or not roster.is_person(number):
        return
    if (
        _ESTIMATE.search(between)
        or _THEN.match(passage.text[match.end("n") :])
        or ("?" in passage.text[match.end() :] and passage.is_spoken)
    ):
        return
    if re.search(r"\b(?:if|when|since|before|until|as|like|the year|while|after)\b[^,]{0,20}$", before, re.IGNORECASE):
        return
    if " had been" in between or facts.is_earlier(passage) or (passage.is_spoken and re.search(r"\bwas\b", between)):
        return
    yield _fact(passage, roster, number, sure, how, years)


def _fact(passage: Passage, roster: Roster, number: int, sure: bool, how: str, years: int) -> Fact:
    return Fact(
        kind="age",
        attribute="age",
        subject=roster.name(number),
        key=(str(number),),
        value=str(years),
        data=(how, years),
        passage=passage,
        is_sure=sure,
    )


def _born(passage: Passage, roster: Roster, match: re.Match[str]) -> Iterator[Fact]:
    number, sure = facts.person(match)
    found = dates.find(match["when"], bare_years=True)
    if found and found[0].start < 24 and not facts.is_unreal(passage, match.start(), match.end("p")):
        yield Fact(
            kind="age",
            attribute="age",
            subject=roster.name(number),
            key=(str(number),),
            value=f"born {found[0]}",
            data=("born", found[0]),
            passage=passage,
            is_sure=sure,
        )


def differ(one: Fact, other: Fact) -> bool:
    """Return whether two ages, or an age and a date of birth, exclude each other."""
    (how, first), (how_other, second) = one.data, other.data
    if how == "range":
        return relative_ages.is_outside(first, other, one)
    if how_other == "range":
        return relative_ages.is_outside(second, one, other)
    if how == "born" and how_other == "born":
        return bool(first.contradicts(second))
    if how == "born":
        return _born_differs(first, other)
    if how_other == "born":
        return _born_differs(second, one)
    early, late = sorted((one, other), key=lambda fact: (fact.passage.order, fact.passage.index))
    (early_how, before), (late_how, after) = early.data, late.data
    gap = _years_between(early.passage, late.passage)
    if gap is not None:
        low, high = gap
        return not low <= after - before <= high
    if late_how == "turns" or early_how == "turns":
        return after - before not in {0, 1} and not (
            early.passage.is_card and early_how == "is" and 0 < before - after < 4
        )
    if early.passage.is_card:
        return bool(before != after)
    return bool(after < before or 1 < after - before < _TIME_JUMP)


def _years_between(early: Passage, late: Passage) -> tuple[int, int] | None:
    """Return how many birthdays lie between two scenes, at least and at most; None where they have no dates."""
    one, other = early.date, late.date
    if early.is_card or one is None or other is None or one.year is None or other.year is None:
        return None
    if other.month is None or one.month is None:
        return None
    days = (
        (other.year - one.year) * 372
        + ((other.month or 6) - (one.month or 6)) * 31
        + (other.day or 15)
        - (one.day or 15)
    )
    if days < 0:
        return None
    return (0, 1) if 0 < days < 372 else (days // 372, -(-days // 372))


def _born_differs(born: dates.StoryDate, age: Fact) -> bool:
    date = age.passage.date
    _, years = age.data
    if date is None or date.year is None or born.year is None:
        return False
    difference = date.year - born.year
    if born.month is None or date.month is None:
        return years not in {difference, difference - 1}
    had = (date.month, date.day or 15) >= (born.month, born.day or 15)
    exact = difference if had else difference - 1
    near = born.month == date.month
    return bool(years != exact and not (near and abs(years - exact) <= 1))
