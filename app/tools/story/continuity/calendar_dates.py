"""Dates: weekdays and years of what happens, and the day on which a scene plays."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from app.tools.story import dates
from app.tools.story.continuity import facts, vocabulary
from app.tools.story.continuity.facts import Fact
from app.tools.story.continuity.passages import Passage
from app.tools.story.continuity.roster import Roster

_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_DAY = rf"(?P<w>{'|'.join(day.capitalize() for day in _DAYS)}|(?:Mon|Tues?|Wed|Thurs?|Thur|Fri|Sat|Sun)\b\.?)"
_ORDINAL = r"(?P<d>\d{1,2}(?:st|nd|rd|th)?|[a-z]+(?:-[a-z]+)?(?:st|nd|rd|th|ieth))"
_NAMED_DAY = re.compile(
    rf"\b{_DAY}(?: (?:night|morning|evening|afternoon|last))?(?: that [^,.;]{{3,30}})?,? (?:the |was the )?(?P<rest>[^.;!?]{{3,30}})"
)
_CALENDAR = re.compile(
    r"\b(?:calendar|almanac|newspaper|headline)\b[^.]{0,60}\b(?:says?|said|showed|shows|read|stood|open)\b"
)
_DAY_NUMBER = re.compile(
    rf"\b(?:the )?{_ORDINAL}(?: of (?P<m>[A-Z][a-z]+))? (?:was|is|fell on|falls on|being) (?:a |the )?{_DAY}\b",
    re.IGNORECASE,
)
_DAY_OF = re.compile(rf"\b{_DAY},? the {_ORDINAL}\b(?! of)", re.IGNORECASE)
_TODAY = re.compile(
    rf"\b(?:[Ii]t (?:was|is|being)|[Tt]oday (?:was|is)|[Tt]hat|[Tt]his) (?:a |an |now |only |still |on a |(?:fine|wet|cold|grey|bright|warm) )*{_DAY}\b(?! (?:when|that|before|after|last|next|morning last|he|she))"
)
_NAMED_TOMORROW = re.compile(
    rf"\b(?P<r>[Tt]omorrow|[Yy]esterday)(?: (?:is|was|will be|would be|being|had been)|,) (?:a )?{_DAY}\b"
)
_PLANNED = re.compile(
    r"\b(?:(?:was|were|is|are) to\b|planned|put off|put the|postponed|should have|meant to|going to|would|arranged|fixed for|will)"
)
_MONTH_BEFORE = re.compile(r"\b([A-Z][a-z]{2,8}),? (?:of )?(?:the year )?$")
_NEXT = re.compile(
    rf"\b[Tt]he (?:next|following) (?:day|morning|evening) (?:was|being) (?:a |the )?{_DAY}\b|\b[Tt]he day after(?: that)? was (?:a |the )?(?P<w2>{'|'.join(day.capitalize() for day in _DAYS)})\b"
)
_DATED_VERBS = {
    "died": r"died|drowned|killed|was drowned|was killed|death|was lost|perished|hanged|shot",
    "married": r"married|wed|wedding",
    "built": r"built|raised|erected|founded|opened|laid|begun|established|completed|finished|launched",
    "burned": r"burned|burnt|burned down",
    "closed": r"closed|shut down|abandoned",
    "arrived": r"arrived|came to|had come|came (?:here|home|back)|moved to|settled|landed",
    "left": r"left|sailed|emigrated|departed|went away",
    "lost": r"sank|sunk|gone down|went down|wrecked|foundered",
}
_EVENTS = (
    "fire|flood|storm|war|wedding|wreck|strike|siege|battle|plague|fever|famine|earthquake|eruption|avalanche|explosion|"
    "accident|crash|collapse|coronation|funeral|trial|election|revolt|uprising|rebellion|riot|massacre|treaty|robbery|"
    "burglary|theft|murder|auction|harvest|festival|fair|blizzard|drought|epidemic|landslide|rockfall|sinking|raid|"
    "cave-in|armistice|eclipse|comet|christening|regatta|concert|expedition|shipwreck|great frost|big freeze|outbreak|"
    "gale|hurricane|tempest|blow-out|ball|duel|hanging|execution|arrest|verdict|opening|première|premiere|first night|inquest|burial|shooting|"
    "ambush|mutiny|truce|surrender|census|ambush|break-in|kidnapping|landing|thaw|frost|quake|landslip|bombing|bombardment"
)
_THE_EVENT = re.compile(rf"\b(?:[Tt]he|[Oo]ur|{vocabulary.PERSON}'s) (?:(?!of\b)[\w'-]+ ){{0,2}}?(?P<e>{_EVENTS})\b")
_AFTER = re.compile(
    rf"\b(?:(?P<n>{dates.NUMBER}|an?|the) (?P<u>day|week|fortnight|month|year)s? |(?P<eve>on the eve of) )(?:(?P<how>after|before) )?"
    rf"(?P<of>the (?:end|beginning|start|outbreak) of )?(?:the|our|{vocabulary.PERSON}'s) (?:(?!of\b)[\w'-]+ )?(?P<e>{_EVENTS})\b"
)
_LOOKS_BACK = re.compile(
    r"\bhad been\b|\bthat (?:year|week)\b|\b(?:years?|weeks?) (?:ago|before|earlier)\b|\b(?:last|next) (?:week|month|year)\b"
)
_RELATIVE = re.compile(
    r"\b(?:[Ll]ast night|[Yy]esterday|(?P<now>[Tt]his (?:morning|afternoon|evening)|[Tt]oday|[Tt]onight))\b"
)
_PHASE = re.compile(r" (?:had |has |was )?(end|over|began|begun|start|broke)")
_AGO = re.compile(
    rf"\b(?P<n>{dates.NUMBER}|a) (?:long |full |whole |good )?(?P<u>year|day|week|month)s? (?:ago|since|before this|back|gone|past)\b",
    re.IGNORECASE,
)


def read(passage: Passage, roster: Roster) -> Iterator[Fact]:
    """Yield weekdays of dates, and dates of events."""
    if passage.text.endswith("?"):
        return
    yield from _weekdays(passage)
    yield from _next_day(passage)
    yield from _events(passage, roster)
    yield from _people(passage, roster)


def _weekdays(passage: Passage) -> Iterator[Fact]:
    text, scene = passage.text, passage.date
    if _LOOKS_BACK.search(text) or _CALENDAR.search(text):
        return
    for match in _NAMED_DAY.finditer(text):
        found = dates.find(match["rest"])
        if (found and found[0].start == 0) or (found and match["rest"].startswith("the ") and found[0].start <= 4):
            yield from _weekday(passage, found[0].year, found[0].month, found[0].day, match["w"])
    if scene is None or scene.month is None:
        return
    for match in _DAY_OF.finditer(text):
        yield from _weekday(passage, scene.year, scene.month, dates.ordinal(match["d"]), match["w"])
    for match in _DAY_NUMBER.finditer(text):
        month = dates.month(match["m"]) if match["m"] else scene.month
        day = dates.ordinal(match["d"]) or dates.number(match["d"])
        yield from _weekday(passage, scene.year, month, day, match["w"])
    for match in _NAMED_TOMORROW.finditer(text):
        if scene.day is not None and not passage.is_flashback and not passage.is_card:
            yield from _shifted(passage, 1 if match["r"].lower() == "tomorrow" else -1, match["w"])
    for match in _TODAY.finditer(text):
        if not passage.is_flashback and not facts.is_earlier(passage) and not passage.is_card:
            yield from _weekday(passage, scene.year, scene.month, scene.day, match["w"])


def _shifted(passage: Passage, days: int, named: str) -> Iterator[Fact]:
    """Yield the weekday of the day after or before the scene's."""
    scene = passage.date
    try:
        day = dt.date(scene.year or 2001, scene.month or 1, scene.day or 1) + dt.timedelta(days=days) if scene else None
    except (ValueError, OverflowError):
        return
    if day is not None:
        yield from _weekday(passage, scene.year and day.year if scene else None, day.month, day.day, named)


