"""Numbers of scenes, as outlines, file names and tasks write them: `Scene 21`, `ch03_sc2`, `022`, `Act II, Scene 3`."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.tools.story import dates

_LABELS = {
    "book": "book", "bk": "book", "volume": "book", "vol": "book", "part": "part", "pt": "part", "act": "act",
    "chapter": "chapter", "chap": "chapter", "ch": "chapter", "scene": "scene", "scn": "scene", "sc": "scene",
}  # fmt: skip
_ABOVE_ALL = frozenset({"book", "part", "act"})
_ROMAN = r"[ivxlc]{1,7}"
_WORD = dates.NUMBER.removeprefix("(?:").removesuffix(")").replace(r"\d{1,3}|", "").replace("(?:-(", "(?:[-_ ](")
_FIGURES = r"\d{1,4}(?!\d)(?:[a-z](?![^\W_]))?(?:\.\d{1,3}(?![\w.]))?"
_VALUE = rf"(?:{_FIGURES}|(?<=[\s_#:.-])(?:{_WORD}|{_ROMAN})(?![^\W_]))"
_NAMES = "|".join(sorted(_LABELS, key=len, reverse=True))
_GAP = r"[\s_#:.-]{0,3}(?:(?:no\.?|number)\s)?"
_LABELLED = re.compile(
    rf"(?<![^\W\d_])(?P<label>{_NAMES})s?(?P<gap>{_GAP})(?P<value>{_VALUE})", re.IGNORECASE | re.ASCII
)
_SHORT_LABELS = re.compile(r"(?<![^\W\d_])(?P<label>[cs])(?P<value>\d{1,4})(?![^\W_cs])", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,;:/|.()–—_-]{0,4}(?:of\s|in\s)?(?:the\s)?")
_SEVERAL = re.compile(
    rf"\s{{0,2}}(?P<by>,\s?and|,|and|&|or|to|through|until|-|–|—)\s{{0,2}}(?:scenes?\s)?(?P<value>{_FIGURES})(?![^\W_])",
    re.IGNORECASE,
)
_AFTER = re.compile(r"[\s_,.:;|/)\]–—-]{0,6}")
_BARE = re.compile(
    r"#?(?P<value>\d{1,4}[a-z]?(?:\.\d{1,3})?|[IVXLC]{1,7}(?=[.:)]))(?:\s{0,2}[:.)–—-]+\s{0,3}|\s{1,3}|$)(?=\D|$)"
)
_AT_END = re.compile(rf"[\s(\[,–—-]{{1,3}}scene\s{{1,2}}(?P<value>{_FIGURES})[)\]]?$", re.IGNORECASE)
_LEADING = re.compile(
    r"(?P<value>\d{1,4}(?!\d)(?:[a-z](?![^\W_]))?)(?:(?P<by>[\s_.x-]{1,3})(?P<second>\d{1,4})(?!\w))?(?=[\W_]|$)"
)
_WEAK = re.compile(r"^[^\W\d_]{1,12}[\s_-]{0,3}(?P<first>\d{1,4})(?![^\W_])|(?<![^\W_])(?P<last>\d{1,4})$")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DAY = re.compile(r"^\d{4}-\d{2}-\d{2}[\s_-]+(?=\w)")
_VERSION = re.compile(
    r"(?:[\s_-]+(?:v|ver|version|draft|rev|revision|wip|copy|final)[\s_.-]{0,2}\d{0,3}|\s{0,2}\(\d{1,3}\))+$",
    re.IGNORECASE,
)
_TAG = re.compile(rf"(?:{_NAMES})[\s_-]+", re.IGNORECASE)
# "draft the scene I like" does not name a scene I.
_GOES_ON = re.compile(r"\s{1,3}[^\W\d_]")
_ROMAN_PARTS = ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
_MOST_IN_RANGE = 200
_HEADING_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneNumber:
    """The number of a scene, with the chapter, act, part or book in which it counts."""

    number: int  # The number.
    letter: str = ""  # `a` of `12a`, else empty.
    unit: str | None = "scene"  # Unit of the number: `scene`, `chapter`, `act`, …; None if the text does not state it.
    within: tuple[tuple[str, int], ...] = ()  # Parts that contain the scene, outermost first, e.g. `(("chapter", 3),)`.

    def __str__(self) -> str:
        above = [f"{kind} {number}" for kind, number in self.within]
        return ", ".join([*above, f"{self.unit or 'scene'} {self.number}{self.letter}"])

    def means(self, other: SceneNumber) -> bool:
        """Return whether this number, from a name or a task, can mean a scene with the other number."""
        theirs = dict(other.within)
        if any(theirs.get(kind, number) != number for kind, number in self.within):
            return False
        if self.unit not in {None, "scene"} and self.unit in theirs:
            return theirs[self.unit] == self.number
        if self.unit == "scene" and other.unit not in {None, "scene"} and other.unit in dict(self.within):
            return False
        return (self.number, self.letter) == (other.number, other.letter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The number and title of a scene in a heading or in the name of a file."""

    number: SceneNumber | None  # Its number, None if it has none.
    sure: bool  # Whether the number is certainly that of a scene: `SCN-21`, `021`; not `storm-22`, `li-comes-home`.
    title: str  # The rest without number and prefix.
    whole: str  # The same with the number, for titles such as `1984`.


