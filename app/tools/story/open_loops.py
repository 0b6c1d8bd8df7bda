"""Open loops: what a story makes its reader wait for, and where it lets him have it.

A loop is opened by a question that nobody answers, by a promise, or by a thing that is set before the reader with a
marked gesture (foreshadowing). It is paid when the thing comes back with a gesture that answers, touched when it only
comes back, planned when the outline pays it off in a scene that is not written yet.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.tools import bounds
from app.tools.story import matching, outlines, prose
from app.tools.story.outlines import Outline, PlannedScene
from app.tools.story.prose import Paragraph
from app.tools.story.scenes import Scene

_SAME_MATTER = 0.6
_FEWEST_TERMS = 2
_MAX_LOOPS = 400


def find(scenes: Sequence[Scene], outline: Outline | None) -> list[Loop]:
    """Return the loops of the scenes in the order in which they are opened."""
    story = _Story(scenes, outline)
    opened = [*_declared(story), *(loop for line in story.lines for loop in opened_by(line))]
    distinct = _merged(sorted(opened, key=lambda loop: _position(loop.planted)))
    return [_followed(loop, story) for loop in distinct[:_MAX_LOOPS]]


class _Story:
    """The scenes as sentences, found again by the words in them."""

    def __init__(self, scenes: Sequence[Scene], outline: Outline | None) -> None:
        self.scenes = scenes
        self.planned = outlines.of_scenes(outline, scenes) if outline else [None] * len(scenes)
        self.payoffs = [
            (frozenset(matching.terms(payoff)), planned)
            for planned in (outline.scenes if outline else ())
            for payoff in planned.entries("payoffs")
        ]
        self.lines = [line for index, scene in enumerate(scenes) for line in lines(index, scene)]
        self._by_term: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            for term in sorted(line.terms):
                self._by_term.setdefault(term, []).append(number)

    def with_any(self, terms: Iterable[str]) -> Iterator[tuple[Line, Line | None]]:
        """Yield the sentences that hold one of the terms, each with the sentence that follows it."""
        numbers = {number for term in terms for number in self._by_term.get(term, ())}
        for number in sorted(numbers):
            yield self.lines[number], self.lines[number + 1] if number + 1 < len(self.lines) else None


def _declared(story: _Story) -> Iterator[Loop]:
    """Yield what front matter or outline name as planted, at the sentence that mentions it."""
    for index, (scene, planned) in enumerate(zip(story.scenes, story.planned, strict=True)):
        declared = (*scene.document.entries("plants", "foreshadows"), *(planned.entries("plants") if planned else ()))
        for item in declared:
            terms = tuple(matching.terms(item))
            here = (
                line.place
                for line, _ in story.with_any(terms[-1:])
                if line.place.scene == index and set(terms) <= line.terms
            )
            first = next(here, None)
            if first is not None:
                yield Loop(kind="foreshadowing", item=item, terms=terms, planted=first)


def _merged(loops: Sequence[Loop]) -> list[Loop]:
    """Leave out a thing that is set before the reader again: one whose words are among those of an earlier one."""
    kept: list[Loop] = []
    by_head: dict[str, list[Loop]] = {}
    for loop in loops:
        if loop.kind == "foreshadowing":
            known = by_head.setdefault(loop.terms[-1], [])
            if any(_is_same(loop, other) for other in known):
                continue
            known.append(loop)
        kept.append(loop)
    return kept


def _is_same(loop: Loop, other: Loop) -> bool:
    return set(loop.terms) <= set(other.terms) or set(other.terms) <= set(loop.terms)


def _followed(loop: Loop, story: _Story) -> Loop:
    """Return the loop with what has become of it."""
    return _followed_thing(loop, story) if loop.kind == "foreshadowing" else _followed_matter(loop, story)


def _followed_matter(loop: Loop, story: _Story) -> Loop:
    if len(loop.terms) < _FEWEST_TERMS:
        return loop
    wanted = list(loop.terms)
    for line, _ in story.with_any(wanted):
        is_later = _position(line.place) > _position(loop.planted)
        if is_later and not is_question(line) and matching.overlap(wanted, set(line.terms)) >= _SAME_MATTER:
            return replace(loop, status="paid", payoff=line.place)
    return loop


def _followed_thing(loop: Loop, story: _Story) -> Loop:
    declared = next((planned for terms, planned in story.payoffs if set(loop.terms) <= terms), None)
    if declared is not None and all(planned is None or planned.index != declared.index for planned in story.planned):
        return replace(loop, status="planned", planned_for=declared.title)
    touched: Place | None = None
    for line, following in story.with_any(loop.terms[-1:]):
        if line.place.scene > loop.planted.scene:
            touched = line.place
            if _pays(line, following, declared, story):
                return replace(loop, status="paid", payoff=line.place)
    return replace(loop, status="touched", payoff=touched) if touched else loop


def _pays(line: Line, following: Line | None, declared: PlannedScene | None, story: _Story) -> bool:
    """Decide by the outline, where it says which scene pays, and else by what is done with the thing."""
    if declared is None:
        return answers(line, following)
    told_in = story.planned[line.place.scene]
    return told_in is not None and told_in.index == declared.index


def _position(place: Place) -> tuple[int, int]:
    return place.scene, place.sentence


LoopKind = Literal["question", "promise", "foreshadowing"]
"""How the loop was opened."""

LoopStatus = Literal["open", "touched", "planned", "paid"]
"""What has become of it."""

_NOUN_PHRASE = r"(?:the|an?|his|her|their)\s((?:[\w-]{2,20}\s){0,2}?[\w-]{2,20})"
_PHRASE_ENDS = (
    r"(?=\s(?:in|into|under|behind|beneath|below|inside|at|on|with|and|from|to|before|where|between|over|away|that)\b"
    r"|[.,;:!?]|$)"
)
_HIDDEN = re.compile(
    rf"\b(?:hid|hides|hidden|tucked|tucks|slipped|buried|buries|concealed|stowed|pocketed|locked|locks|sealed|wrapped|pushed)\s"
    rf"{_NOUN_PHRASE}{_PHRASE_ENDS}",
    re.IGNORECASE,
)
_UNCANNY = re.compile(
    rf"\b{_NOUN_PHRASE}\s(?:struck|rang|moved|opened|spoke|sounded|burned|fell|stopped|turned|stirred|shook)\b[^.!?]{{0,60}}"
    r"\b(?:although|though|by itself|by themselves|for no reason|without (?:a|any))\b",
    re.IGNORECASE,
)
_PROMISE = re.compile(
    r"\b(?:promise[sd]?|swore|sworn|swears?|vow(?:s|ed)?|gave (?:his|her|their) word)\b([^.!?;]{3,120})", re.IGNORECASE
)
_ANSWERS = re.compile(
    r"\b(?:open(?:s|ed)?|unlock(?:s|ed)?|turn(?:s|ed)?|read|reads|broke|broken|breaks|fired?|fires|used|uses|found|finds|rang|rings|"
    r"rung|reveal(?:s|ed)?|show(?:s|ed)|hand(?:s|ed)|gave|gives|return(?:s|ed)?|brought|brings|kept|keeps|fulfil(?:s|led)|burn(?:s|ed|t)|"
    r"answer(?:s|ed)?|explain(?:s|ed)?)\b",
    re.IGNORECASE,
)
_EVADES = re.compile(
    r"\b(?:did not|didn't|does not|doesn't|would not|wouldn't|never) (?:answer|reply|say|speak)|"
    r"\bnot answered\b|\bsaid nothing\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A sentence of one of the scenes."""

    scene: int
    """Place of the scene in the telling, from 0."""
    sentence: int
    """Place of the sentence in the scene, from 0."""
    path: str
    """File."""
    line: int
    """Line in it."""
    quote: str
    """The sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Something the reader waits for."""

    kind: LoopKind
    """How it was opened."""
    item: str
    """What is waited for, in the words of the text."""
    terms: tuple[str, ...]
    """The words to know it again by."""
    planted: Place
    """Where it was opened."""
    status: LoopStatus = "open"
    """What has become of it."""
    payoff: Place | None = None
    """Where it was paid or last touched."""
    planned_for: str | None = None
    """Title of the unwritten scene that pays it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sentence with what is looked for in it."""

    place: Place
    """Where it stands."""
    text: str
    """The sentence, whole."""
    terms: frozenset[str]
    """Stems of its words."""
    evaded: bool
    """For a question: whether nobody answers it at once."""