def _next_day(passage: Passage) -> Iterator[Fact]:
    """Yield the weekday of `The next day was a Thursday`."""
    match = _NEXT.search(passage.text)
    if match and not passage.is_spoken and not passage.is_card:
        yield Fact(
            kind="dates_order",
            attribute="next_day",
            subject="the calendar",
            key=("next_day",),
            value=match["w"] or match["w2"],
            data=_DAYS.index((match["w"] or match["w2"]).lower()),
            passage=passage,
        )


def next_days(told: Sequence[Fact]) -> Iterator[tuple[Fact, Fact]]:
    """Yield each `next day` with the weekday before it that it does not follow."""
    ordered = sorted(told, key=lambda fact: (fact.passage.order, fact.passage.index))
    last: Fact | None = None
    for fact in ordered:
        if fact.passage.is_card or fact.passage.is_spoken:
            continue
        if fact.attribute == "next_day" and last is not None and fact.passage.order - last.passage.order < 2:
            day = _day_index(last.value.split()[0]) if last.attribute == "weekday" else last.data
            if (int(str(day)) + 1) % 7 != fact.data:
                yield last, fact
        last = fact


def _weekday(passage: Passage, year: int | None, month: int | None, day: int | None, named: str) -> Iterator[Fact]:
    if month is None or day is None:
        return
    year = year or (passage.date.year if passage.date else None)
    try:
        ordinal = dt.date(year or 2001, month, day).toordinal()
    except ValueError:
        return
    shift = (_day_index(named) - ordinal) % 7
    yield Fact(
        kind="dates_order",
        attribute="weekday",
        subject="the calendar",
        key=("weekday", str(year)),
        value=f"{named} {day}.{month}.",
        data=(shift, ordinal),
        passage=passage,
    )


