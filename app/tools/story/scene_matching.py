"""Scene matching: find the scene that a text means, by its number, its title or its words."""

# Matching titles by shared words alone drafted the wrong scene ("The New Scales" for "The Scales"). A number has
# precedence, then the longest title, then words that fit well and clearly better than elsewhere; any other match fails
# and names the candidates.

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.tools.story import matching, scene_numbers
from app.tools.story.scene_numbers import Named, SceneNumber

_SURE_WORDS = 0.6
_MARGIN = 0.1
_NAME_COVERED = 0.6
_CANDIDATES = 6
_NEAREST = 3
_PATH = re.compile(r"[^\n]{1,1024}\.(?i:md|markdown|txt|text)")
_QUOTED = re.compile(r"[\"“‘`]([^\"“”‘’`\n]{1,200})[\"”’`]")
# A number alone names a scene only in the notation of file names, or right after the verb of the task.
_LONE = re.compile(
    r"(?<![\w.:/#-])(?:#(\d{1,4})|(0\d{1,2})|(?:(?:prose|pacing|style|continuity|consistency)\sof|draft|write|rewrite|"
    r"revise|redraft|review|validate|check)\s(\d{1,4})(?!\s{1,3}[^\W\d_]))(?![\w:/%'’-]|[.,]\d)",
    re.IGNORECASE | re.ASCII,
)
_TASK_WORDS = frozenset(
    "draft write rewrite revise check review audit validate update analyse analyze please task do make scene chapter "
    "act part book outline scn".split()
)
_PRIMARY = re.compile(r"\W{0,3}(?:please\W)?(?:draft|write|rewrite|revise|redraft)\s(?:the\s|a\s)?", re.IGNORECASE)

Key = tuple[str, ...]  # Words by which titles are compared.


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A scene that a clue can mean: one of an outline, or a file."""

    label: str  # Its name in messages.
    number: SceneNumber | None  # Its number.
    titles: tuple[str, ...]  # Its title, and other names for it.
    words: frozenset[str] = frozenset()  # Words of its content.


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """A text that names a scene."""

    shown: str  # Its name in messages.
    numbers: tuple[SceneNumber, ...] = ()  # Numbers in it.
    sure: bool = False  # Whether these are certainly numbers of scenes.
    titles: tuple[str, ...] = ()  # Possible whole titles.
    whole: str = ""  # The title with the number in it.
    text: str = ""  # A text that may contain a title; empty for a name.
    primary: bool = False  # Whether a text requests exactly this number, as `Draft scene 22` does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The meaning of a clue."""

    index: int | None  # The target; None if uncertain.
    score: float = 0.0  # Certainty, 0 to 1.
    by: str = ""  # `number`, `title`, `words` or `position`.
    candidates: tuple[int, ...] = ()  # Possible targets.
    tied: bool = False  # Whether several targets fit, rather than none well.


def of_path(path: str) -> Clue:
    """Return the clue in the name of a file."""
    return of_named(path, scene_numbers.of_path(path))


def of_named(shown: str, named: Named, *titles: str) -> Clue:
    """Return the clue in a name, with further titles from its file."""
    known = tuple(title for title in (*titles, named.title) if title)
    numbers = (named.number,) if named.number is not None else ()
    return Clue(shown=shown, numbers=numbers, sure=named.sure, titles=known, whole=named.whole)


def of_text(text: str) -> Clue:
    """Return the clue in a task or a query; a path is read as the name of a file."""
    bare = text.strip()
    if _PATH.fullmatch(bare):
        return of_path(bare)
    number = scene_numbers.number_of(bare)
    shown = bare if len(bare) <= 80 else f"{bare[:79]}…"
    if number is not None:
        plain = SceneNumber(number=number, unit=None)
        return Clue(shown=shown, numbers=(plain,), sure=True, titles=(bare,), whole=bare, primary=True)
    named = scene_numbers.in_text(text)
    quoted = tuple(match[1] for match in _QUOTED.finditer(text))
    if not named:
        return Clue(shown=shown, numbers=_lone(text), titles=(bare, *quoted), text=text)
    first = named[0]
    wanted = tuple(dict.fromkeys(number for number, start, _ in named if start == first[1]))
    after = re.match(r"\s{0,2}[:,–—-]\s{0,2}[\"“‘]?([^\n.;!?\"”]{1,100})", text[first[2] :])
    begins = _PRIMARY.match(text)
    titles = (after[1],) if after and len(wanted) == 1 else ()
    primary = begins is not None and begins.end() >= first[1]
    return Clue(shown=shown, numbers=wanted, sure=True, titles=(*titles, *quoted), text=text, primary=primary)


