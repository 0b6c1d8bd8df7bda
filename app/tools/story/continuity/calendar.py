"""The calendar: weekdays, dates of events, and how long ago they were."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from app.tools.story import dates
from app.tools.story.continuity.language import PERSON, Patterns, classes, listed, words
from app.tools.story.continuity.passages import Fact, Passage, fact, number, person

_P = Patterns("calendar_dates")
_AGO = Patterns("intervals")
_DAYS = listed("days")
_AROUND = 60
_UNITS = {"day": (1, 0), "night": (1, 0), "week": (7, 2), "fortnight": (14, 2), "month": (30, 8), "year": (365, 40)}
"""Days of each unit, and the tolerance in days of a narrator's figure."""
_CLAIMS = 40


def read(passage: Passage) -> Iterator[Fact]:
    """Yield weekdays of dates, dates of events, and events that happened a number of days ago."""
    if passage.text.endswith("?"):
        return
    yield from _weekdays(passage)
    following = _P.next.search(passage.text)
    if following and not passage.is_spoken and not passage.is_card:
        day = following["w"] or following["w2"]
        yield fact(passage, "next_day", "the calendar", day, _day_index(day), True, "next_day")
    if not _P.planned.search(passage.text):
        yield from _events(passage)
    yield from _deeds_of_people(passage)
    if passage.is_card and passage.field:
        yield from _field(passage)
    yield from _intervals(passage)


def _weekdays(passage: Passage) -> Iterator[Fact]:
    text, scene = passage.text, passage.date
    if _P.looks_back.search(text) or _P.calendar.search(text):
        return
    for match in _P.named_day.finditer(text):
        found = dates.find(match["rest"])
        if found and found[0].start <= (4 if match["rest"].startswith("the ") else 0):
            yield from _weekday(passage, found[0], match["w"])
    if scene is None or scene.month is None:
        return
    for match in _P.day_of.finditer(text):
        yield from _weekday(passage, dataclasses.replace(scene, day=dates.ordinal(match["d"])), match["w"])
    for match in _P.day_number.finditer(text):
        month = dates.month(match["m"]) if match["m"] else scene.month
        day = dates.ordinal(match["d"]) or dates.number(match["d"])
        yield from _weekday(passage, dataclasses.replace(scene, month=month, day=day), match["w"])
    if passage.is_flashback or passage.is_card or scene.day is None:
        return
    for match in _P.named_tomorrow.finditer(text):
        shifted = _shifted(scene, 1 if match["r"].lower() == "tomorrow" else -1)
        yield from _weekday(passage, shifted, match["w"]) if shifted else ()
    for match in () if passage.is_earlier else _P.today.finditer(text):
        yield from _weekday(passage, scene, match["w"])


def _shifted(date: dates.StoryDate, days: int) -> dates.StoryDate | None:
    try:
        day = dt.date(date.year or 2001, date.month or 1, date.day or 1) + dt.timedelta(days=days)
    except (ValueError, OverflowError):
        return None
    return dates.StoryDate(year=date.year and day.year, month=day.month, day=day.day)


def _ordinal(date: dates.StoryDate | None, year: int | None = None) -> int | None:
    if date is None or date.month is None or date.day is None:
        return None
    try:
        return dt.date(date.year or year or 2001, date.month, date.day).toordinal()
    except ValueError:
        return None


def _weekday(passage: Passage, date: dates.StoryDate, named: str) -> Iterator[Fact]:
    year = date.year or (passage.date.year if passage.date else None)
    ordinal = _ordinal(date, year)
    if ordinal is not None:
        shift, value = (_day_index(named) - ordinal) % 7, f"{named} {date.day}.{date.month}."
        yield fact(passage, "weekday", "the calendar", value, (shift, ordinal), True, "weekday", str(year))


def _day_index(named: str) -> int:
    return next(index for index, day in enumerate(_DAYS) if day.startswith(named.lower().strip(".")[:3]))


def next_days(narrated: Sequence[Fact]) -> Iterator[tuple[Fact, Fact]]:
    """Yield each `next day` with the weekday before it, if the one does not follow the other."""
    last: Fact | None = None
    for stated in sorted(narrated, key=lambda fact: fact.passage.position):
        passage = stated.passage
        if stated.attribute not in {"weekday", "next_day"} or passage.is_card or passage.is_spoken:
            continue
        # Further apart, other days may be between the two.
        if stated.attribute == "next_day" and last is not None and passage.order - last.passage.order < 2:
            day = _day_index(last.value.split()[0]) if last.attribute == "weekday" else last.data
            if (day + 1) % 7 != stated.data:
                yield last, stated
        last = stated


def usual_weekdays(narrated: Sequence[Fact]) -> list[Fact]:
    """Return the weekdays that differ from their calendar's majority, each after its nearest right one."""
    # A story has one calendar. Most of its weekdays determine it; those that do not fit are wrong.
    shifts = Counter(fact.data[0] for fact in narrated).most_common(2)
    if len(shifts) < 2 or shifts[0][1] == shifts[1][1]:
        return list(narrated)
    usual = [fact for fact in narrated if fact.data[0] == shifts[0][0]]
    odd = [fact for fact in narrated if fact.data[0] != shifts[0][0]]
    nearest = [min(usual, key=lambda fact, day=wrong.data[1]: abs(fact.data[1] - day)) for wrong in odd]  # type: ignore[misc]
    return [*dict.fromkeys(nearest), *odd]