def lines(index: int, scene: Scene) -> Iterator[Line]:
    """Yield the sentences of a scene."""
    paragraphs = prose.paragraphs(scene.document)
    position = 0
    for paragraph, following in itertools.zip_longest(paragraphs, paragraphs[1:]):
        answered = following is not None and _is_reply(following)
        for sentence in paragraph.sentences:
            yield Line(
                place=Place(
                    scene=index,
                    sentence=position,
                    path=scene.path,
                    line=sentence.line,
                    quote=bounds.clipped(sentence.text),
                ),
                text=sentence.text,
                terms=frozenset(matching.terms(sentence.text)),
                evaded=not (answered and paragraph.is_spoken(sentence.start)),
            )
            position += 1


def opened_by(line: Line) -> Iterator[Loop]:
    """Yield the loops that a sentence opens."""
    for pattern in (_HIDDEN, _UNCANNY):
        for match in pattern.finditer(line.text):
            yield from _loop("foreshadowing", match[1].lower(), match[1], line)
    promise = _PROMISE.search(line.text)
    if promise and len(matching.terms(promise[1])) >= _FEWEST_TERMS:
        yield from _loop("promise", promise[0], promise[1], line)
    if is_question(line) and line.evaded:
        yield Loop(
            kind="question",
            item=bounds.clipped(line.text, 120),
            terms=tuple(matching.terms(line.text)),
            planted=line.place,
        )


def is_question(line: Line) -> bool:
    """Return whether a sentence asks; `"Who is there?" asked Kael.` does."""
    return "?" in line.text


def answers(first: Line, following: Line | None) -> bool:
    """Decide whether a thing comes back to some effect: with such a verb beside it, or in the next
    sentence about `it`.
    """
    if _ANSWERS.search(first.text):
        return True
    return (
        following is not None and following.text.startswith(("It ", "They ")) and bool(_ANSWERS.search(following.text))
    )


def _loop(kind: LoopKind, item: str, matter: str, line: Line) -> Iterator[Loop]:
    terms = tuple(matching.terms(matter))
    if terms:
        yield Loop(kind=kind, item=bounds.clipped(item, 120), terms=terms, planted=line.place)


def _is_reply(paragraph: Paragraph) -> bool:
    first = paragraph.sentences[0]
    return bool(paragraph.speech) and "?" not in first.text and not _EVADES.search(paragraph.text)
