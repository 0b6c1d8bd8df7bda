"""Ages: a person's age, exact, within limits or relative to another, and when two ages contradict."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from app.tools.story import dates
from app.tools.story.continuity.language import PERSON, Patterns, listed
from app.tools.story.continuity.passages import Fact, Passage, fact, person

_P = Patterns("ages")
_LIMITS = Patterns("age_limits")
_YOUNGEST, _GROWN, _OLDEST = 3, 16, 130
_TIME_JUMP = 10
_PARTS = {"early": (0, 4), "mid": (3, 7), "middle": (3, 7), "late": (6, 9)}
_SLACK = 15
_MOST = 200


def read(passage: Passage) -> Iterator[Fact]:
    """Yield ages, dates of birth, limits of ages, and the years between two people."""
    for rule in (*_P.rules("stated"), _P.turns, _P.birthday):
        for match in rule.finditer(passage.text):
            yield from _stated(passage, match, "turns" if rule in (_P.turns, _P.birthday) else "is")
    yield from _answered(passage)
    for match, who, sure in passage.people(_P.born):
        found = dates.find(match["when"], bare_years=True)
        # A date later in the sentence belongs to another statement.
        if found and found[0].start < 24 and not passage.is_unreal(match, "p"):
            yield _fact(passage, who, ("born", found[0]), sure)
    if not passage.is_earlier and not passage.text.endswith("?"):
        yield from _limited(passage)
        yield from _compared(passage)


def _fact(passage: Passage, who: int, data: tuple[str, object], sure: bool = True) -> Fact:
    return fact(passage, "age", who, f"born {data[1]}" if data[0] == "born" else _shown(data), data, sure)


def _shown(data: tuple[str, object]) -> str:
    how, years = data
    return f"{years[0]} to {years[1]}" if how == "range" and isinstance(years, tuple) else str(years)


def _answered(passage: Passage) -> Iterator[Fact]:
    """Yield the age given in answer to `How old are you, Barnaby?`"""
    wanted_terms, match = _P.how_old.search(passage.answers), _P.answer.match(passage.text)
    if wanted_terms and match and not _P.estimate.search(passage.text[: match.end()]):
        years = dates.number(match["n"])
        who = person(wanted_terms)[0] if wanted_terms["p"] else passage.speaker
        if years is not None and years >= _YOUNGEST and passage.roster.is_person(who):
            yield _fact(passage, who, ("is", years))


def _stated(passage: Passage, match: re.Match[str], how: str) -> Iterator[Fact]:
    """Yield an age with its person, wherever the name is in the sentence."""
    text = passage.text
    who, sure = _whose(passage, match)
    years = dates.number(match["n"]) or dates.ordinal(match["n"])
    if years is None or not _YOUNGEST <= years <= _OLDEST or not passage.roster.is_person(who):
        return
    before = passage.clause(match.start("n"))
    # Estimates, questions in speech, and ages at another time of life are not compared.
    doubtful = (
        _P.estimate.search(before[-40:])
        or (text.rstrip("\"'”’").endswith("?") and passage.is_spoken)
        or _P.when.search(before)
        or _P.then.match(text, match.end("n"))
        or (years < _GROWN and _P.merely.search(before) and _P.that_time.search(text))
    )
    earlier = "had been" in before or passage.is_earlier or (passage.is_spoken and _P.was.search(match[0]))
    if not doubtful and not earlier:
        yield _fact(passage, who, (how, years), sure)


def _whose(passage: Passage, match: re.Match[str]) -> tuple[int, bool]:
    inside = re.match(PERSON, match[0])
    if inside:
        return person(inside, 0)
    following = _P.following.match(passage.text, match.end())
    if following and ("@" not in passage.text[: match.start()] or "old" in match[0]):
        return person(following, 1)
    # A house, or an unnamed child, has an age of its own.
    is_other = _P.belongings.search(passage.text[: match.start()]) or (
        "-" in match[0] and _P.thing.match(passage.text, match.end())
    )
    return (0, False) if is_other else passage.bearer(match.start(), match.end())


def _limited(passage: Passage) -> Iterator[Fact]:
    for match, who, sure in passage.people(_LIMITS.decade, _LIMITS.past, _LIMITS.birthday):
        if _is_doubtful(passage, match):
            continue
        if match.re is _LIMITS.birthday:
            yield _fact(passage, who, ("turns", dates.number(match["n"])), sure)
        elif match.re is _LIMITS.decade:
            ten = 20 + 10 * listed("tens").index(match["d"].lower().replace("ies", "y"))
            low, high = _PARTS.get((match["part"] or "").strip(" -").lower(), (0, 9))
            yield _fact(passage, who, ("range", (ten + low, ten + high)), sure)
        else:
            years = dates.number(match["n"]) or 0
            above = match["side"].lower() in {"past", "over"}
            yield _fact(passage, who, ("range", (years, years + _SLACK) if above else (0, years - 1)), sure)


def _is_doubtful(passage: Passage, match: re.Match[str]) -> bool:
    return _LIMITS.doubtful.search(passage.text[: match.start()]) is not None


def _compared(passage: Passage) -> Iterator[Fact]:
    for match, one, sure in passage.people(*_LIMITS.rules("older"), *_LIMITS.rules("same")):
        other, sure_too = person(match, "q")
        stated = match.groupdict().get("n")
        years = 0 if stated is None else 1 if stated.lower() in {"a", "an"} else dates.number(stated)
        is_pair = one != other and passage.roster.is_person(other)
        if years is None or not is_pair or _is_doubtful(passage, match):
            continue
        if (match.groupdict().get("how") or "").lower() in {"younger", "junior"}:
            years = -years
        # In both directions, so that the age of either can follow from that of the other.
        for who, than, apart in ((one, other, years), (other, one, -years)):
            yield fact(passage, "age_difference", who, str(apart), (than, apart), sure and sure_too)


def derived(narrated: Sequence[Fact]) -> list[Fact]:
    """Return the ages that follow from another person's age and the years between the two."""
    ages: dict[str, list[Fact]] = {}
    for known in narrated:
        if known.attribute == "age" and known.is_sure and known.data[0] in {"is", "turns"}:
            ages.setdefault(known.key[0], []).append(known)
    found = []
    for gap in (stated for stated in narrated if stated.attribute == "age_difference" and stated.is_sure):
        other, years = gap.data
        # A few mentions are enough; further ones would only repeat the comparison.
        for known in ages.get(str(other), ())[:3]:
            age = known.data[1] + years
            # The derived age holds at the time of the other's age, and has the place of the stated difference.
            when = dataclasses.replace(gap.passage, date=known.passage.date, order=known.passage.order, context="")
            if age > 0:
                # Birthdays may be at any time of the year, so the difference is exact to a year.
                data = ("range", (age - 1, age + 1))
                found.append(dataclasses.replace(gap, attribute="age", value=_shown(data), data=data, passage=when))
    return found[:_MOST]