def _day_index(named: str) -> int:
    return next(index for index, day in enumerate(_DAYS) if day.startswith(named.lower().strip(".")[:3]))


def usual_weekdays(told: Sequence[Fact]) -> list[Fact]:
    """Return the weekdays that break with most others of their calendar, each after the right one that is nearest in
    time.
    """
    shifts = Counter(fact.data[0] for fact in told).most_common(2)
    if len(shifts) < 2 or shifts[0][1] == shifts[1][1]:
        return list(told)
    usual = [fact for fact in told if fact.data[0] == shifts[0][0]]
    odd = [fact for fact in told if fact.data[0] != shifts[0][0]]
    nearest = [min(usual, key=lambda fact, day=wrong.data[1]: abs(fact.data[1] - day)) for wrong in odd]  # type: ignore[misc]
    return [*dict.fromkeys(nearest), *odd]


def _events(passage: Passage, roster: Roster) -> Iterator[Fact]:
    text = passage.text
    if _PLANNED.search(text):
        return
    counted = {match.start("e"): match for match in _AFTER.finditer(text)}
    for match in _THE_EVENT.finditer(text):
        if match.start("e") in counted:
            yield from _counted(passage, counted[match.start("e")])
            continue
        window = text[max(match.start() - 60, 0) : match.end() + 60]
        date = _date_near(passage, window, match.start() - max(match.start() - 60, 0))
        if date is not None:
            owner = re.search(vocabulary.PERSON, match[0])
            ending = _PHASE.match(text[match.end() :])
            key = match["e"].lower() + (owner[0].strip("@?~") if owner else "") + (ending[1] if ending else "")
            yield _dated(passage, f"the {match['e'].lower()}", ("event", key), date)
    for mention in re.finditer(vocabulary.PERSON + r"(?!'s)", text):
        number = int(mention[0].strip("@?~"))
        if roster.entities[number - 1].kind in {"event", "thing"}:
            window = text[max(mention.start() - 60, 0) : mention.end() + 60]
            date = _date_near(passage, window, mention.start() - max(mention.start() - 60, 0))
            if date is not None:
                yield _dated(passage, roster.name(number), ("event", str(number)), date)


def _counted(passage: Passage, match: re.Match[str]) -> Iterator[Fact]:
    """Yield the date of the wedding from `On 19 June, three weeks after the wedding`."""
    found = dates.find(passage.text, bare_years=True) or _in_month(passage)
    count = 1 if match["eve"] or match["n"].lower() in {"a", "an", "the"} else dates.number(match["n"])
    date = found[0] if len(found) == 1 else None
    if date is None or count is None or not (match["eve"] or match["how"]):
        return
    sign = 1 if match["eve"] or match["how"] == "before" else -1
    unit = "day" if match["eve"] else match["u"]
    phase = "end" if match["of"] and " end " in match["of"] else ""
    key = ("event", match["e"].lower() + phase)
    if unit == "year" and date.year is not None:
        yield _dated(passage, f"the {match['e'].lower()}", key, dates.StoryDate(year=date.year + sign * count))
    elif unit in _LENGTHS and date.month is not None and date.day is not None:
        try:
            day = dt.date(date.year or 2001, date.month, date.day) + dt.timedelta(days=sign * count * _LENGTHS[unit])
        except (ValueError, OverflowError):
            return
        year = date.year and day.year
        yield _dated(
            passage, f"the {match['e'].lower()}", key, dates.StoryDate(year=year, month=day.month, day=day.day)
        )


def _in_month(passage: Passage) -> list[dates.StoryDate]:
    """Return the date that `Thursday the nineteenth` means in the month of its scene."""
    match, scene = _DAY_OF.search(passage.text), passage.date
    day = dates.ordinal(match["d"]) if match else None
    return [dates.StoryDate(year=scene.year, month=scene.month, day=day)] if day and scene and scene.month else []


_LENGTHS = {"day": 1, "week": 7, "fortnight": 14}


