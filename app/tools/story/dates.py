"""Dates and numbers as stories write them: `12 October 1893`, `the twelfth of October`, `thirty-four`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = {
    word: 10 * count for count, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()

_NUMBER_WORDS = {word: count for count, word in enumerate(_UNITS)} | _TENS | {"hundred": 100}
_ORDINAL_WORDS = (
    {word: count for count, word in enumerate(_ORDINALS, 1)}
    | {f"twenty-{word}": 20 + count for count, word in enumerate(_ORDINALS[:9], 1)}
    | {"thirtieth": 30, "thirty-first": 31}
)

_DAY = rf"(?:\d{{1,2}}(?:st|nd|rd|th)?|(?i:{'|'.join(sorted(_ORDINAL_WORDS, key=len, reverse=True))}))"
# Only with a capital: "may" and "march" are common words.
_MONTH = "|".join(month.capitalize() for month in _MONTHS)
_YEAR = r"(?:,?\s{1,3}(?:of\s)?(?P<year>\d{3,4}))?"
_PATTERNS = (
    re.compile(r"\b(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})\b"),
    re.compile(rf"\b(?P<day>{_DAY})\s{{1,3}}(?:of\s{{1,3}})?(?P<month>{_MONTH})\b{_YEAR}"),
    re.compile(rf"\b(?P<month>{_MONTH})\s{{1,3}}(?:the\s{{1,3}})?(?P<day>{_DAY})\b{_YEAR}"),
)
_BARE_YEAR = re.compile(r"\b(?P<year>1\d{3}|20\d{2})\b")

_SMALL_NUMBERS = "|".join(sorted(_UNITS[1:], key=len, reverse=True))

NUMBER = rf"(?:\d{{1,3}}|(?:{'|'.join(_TENS)})(?:-(?:{'|'.join(_UNITS[1:10])}))?|{_SMALL_NUMBERS})"
"""Expression for a count in figures or words, 1 to 999 and one to ninety-nine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryDate:
    """A date as far as a text states it."""

    year: int | None = None  # Year, None if the text does not state it.
    month: int | None = None  # 1 to 12; None for a bare year.
    day: int | None = None  # 1 to 31; None for a bare year or month.
    start: int = 0  # Its position in the text.
    end: int = 0  # One past its last character.

    def __str__(self) -> str:
        if self.month is None:
            return str(self.year)
        named = f"{self.day or ''} {_MONTHS[self.month - 1].capitalize()}".strip()
        return named if self.year is None else f"{named} {self.year}"

    def contradicts(self, other: StoryDate) -> bool:
        """Return whether both dates state a part differently."""
        pairs = ((self.year, other.year), (self.month, other.month), (self.day, other.day))
        return any(own is not None and theirs is not None and own != theirs for own, theirs in pairs)

    def is_before(self, other: StoryDate) -> bool:
        """Return whether this date is certainly earlier; dates without a year are compared within one year."""
        if (self.year is None) != (other.year is None):
            return False
        own = (self.year or 0, self.month or 0, self.day or 0)
        theirs = (other.year or 0, other.month or 0, other.day or 0)
        known = 1 if None in {self.month, other.month} else 2 if None in {self.day, other.day} else 3
        return own[:known] < theirs[:known]


def find(text: str, *, bare_years: bool = False) -> list[StoryDate]:
    """Return the dates that a text states, in order; bare years only if asked for."""
    patterns = (*_PATTERNS, *([_BARE_YEAR] if bare_years else []))
    stated = (date for pattern in patterns for match in pattern.finditer(text) if (date := _date(match)))
    found: list[StoryDate] = []
    # Where patterns overlap, the earliest and longest match counts.
    for date in sorted(stated, key=lambda date: (date.start, -date.end)):
        if not found or date.start >= found[-1].end:
            found.append(date)
    return found


def number(text: str) -> int | None:
    """Read a count in figures or words, or return None."""
    bare = text.strip().lower()
    if bare.isascii() and bare.isdecimal():
        return int(bare[:9])
    parts = [_NUMBER_WORDS.get(part) for part in bare.split("-")]
    return sum(part for part in parts if part is not None) if parts and None not in parts else None


def in_words(count: int) -> str:
    """Write a count below one hundred in words; others in figures."""
    if not 0 <= count < 100:
        return str(count)
    tens, units = divmod(count, 10)
    named = {10 * number: word for word, number in ((w, n // 10) for w, n in _TENS.items())}
    if count < 20:
        return _UNITS[count]
    return named[10 * tens] + (f"-{_UNITS[units]}" if units else "")


def month(name: str) -> int | None:
    """Return the number of a month, None if the text is not the name of one."""
    return _MONTHS.index(name.lower()) + 1 if name.lower() in _MONTHS else None


def ordinal(text: str) -> int | None:
    """Read a rank such as `twelfth`, `21st` or `forty-third`, or return None."""
    bare = text.strip().lower()
    figures = re.fullmatch(r"(\d{1,3})(?:st|nd|rd|th)", bare)
    if figures:
        return int(figures[1])
    if bare in _ORDINAL_WORDS:
        return _ORDINAL_WORDS[bare]
    tens, _, units = bare.partition("-")
    if tens in _TENS and units in _ORDINALS[:9]:
        return _TENS[tens] + _ORDINALS.index(units) + 1
    return _TENS.get(bare.removesuffix("ieth") + "y") if bare.endswith("ieth") else None


def _date(match: re.Match[str]) -> StoryDate | None:
    parts = match.groupdict()
    year = int(parts["year"]) if parts.get("year") else None
    month = _month(parts["month"]) if parts.get("month") else None
    day = _day(parts["day"]) if parts.get("day") else None
    if (month is not None and not 1 <= month <= 12) or (day is not None and not 1 <= day <= 31):
        return None
    return StoryDate(year=year, month=month, day=day, start=match.start(), end=match.end())


def _month(text: str) -> int:
    return int(text) if text.isdecimal() else _MONTHS.index(text.lower()) + 1


def _day(text: str) -> int:
    figures = re.match(r"\d{1,2}", text)
    return int(figures[0]) if figures else _ORDINAL_WORDS[text.lower()]