def differ(one: Fact, other: Fact) -> bool:
    """Return whether two ages, or an age and a date of birth, exclude each other."""
    for first, second in ((one, other), (other, one)):
        if first.data[0] == "range":
            return _is_outside(first, second)
    for first, second in ((one, other), (other, one)):
        if first.data[0] == "born":
            return _born_differs(first.data[1], second)
    early, late = sorted((one, other), key=lambda fact: fact.passage.position)
    (early_how, before), (late_how, after) = early.data, late.data
    gap = _years_between(early.passage, late.passage)
    if gap is not None:
        return not gap[0] <= after - before <= gap[1]
    if "turns" in {late_how, early_how}:
        # A card may give the age that its person has at the end of the story.
        slipped = early.passage.is_card and early_how == "is" and 0 < before - after < 4
        return after - before not in {0, 1} and not slipped
    if early.passage.is_card:
        return bool(before != after)
    # Without dates, years may pass in the story: only a younger age, or an increase too small for that, is a
    # conflict.
    return bool(after < before or 1 < after - before < _TIME_JUMP)


def _is_outside(limited: Fact, other: Fact) -> bool:
    how, years = other.data
    if how == "born":
        return False
    low, high = limited.data[1]
    low_other, high_other = years if how == "range" else (years, years)
    apart = max(low - high_other, low_other - high)
    is_near = limited.passage.is_card or other.passage.is_card or apart < _SLACK
    return apart > 0 and (apart > 1 or how != "turns") and is_near


def _years_between(early: Passage, late: Passage) -> tuple[int, int] | None:
    one, other = early.date, late.date
    if early.is_card or not (one and other and one.year and other.year and one.month and other.month):
        return None
    # Months of 31 days keep the order of dates, and whole years come out whole.
    days = (other.year - one.year) * 372 + (other.month - one.month) * 31 + (other.day or 15) - (one.day or 15)
    if days < 0:
        return None
    # The part of a year may contain a birthday.
    return (0, 1) if 0 < days < 372 else (days // 372, -(-days // 372))


def _born_differs(born: dates.StoryDate, other: Fact) -> bool:
    date, (how, years) = other.passage.date, other.data
    if how == "born":
        return born.contradicts(years)
    if date is None or date.year is None or born.year is None:
        return False
    difference = date.year - born.year
    if born.month is None or date.month is None:
        return years not in {difference, difference - 1}
    exact = difference if (date.month, date.day or 15) >= (born.month, born.day or 15) else difference - 1
    # In the month of birth either age is right, since texts rarely state the day.
    return bool(years != exact and not (born.month == date.month and abs(years - exact) <= 1))