def of_heading(text: str) -> Named:
    """Read a heading: `Scene 21: The Arrival`, `Chapter 3, Scene 2`, `21. The Arrival`, `3.2 The Storm`."""
    text = text[:_HEADING_CHARACTERS].replace("**", "").replace("__", "").strip(" *_\t")
    found, end = _leading_labels(text)
    if found:
        title = text[end:].strip()
        return Named(number=_combined(found), sure=True, title=title or text, whole=text)
    bare = _BARE.match(text)
    if bare:
        sure = not bare["value"].isdecimal() or text[bare.end("value") : bare.end()].strip() != ""
        return Named(number=_value(bare["value"], None), sure=sure, title=text[bare.end() :] or text, whole=text)
    last = _AT_END.search(text)
    if last:
        return Named(number=_value(last["value"], "scene"), sure=True, title=text[: last.start()], whole=text)
    return Named(number=None, sure=False, title=text, whole=text)


def of_path(path: str) -> Named:
    """Read the name of a file, and the chapter, act, part or book that its folders name."""
    place = PurePosixPath(path)
    stem = place.name.removesuffix(place.suffix) if place.suffix[1:].isalpha() else place.name
    named = _of_stem(unicodedata.normalize("NFKC", stem))
    if named.number is None:
        return named
    above = dict(named.number.within)
    for folder in place.parts[:-1]:
        for label in _LABELLED.finditer(_CAMEL.sub(" ", folder)):
            value, kind = _value(label["value"], None), _LABELS[label["label"].lower()]
            if value is not None and kind not in {"scene", named.number.unit}:
                above.setdefault(kind, value.number)
    number = placed(named.number, above)
    return Named(number=number, sure=named.sure, title=named.title, whole=named.whole)


def in_text(text: str) -> list[tuple[SceneNumber, int, int]]:
    """Return the numbered scenes a task names, with positions: `scene 2 of chapter 3`, `scenes 21-23`."""
    runs: list[list[re.Match[str]]] = []
    for label in _LABELLED.finditer(text):
        if len(label["value"]) == 1 and label["value"].isalpha() and _GOES_ON.match(text, label.end()):
            continue
        joins = runs and _BETWEEN.fullmatch(text, runs[-1][-1].end(), label.start())
        if joins and _kind(label) not in {_kind(before) for before in runs[-1]}:
            runs[-1].append(label)
        else:
            runs.append([label])
    found: list[tuple[SceneNumber, int, int]] = []
    taken = 0
    for labels in runs:
        number, start, end = _combined(labels), labels[0].start(), labels[-1].end()
        if number is not None and start >= taken:
            further, taken = _further(text, number, end)
            found.extend((each, start, end) for each in (number, *further))
    return found