def _people(passage: Passage, roster: Roster) -> Iterator[Fact]:
    text = passage.text
    for name, verbs in _DATED_VERBS.items():
        for match in re.finditer(
            rf"(?:(?P<p>{vocabulary.PERSON})(?:'s)?|\b[Tt]he (?:[a-z]+ )??(?P<o>(?!had\b|was\b|were\b|has\b)[a-z]{{3,20}}))(?: (?!@|and\b|but\b|who\b)[a-z]+){{0,3}}? (?:{verbs})\b(?P<rest>[^.;!?]{{0,60}})",
            text,
            re.IGNORECASE,
        ):
            if match["o"]:
                yield from _done(passage, name, match)
                continue
            number, sure = facts.person(match)
            date = _date_near(passage, match["rest"], 0)
            if date is not None and not facts.is_unreal(passage, match.start(), match.end("p")):
                object_ = re.search(rf"{vocabulary.PERSON}|(?<=the )[a-z]+", match["rest"])
                extra = (object_[0].strip("@?~"),) if object_ and name in {"married", "arrived", "left"} else ()
                yield _dated(passage, roster.name(number), (name, str(number), *extra), date, sure)
    if passage.is_card and passage.field:
        field = passage.field.split("_")[0]
        names = {
            "died": "died",
            "death": "died",
            "built": "built",
            "founded": "built",
            "married": "married",
            "opened": "built",
            "launched": "built",
        }
        value = passage.text.partition(" : ")[2]
        date = _date_near(passage, value, 0)
        if field in names and date is not None:
            yield _dated(passage, roster.name(passage.subject), (names[field], str(passage.subject)), date)
        elif field in {"date", "when", "happened", "year"} and date is not None:
            yield _dated(passage, roster.name(passage.subject), ("event", str(passage.subject)), date)


def _done(passage: Passage, name: str, match: re.Match[str]) -> Iterator[Fact]:
    """Yield when the mill burned down, or the school was opened."""
    date = _date_near(passage, match["rest"], 0)
    lasting = name in {"built", "burned", "closed", "lost"}
    if lasting and date is not None and not facts.is_unreal(passage, match.start(), match.end("o")):
        yield _dated(passage, f"the {match['o']}", (name, match["o"].lower()), date)


def _date_near(passage: Passage, window: str, position: int) -> dates.StoryDate | None:
    """Return the only date in a stretch of text, or the year that `three years ago` means."""
    found = dates.find(window, bare_years=True)
    if len(found) == 1:
        gap = window[min(position, found[0].end) : max(position, found[0].start)]
        return (
            _with_month(found[0], window)
            if len(gap) < 60 and not re.search(r"[.;!?]|\b(?:and|but|who|he|she|@\d+ had)\b", gap[-40:])
            else None
        )
    today = passage.date if passage.date is not None and passage.date.day and not passage.is_card else None
    relative = _RELATIVE.search(window) if not found and today is not None and not passage.is_spoken else None
    if relative and today is not None and not passage.is_flashback:
        return _earlier(today, 0 if relative["now"] else 1)
    ago = _AGO.search(window)
    if not found and ago and passage.date is not None and passage.date.year is not None and ago["u"].lower() == "year":
        years = 1 if ago["n"].lower() == "a" else dates.number(ago["n"])
        return dates.StoryDate(year=passage.date.year - years) if years else None
    return None


def _earlier(date: dates.StoryDate, days: int) -> dates.StoryDate | None:
    """Return the day so many days before a date."""
    try:
        day = dt.date(date.year or 2001, date.month or 1, date.day or 1) - dt.timedelta(days=days)
    except (ValueError, OverflowError):
        return None
    return dates.StoryDate(year=date.year and day.year, month=day.month, day=day.day)


def _with_month(date: dates.StoryDate, window: str) -> dates.StoryDate:
    """Return `March 1871` with its month, other dates as they are."""
    named = _MONTH_BEFORE.search(window[: date.start]) if date.month is None else None
    month = dates.month(named[1]) if named else None
    return dataclasses.replace(date, month=month) if month else date


def _dated(passage: Passage, subject: str, key: tuple[str, ...], date: dates.StoryDate, sure: bool = True) -> Fact:
    died = key[0] == "died"
    return Fact(
        kind="death" if died else "dates_order",
        attribute="died" if died else "date",
        subject=subject,
        key=key,
        value=str(date),
        data=date,
        passage=passage,
        is_sure=sure,
    )


def differ(one: Fact, other: Fact) -> bool:
    """Return whether two dates, or two weekdays of one calendar, exclude each other."""
    if one.attribute == "weekday":
        return bool(one.data[0] != other.data[0])
    if one.attribute == "next_day":
        return False
    first, second = one.data, other.data
    assert isinstance(first, dates.StoryDate)
    assert isinstance(second, dates.StoryDate)
    return first.contradicts(second)