def _events(passage: Passage) -> Iterator[Fact]:
    text = passage.text
    # In `on 19 June, three weeks after the wedding` the date is not that of the wedding.
    counted = {match.start("e"): match for match in _P.after.finditer(text)}
    for match in _P.the_event.finditer(text):
        if match.start("e") in counted:
            yield from _counted(passage, counted[match.start("e")])
            continue
        owner, ending = re.search(PERSON, match[0]), _P.phase.match(text, match.end())
        key = match["e"].lower() + (owner[0].strip("@?~") if owner else "") + (ending[1] if ending else "")
        yield from _dated(passage, f"the {match['e'].lower()}", _date_around(passage, match), "event", key)
    for mention in re.finditer(PERSON + r"(?!'s)", text):
        who = number(mention[0])
        if passage.roster.entities[who - 1].kind in {"event", "thing"}:
            yield from _dated(passage, who, _date_around(passage, mention), "event", str(who))


def _counted(passage: Passage, match: re.Match[str]) -> Iterator[Fact]:
    """Yield the wedding's date from `On 19 June, three weeks after the wedding`."""
    found = dates.find(passage.text, bare_years=True) or _in_month(passage)
    count = 1 if match["eve"] or match["n"].lower() in {"a", "an", "the"} else dates.number(match["n"])
    if len(found) != 1 or count is None or not (match["eve"] or match["how"]):
        return
    count = count if match["eve"] or match["how"] == "before" else -count
    unit, date = "day" if match["eve"] else match["u"], found[0]
    happened: dates.StoryDate | None = None
    if unit == "year" and date.year is not None:
        happened = dates.StoryDate(year=date.year + count)
    elif unit in {"day", "week", "fortnight"} and date.month is not None and date.day is not None:
        happened = _shifted(date, count * _UNITS[unit][0])
    phase = "end" if match["of"] and " end " in match["of"] else ""
    yield from _dated(passage, f"the {match['e'].lower()}", happened, "event", match["e"].lower() + phase)


def _in_month(passage: Passage) -> list[dates.StoryDate]:
    """Return the date that `Thursday the nineteenth` means in the month of its scene."""
    match, scene = _P.day_of.search(passage.text), passage.date
    day = dates.ordinal(match["d"]) if match else None
    return [dates.StoryDate(year=scene.year, month=scene.month, day=day)] if day and scene and scene.month else []


def _deeds_of_people(passage: Passage) -> Iterator[Fact]:
    """Yield when a person died, married or arrived, or when the mill burned down or the school was opened."""
    for name, rule in _P.named("deeds").items():
        for match in rule.finditer(passage.text):
            date = _date_near(passage, match["rest"], 0)
            if passage.is_unreal(match, "o" if match["o"] else "p"):
                continue
            if match["o"]:
                lasting = name in {"built", "burned", "closed", "lost"}
                yield from _dated(passage, f"the {match['o']}", date if lasting else None, name, match["o"].lower())
                continue
            who, sure = person(match)
            target = _P.target.search(match["rest"]) if name in {"married", "arrived", "left"} else None
            extra = (target[0].strip("@?~"),) if target else ()
            yield from _dated(passage, who, date, name, str(who), *extra, sure=sure)


def _field(passage: Passage) -> Iterator[Fact]:
    name = classes("dated_fields").get(passage.field.split("_")[0])
    if name:
        yield from _dated(passage, passage.subject, _date_near(passage, passage.value, 0), name, str(passage.subject))


def _dated(
    passage: Passage, who: int | str, date: dates.StoryDate | None, *key: str, sure: bool = True
) -> Iterator[Fact]:
    if date is not None:
        yield fact(passage, "died" if key[0] == "died" else "date", who, str(date), date, sure, *key)


def _date_around(passage: Passage, match: re.Match[str]) -> dates.StoryDate | None:
    start = max(match.start() - _AROUND, 0)
    return _date_near(passage, passage.text[start : match.end() + _AROUND], match.start() - start)


def _date_near(passage: Passage, window: str, position: int) -> dates.StoryDate | None:
    """Return the only date in a stretch of text, or the day that `yesterday` or `three years ago` means."""
    found = dates.find(window, bare_years=True)
    # With two dates in reach it is unclear which one is meant.
    if len(found) == 1:
        gap = window[min(position, found[0].end) : max(position, found[0].start)]
        return None if len(gap) >= _AROUND or _P.apart.search(gap[-40:]) else _with_month(found[0], window)
    if found or passage.date is None:
        return None
    relative = _P.relative.search(window)
    if relative and passage.date.day and not (passage.is_card or passage.is_spoken or passage.is_flashback):
        return _shifted(passage.date, 0 if relative["now"] else -1)
    ago = _P.ago.search(window)
    if ago and passage.date.year is not None and ago["u"].lower() == "year":
        years = 1 if ago["n"].lower() == "a" else dates.number(ago["n"])
        return dates.StoryDate(year=passage.date.year - years) if years else None
    return None


