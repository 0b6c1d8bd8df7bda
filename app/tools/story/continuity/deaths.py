"""Deaths: who is dead, since when and of which cause, and who acts after death."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.tools.story import dates
from app.tools.story.continuity.language import Patterns
from app.tools.story.continuity.passages import Fact, Passage, fact, person

_P = Patterns("deaths")
_NEAR = 130
_SHORT_YEARS = 12
_CENTURY = 100


def read(passage: Passage) -> Iterator[Fact]:
    """Yield who is dead, and who is seen alive."""
    yield from _carded(passage)
    for rule in _P.rules("rules"):
        for match in rule.finditer(passage.text):
            yield from _died(passage, match)
    for match in () if passage.field else _P.later.finditer(passage.text):
        who, sure = passage.bearer(match.start(), match.end())
        named = f"@{who}" in passage.text[: match.start()] and passage.roster.is_person(who)
        if sure and named and not _is_presumed(passage.clause(match.start())):
            yield from _dead(passage, who, sure, match)
    if not passage.is_card and not passage.is_flashback:
        yield from _seen(passage)


def _died(passage: Passage, match: re.Match[str]) -> Iterator[Fact]:
    text = passage.text
    group = next(name for name in ("p", "p2", "p3") if name in match.re.groupindex and match[name])
    who, sure = person(match, group)
    before = passage.clause(match.start())
    if _P.timed.search(text):
        before = _P.since.sub("", before)
    stated = _P.no_waking.sub("", _P.since.sub("", match[0]))
    if _is_presumed(before) or _is_presumed(stated) or text.endswith("?") or not passage.roster.is_person(who):
        return
    own = re.search(rf"@{who}\b(?!')", text[: match.start(group)]) is not None
    pronoun = "~" in match[group] and (match.start(group) > 1 or passage.is_spoken) and not own
    yield _status(passage, who, "dead", sure and not pronoun)
    yield from _circumstances(passage, who, sure, match)


def _carded(passage: Passage) -> Iterator[Fact]:
    for match in _P.card.finditer(passage.text):
        who, _ = person(match)
        value = match["v"].strip()
        if _P.card_alive.match(value):
            yield _status(passage, who, "living")
        if (match["f"].lower().split()[0] in {"died", "death", "date", "grave"} or _P.card_dead.match(value)) and (
            not _is_presumed(value)
        ):
            yield from _dead(passage, who, True, match)


def _dead(passage: Passage, who: int, sure: bool, match: re.Match[str]) -> Iterator[Fact]:
    yield _status(passage, who, "dead", sure)
    yield from _circumstances(passage, who, sure, match)


def _status(passage: Passage, who: int, status: str, sure: bool = True) -> Fact:
    return fact(passage, "status", who, status, (status, _when(passage) if status == "dead" else None), sure)


def _when(passage: Passage) -> dates.StoryDate | int | None:
    scene = re.search(r"(?i)\bscene (\d{1,4})\b", passage.text)
    if scene:
        return int(scene[1])
    found = dates.find(passage.text, bare_years=True)
    return found[0] if found else None


def _is_presumed(text: str) -> bool:
    return bool(_P.presumed.search(re.sub(r"\bMay\b", "", text)))


def _circumstances(passage: Passage, who: int, sure: bool, match: re.Match[str]) -> Iterator[Fact]:
    """Yield cause and year of a death, if the same clause states them."""
    end = _P.sentence_part.search(passage.text, match.end())
    stretch = passage.text[match.start() : end.start() if end else len(passage.text)][:_NEAR]
    if passage.is_unreal(match):
        return
    causes = [name for name, rule in _P.named("causes").items() if rule.search(stretch)]
    if len(causes) == 1:
        yield fact(passage, "cause", who, causes[0], causes[0], sure)
    clause = passage.clause(match.start())
    years = {date.year for date in dates.find(f"{clause} {stretch}", bare_years=True) if date.year}
    short = [dates.number(found["y"].strip("'")) for found in _P.year.finditer(stretch)] if not years else []
    years |= {year for year in short if year is not None and year > _SHORT_YEARS}
    if len(years) == 1:
        date = dates.StoryDate(year=years.pop())
        yield fact(passage, "died", who, str(date), date, sure, "died", str(who))


def _seen(passage: Passage) -> Iterator[Fact]:
    text = passage.text
    if _P.looks_back.search(text) or _P.years_back.search(passage.context):
        return
    rules = (_P.addressed,) if passage.is_spoken else (_P.acts, _P.says, _P.met)
    for match, who, sure in passage.people(*rules):
        if _P.object.search(text, 0, match.start()) or _P.elsewhen.search(text, 0, match.end() + 12):
            continue
        before = "" if passage.is_spoken else passage.clause(match.start()).rpartition(",")[2]
        acts = match.groupdict().get("v") or match[0]
        if not _P.not_seen.search(f"{before} {acts}{text[match.end() : match.end() + 12]}"):
            # A pronoun may easily mean another person: only a name proves that the person is alive.
            named = "~" not in match["p"] or re.search(rf"@{who}\b(?!')", text[: match.start("p")])
            yield _status(passage, who, "alive", sure and bool(named))
            return


def is_other_death(one: Fact, other: Fact) -> bool:
    """Return whether two years of a death differ; years may be written with two digits."""
    years = (one.data.year or 0, other.data.year or 0)
    if min(years) < _CENTURY:
        return bool(years[0] % _CENTURY != years[1] % _CENTURY)
    return bool(one.data.contradicts(other.data))


def is_alive_after(one: Fact, other: Fact) -> bool:
    """Return whether a person acts after their death."""
    by_value = {fact.value: fact for fact in (one, other)}
    dead = by_value.get("dead")
    if dead is None or len(by_value) < 2:
        return False
    if "living" in by_value:
        return not dead.passage.is_card
    seen, when = by_value["alive"].passage, dead.data[1]
    if isinstance(when, int):
        return seen.number is not None and seen.number > when
    is_card, is_later = dead.passage.is_card, seen.order > dead.passage.order
    if when is not None and seen.date is not None:
        if seen.date.month is None and seen.date.year == when.year:
            return not is_card and is_later
        return bool(when.is_before(seen.date)) and (when.year is not None or not is_card or seen.date.year is None)
    # The scene is not dated, so the death on the card may come after it.
    if when is not None and when.year is not None and is_card and not seen.is_alone:
        return False
    return is_card or is_later


def may_precede(death: Fact, seen: Fact) -> bool:
    """Return whether a scene may be before the dated death on a card, because the scene has no date."""
    is_on_card = death.attribute == "status" and death.passage.is_card
    return is_on_card and isinstance(death.data[1], dates.StoryDate) and seen.passage.date is None


def is_dated(fact: Fact) -> bool:
    """Return whether a death has a date, or is narrated by a scene."""
    return not fact.passage.is_card or fact.data[1] is not None