def _lone(text: str) -> tuple[SceneNumber, ...]:
    """Return the only number in a text without labels, as in `review the prose of 021`."""
    found = {int(next(filter(None, match.groups()))) for match in _LONE.finditer(text)}
    return tuple(SceneNumber(number=number, unit=None) for number in found) if len(found) == 1 else ()


class Catalog:
    """The possible scenes, indexed by number and by title."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets
        self._by_number: dict[int, list[int]] = defaultdict(list)
        self._by_title: dict[Key, set[int]] = defaultdict(set)
        self._by_above: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, target in enumerate(targets):
            for title in target.titles:
                self._by_title[_key(title)].add(index)
            if target.number is not None:
                self._by_number[target.number.number].append(index)
                for entry in target.number.within:
                    self._by_above[entry].append(index)
        self._lengths = sorted({len(key) for key in self._by_title if key}, reverse=True)

    def choose(self, clue: Clue) -> Choice:
        """Return the meaning of a clue."""
        numbered = sorted({index for number in clue.numbers for index in self._numbered(number)})
        whole = self._titled((clue.whole,)) if clue.whole else set()
        if len(whole) == 1 and not set(numbered) - whole:
            return _sure(next(iter(whole)), "title")
        if clue.sure and (numbered or self._by_number):
            return self._by_sure_number(clue, numbered)
        by_title = self._by_its_title(clue, numbered)
        if by_title.index is not None or by_title.tied:
            return by_title
        if numbered:
            return _one_of(numbered, 0.9, "number")
        if clue.sure and not self._by_number:
            return self._by_position(clue) or by_title
        return by_title

    def _numbered(self, number: SceneNumber) -> Iterable[int]:
        possible = [
            *self._by_number.get(number.number, ()),
            *self._by_above.get((number.unit or "", number.number), ()),
        ]
        found = [index for index in possible if (own := self.targets[index].number) is not None and number.means(own)]
        above = set(number.within)
        full = [
            index for index in found if (own := self.targets[index].number) is not None and above <= set(own.within)
        ]
        return full or found

    def _by_sure_number(self, clue: Clue, numbered: Sequence[int]) -> Choice:
        named = self._titled(clue.titles)
        if not numbered:
            return Choice(index=None, candidates=tuple(sorted(named) or self._next_to(clue)))
        # If number and title name different scenes, a person has to decide.
        if named and not named & set(numbered):
            return Choice(index=None, candidates=(*numbered, *sorted(named)), tied=True)
        agreeing = [index for index in numbered if index in named]
        if not agreeing and len(numbered) > 1 and len(clue.numbers) == 1:
            agreeing = [index for index in numbered if index in self._held(clue)]
        return _one_of(agreeing or numbered, 1.0, "number")

    def _next_to(self, clue: Clue) -> list[int]:
        wanted = clue.numbers[0].number
        near = sorted(self._by_number, key=lambda number: (abs(number - wanted), number))[:_NEAREST]
        return sorted(index for number in near for index in self._by_number[number])[:_CANDIDATES]

    def _by_its_title(self, clue: Clue, numbered: Sequence[int]) -> Choice:
        named = self._titled(clue.titles) or self._held(clue)
        if len(named) > 1:
            named = named & set(numbered) or named
        if named:
            return _one_of(sorted(named), 1.0, "title")
        ranked = self._ranked(clue)
        scores = [self._likeness(index, clue) for index in ranked[:2]]
        if scores and scores[0] >= _SURE_WORDS and (len(scores) == 1 or scores[0] - scores[1] >= _MARGIN):
            return Choice(index=ranked[0], score=round(scores[0], 3), by="words", candidates=(ranked[0],))
        return Choice(index=None, candidates=tuple(ranked[:_CANDIDATES]))

    def _by_position(self, clue: Clue) -> Choice | None:
        places = [number.number - 1 for number in clue.numbers if not number.within and not number.letter]
        fitting = [place for place in places if 0 <= place < len(self.targets)]
        return _one_of(fitting, 0.8, "position") if fitting and len(places) == len(fitting) else None

    def _titled(self, titles: Iterable[str]) -> set[int]:
        found: set[int] = set()
        for title in titles:
            same = self._by_title.get(_key(title), set()) if _key(title) else set()
            exact = {
                index for index in same if matching.tokens(title) in map(matching.tokens, self.targets[index].titles)
            }
            found |= exact or same
        return found

    def _held(self, clue: Clue) -> set[int]:
        words = _key(clue.text or (clue.titles[0] if clue.titles else ""))
        taken, found = [False] * len(words), set[int]()
        # Longest titles first, each word once, so that `The Scales` is not found within `The New Scales`.
        for length in self._lengths:
            if not clue.text and length < _NAME_COVERED * len(words):
                break
            for start in range(len(words) - length + 1):
                key = words[start : start + length]
                if key in self._by_title and not all(taken[start : start + length]) and not set(key) <= _STEMS:
                    taken[start : start + length] = [True] * length
                    found |= self._by_title[key]
        return found

    def _ranked(self, clue: Clue) -> list[int]:
        scores = [(self._likeness(index, clue), index) for index in range(len(self.targets))]
        return [index for score, index in sorted(scores, key=lambda entry: (-entry[0], entry[1])) if score > 0]

    def _likeness(self, index: int, clue: Clue) -> float:
        target = self.targets[index]
        wanted_terms = [term for term in dict.fromkeys(_key(clue.text or " ".join(clue.titles))) if term not in _STEMS]
        titles = [set(_key(title)) for title in target.titles]
        alike = max(
            (2 * len(title & set(wanted_terms)) / (len(title) + len(wanted_terms)) for title in titles if wanted_terms),
            default=0.0,
        )
        if not clue.text:
            return alike
        stated = target.words.union(*titles)
        return (
            max(0.9 * alike, 0.8 * matching.overlap(wanted_terms, set(stated)))
            if len(wanted_terms) > 1
            else 0.5 * alike
        )


def decide(catalog: Catalog, clues: Sequence[Clue]) -> Choice:
    """Return the joint meaning of clues: the first certain one, unless a later clue contradicts it."""
    first, *later = [catalog.choose(clue) for clue in clues]
    for choice, clue in zip(later, clues[1:], strict=True):
        if choice.index is None:
            first = first if first.index is not None or first.candidates else choice
        elif first.index is None and (not first.tied or choice.index in first.candidates):
            first = choice
        elif clue.primary and choice.by == "number" and choice.index != first.index:
            first = Choice(index=None, candidates=tuple(dict.fromkeys((*first.candidates, choice.index))), tied=True)
    return first


def several(catalog: Catalog, clue: Clue) -> list[int]:
    """Return the target of each number of a clue, leaving out numbers without a certain target."""
    choices = [catalog.choose(dataclasses.replace(clue, numbers=(number,), titles=())) for number in clue.numbers]
    return [choice.index for choice in choices if choice.index is not None]


def _key(text: str) -> Key:
    tokens = [token.lstrip("0") or "0" if token.isdecimal() else token for token in matching.tokens(text)]
    return tuple(matching.stem(token) for token in tokens if token not in matching.STOPWORDS) or tuple(tokens)


_STEMS = frozenset(matching.stem(word) for word in _TASK_WORDS)


def _sure(index: int, by: str, score: float = 1.0) -> Choice:
    return Choice(index=index, score=score, by=by, candidates=(index,))


def _one_of(found: Sequence[int], score: float, by: str) -> Choice:
    if len(found) == 1:
        return _sure(found[0], by, score)
    return Choice(index=None, candidates=tuple(found[:_CANDIDATES]), tied=True)
