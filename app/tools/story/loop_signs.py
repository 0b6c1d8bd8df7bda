"""The signs by which a text opens a loop in its reader's mind, and those by which it answers one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from app.tools import bounds
from app.tools.story import matching, prose
from app.tools.story.prose import Paragraph
from app.tools.story.scenes import Scene

_FEWEST_TERMS = 2

LoopKind = Literal["question", "promise", "foreshadowing"]  # How the loop was opened.
LoopStatus = Literal["open", "touched", "planned", "paid"]  # The present state of the loop.

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

    scene: int  # Place of the scene in the telling, from 0.
    sentence: int  # Place of the sentence in the scene, from 0.
    path: str  # File.
    line: int  # Line in it.
    quote: str  # The sentence.


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """An expectation of the reader."""

    kind: LoopKind  # How it was opened.
    item: str  # The expected event or thing, in the words of the text.
    terms: tuple[str, ...]  # Words that identify it.
    planted: Place  # Where it was opened.
    status: LoopStatus = "open"  # Its present state.
    payoff: Place | None = None  # Place where it was paid, or last touched.
    planned_for: str | None = None  # Title of the unwritten scene that pays it off.


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sentence with the match in it."""

    place: Place  # Place of the sentence.
    text: str  # The whole sentence.
    terms: frozenset[str]  # Stems of its words.
    evaded: bool  # For a question: whether the text evades an immediate answer.


def lines(index: int, scene: Scene) -> Iterator[Line]:
    """Yield the sentences of a scene."""
    paragraphs = prose.paragraphs(scene.document)
    position = 0
    for paragraph, following in itertools.zip_longest(paragraphs, paragraphs[1:]):
        # A question that the next speaker answers is closed immediately.
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
    """Return whether a sentence is a question; `"Who is there?" asked Kael.` is one."""
    return "?" in line.text


def answers(first: Line, following: Line | None) -> bool:
    """Return whether a thing returns with an effect: with a verb of effect, or as `it` in the next sentence."""
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