def _with_month(date: dates.StoryDate, window: str) -> dates.StoryDate:
    """Return `March 1871` with its month, other dates as they are."""
    named = _P.month_before.search(window[: date.start]) if date.month is None else None
    month = dates.month(named[1]) if named else None
    return dataclasses.replace(date, month=month) if month else date


def is_other_weekday(one: Fact, other: Fact) -> bool:
    """Return whether two dates of one calendar are on weekdays that exclude each other."""
    return bool(one.data[0] != other.data[0])


def is_other_date(one: Fact, other: Fact) -> bool:
    """Return whether two dates exclude each other."""
    return bool(one.data.contradicts(other.data))


def _intervals(passage: Passage) -> Iterator[Fact]:
    day, text = _ordinal(passage.date), passage.text
    if day is None or passage.is_card or passage.is_flashback:
        return
    for match in _AGO.length.finditer(text):
        narrated = _days_ago(match)
        if narrated is None or _AGO.vague.search(text[: match.start()]) or passage.is_unreal(match):
            continue
        for stem, thing in _deeds_near(text, match):
            who = number(thing) if "@" in thing else f"the {thing}"
            yield fact(passage, "interval", who, match[0], (day - narrated[0], narrated[1]), True, "deed", stem, thing)


def _days_ago(match: re.Match[str]) -> tuple[int, int] | None:
    """Return a length in days and its tolerance; None if the text does not count from the scene's day."""
    if match["y"]:
        return (2, 0) if match["y"].lower().startswith("the") else (1, 1)
    if match["how"].lower() not in {"since", "ago"} or match["n"].lower() == "the":
        return None
    count = 1 if match["n"].lower() in {"a", "an"} else dates.number(match["n"])
    if count is None or not 1 <= count < 100:
        return None
    days, slack = _UNITS[match["u"].lower()]
    return count * days, 0 if match["exact"] else 1 + slack * (1 if count < 4 else 2)


def _deeds_near(text: str, match: re.Match[str]) -> set[tuple[str, str]]:
    after = re.split(r"[.;:!?]", text[match.end() :])[0]
    if (match["how"] or "ago").lower() == "since":
        return set(_deeds(after))
    before = re.split(r"[.;:!?]", text[: match.start()])[-1]
    return set(_deeds(before.rpartition(" and ")[2].strip() if len(before) > 12 else after.partition(" and ")[0]))


def _deeds(text: str) -> Iterator[tuple[str, str]]:
    """Yield each verb in the past with its object, or with the person who acted."""
    for rule in (_AGO.did, _AGO.was_done, _AGO.came, _AGO.befell):
        for match in rule.finditer(text):
            verb, thing = match["v"].lower(), match["o"].lower()
            regular = verb.removesuffix("d").removesuffix("e") if verb.endswith("ed") else ""
            stem = classes("stems").get(verb) or (verb if rule is _AGO.befell else regular)
            if stem and verb not in words("no_deeds") and not {thing, stem} & words("often"):
                yield stem, thing.replace("~", "").replace("?", "")


def interval_conflicts(narrated: Sequence[Fact], passages: Sequence[Passage]) -> Iterator[tuple[Fact, Fact]]:
    """Yield each interval that leads to a day other than the event's, with the scene of the event."""
    claims = [fact for fact in narrated if fact.attribute == "interval"][:_CLAIMS]
    wanted = {fact.key[1:] for fact in claims}
    happened: dict[tuple[str, ...], list[tuple[int, Passage]]] = {}
    for passage in passages if claims else ():
        day = _day_of(passage)
        if day is None or passage.is_card or passage.is_spoken or passage.is_earlier:
            continue
        # Clauses that narrate events, without wishes and earlier events.
        clauses = re.split(r"[;:]|, (?:and|but)\b| and ", passage.text)
        for key in wanted & set(_deeds("; ".join(part for part in clauses if not _AGO.unreal.search(part)))):
            happened.setdefault(key, []).append((day, passage))
    reported: set[tuple[str, int]] = set()
    for claim in claims:
        stated, slack = claim.data
        days = [(day, p) for day, p in happened.get(claim.key[1:], ()) if p.order != claim.passage.order]
        place = (claim.passage.path, claim.passage.line)
        # If the event happened on several days, a claim may mean any of them.
        if len({day for day, _ in days}) != 1 or place in reported:
            continue
        day, passage = days[0]
        if abs(day - stated) > slack:
            reported.add(place)
            data = (_ordinal(passage.date), 0)
            yield dataclasses.replace(claim, value=str(passage.date), data=data, passage=passage, is_sure=True), claim


def _day_of(passage: Passage) -> int | None:
    found = dates.find(passage.text)
    named = _ordinal(found[0], passage.date.year) if len(found) == 1 and passage.date is not None else None
    return named or _ordinal(passage.date)