def labelled(text: str) -> list[tuple[str, int, int]]:
    """Return which numbers of a path are labelled: `chapter`, `scene`, …, with the places of the numbers."""
    found = [*_LABELLED.finditer(text), *_SHORT_LABELS.finditer(text)]
    return [(_kind(label), *label.span("value")) for label in sorted(found, key=lambda label: label.start())]


def like(written: str, number: int) -> str:
    """Return a number in the notation of another one: `007`, `IV`, `iv`, or in plain figures."""
    if written.isdecimal():
        return str(number).zfill(len(written) if written.startswith("0") else 0)
    if _roman(written) is None or not 0 < number < 90:
        return str(number)
    roman, rest = "", number
    for worth, letters in _ROMAN_PARTS:
        roman += letters * (rest // worth)
        rest %= worth
    return roman if written.isupper() else roman.lower()


def number_of(text: str) -> int | None:
    """Read a text that consists of one number, in figures, words or Roman numerals."""
    bare = text.strip()
    value = dates.number(bare)
    return _roman(bare) if value is None and bare.isupper() else value


def placed(number: SceneNumber, above: dict[str, int]) -> SceneNumber:
    """Return a number within the chapter, act, part or book of these numbers; its own statements have precedence."""
    order = ("book", "part", "act", "chapter", "scene")
    within = tuple(sorted((above | dict(number.within)).items(), key=lambda entry: order.index(entry[0])))
    return SceneNumber(number=number.number, letter=number.letter, unit=number.unit, within=within)


def _leading_labels(text: str) -> tuple[list[re.Match[str]], int]:
    found, end = list[re.Match[str]](), 0
    while label := _LABELLED.match(text, end):
        if _value(label["value"], None) is None:
            break
        found.append(label)
        end = after.end() if (after := _AFTER.match(text, label.end())) else label.end()
    return found, end


def _of_stem(stem: str) -> Named:
    whole = _VERSION.sub("", _CAMEL.sub(" ", _DAY.sub("", stem))) or stem
    labels = _labels_of(whole)
    if labels:
        return _of_labelled(whole, labels)
    named = _TAG.match(whole)
    bare = whole[named.end() :] if named and named.end() < len(whole) else whole
    leading = _LEADING.match(bare)
    if leading:
        return _of_leading(bare, leading)
    weak = _WEAK.search(bare)
    value = next((group for group in (weak["first"], weak["last"]) if group), None) if weak else None
    if value is None:
        first = re.split(r"[\W_]", bare, maxsplit=1)[0]
        roman = _roman(first)
        number = SceneNumber(number=roman, unit=None) if roman else None
        return Named(number=number, sure=False, title=_spaced(bare), whole=_spaced(bare))
    return Named(number=_value(value, None), sure=value.startswith("0"), title=_spaced(bare), whole=_spaced(bare))


def _labels_of(name: str) -> list[re.Match[str]]:
    """Return the labels of a name; `part 2` in the middle of a title is not a label unless a scene's number follows."""
    found = sorted([*_LABELLED.finditer(name), *_SHORT_LABELS.finditer(name)], key=lambda label: label.start())
    found = [label for label in found if _value(label["value"], None) is not None]
    kept: list[re.Match[str]] = []
    for label in found:
        leads = not re.search(r"[^\W_]", name[kept[-1].end() if kept else 0 : label.start()])
        later = any(_kind(other) in {"scene", "chapter"} for other in found if other.start() > label.start())
        if (leads or later or _kind(label) not in _ABOVE_ALL) and _kind(label) not in {_kind(other) for other in kept}:
            kept.append(label)
    return kept


def _of_labelled(name: str, labels: Sequence[re.Match[str]]) -> Named:
    number, end = _combined(labels), labels[-1].end()
    second = re.compile(r"[\s_.-]{1,3}(\d{1,4})(?!\w)").match(name, end)
    if number is not None and number.unit == "chapter" and second:
        within = (*number.within, ("chapter", number.number))
        number, end = SceneNumber(number=int(second[1]), within=within), second.end()
    parts = [name[: labels[0].start()]]
    parts += [name[one.end() : other.start()] for one, other in itertools.pairwise(labels)]
    title = _spaced(" ".join([*parts, name[end:]]))
    # `SCN-i-robot`: one letter before a title may be a word.
    doubtful = len(labels) == 1 and len(labels[0]["value"]) == 1 and labels[0]["value"].isalpha() and bool(title)
    whole = _spaced(name[labels[0].start("value") :] if not parts[0] else name)
    return Named(number=number, sure=not doubtful, title=title, whole=whole)


def _of_leading(name: str, leading: re.Match[str]) -> Named:
    first, second = leading["value"], leading["second"]
    rest = name[leading.end() :]
    # `03-02-storm` has two levels of numbers, `22-39-steps` is scene 22 with a number in its title.
    nested = second and (leading["by"] in {".", "x"} or second.startswith("0") or not rest.strip(" _-."))
    if nested and first.isdecimal():
        number: SceneNumber | None = SceneNumber(number=int(second), within=(("chapter", int(first)),))
        return Named(number=number, sure=True, title=_spaced(rest), whole=_spaced(name))
    return Named(number=_value(first, None), sure=True, title=_spaced(name[len(first) :]), whole=_spaced(name))


def _combined(labels: Sequence[re.Match[str]]) -> SceneNumber | None:
    values = {_kind(label): value for label in labels if (value := _value(label["value"], _kind(label)))}
    if not values:
        return None
    order = ("book", "part", "act", "chapter", "scene")
    *above, innermost = sorted(values, key=order.index)
    within = dict(values[innermost].within) | {kind: values[kind].number for kind in above}
    return placed(values[innermost], within)


def _further(text: str, first: SceneNumber, end: int) -> tuple[list[SceneNumber], int]:
    """Return the scenes that a list or a range continues with, and where it ends."""
    found: list[SceneNumber] = []
    while (more := _SEVERAL.match(text, end)) and len(found) < _MOST_IN_RANGE:
        value, before = _value(more["value"], first.unit), found[-1].number if found else first.number
        if value is None:
            break
        is_range = more["by"].lower() in {"-", "–", "—", "to", "through", "until"}
        start = before + 1 if is_range and before < value.number <= before + _MOST_IN_RANGE else value.number
        found += [
            SceneNumber(number=number, unit=first.unit, within=first.within) for number in range(start, value.number)
        ]
        letter = value.letter
        found.append(SceneNumber(number=value.number, letter=letter, unit=first.unit, within=first.within))
        end = more.end()
    return found, end


def _kind(label: re.Match[str]) -> str:
    name = label["label"].lower()
    return {"c": "chapter", "s": "scene"}.get(name) or _LABELS[name]


def _value(text: str, unit: str | None) -> SceneNumber | None:
    figures = re.fullmatch(r"(\d{1,4})([a-z]?)(?:\.(\d{1,3}))?", text, re.IGNORECASE)
    if figures is None:
        value = dates.number(re.sub("[_ ]", "-", text)) or _roman(text)
        return SceneNumber(number=value, unit=unit) if value else None
    if figures[3] and unit in {None, "scene"}:
        return SceneNumber(number=int(figures[3]), unit=unit, within=(("chapter", int(figures[1])),))
    return SceneNumber(number=int(figures[1]), letter=figures[2].lower(), unit=unit)


def _roman(text: str) -> int | None:
    text = text.lower()
    if not text or not re.fullmatch("(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})|c{1,3}", text):
        return None
    worth = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in text]
    return sum(-one if one < other else one for one, other in itertools.pairwise([*worth, 0]))


def _spaced(text: str) -> str:
    return " ".join(re.split(r"[\s_-]+", text)).strip(" .,:;()[]–—")
