"""The checks of a scene's draft: its requirements, and the evidence against it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.tools import bounds, findings
from app.tools.findings import Finding
from app.tools.story import documents, matching, prose
from app.tools.story.scenes import Scene

MAX_BEATS = 60  # Beats of one scene that are looked for.

_COVERED = 0.6

_WINDOW_SENTENCES = 3

_FIRST_PERSON = re.compile(r"\b(?:I|my|me)\b")

_FIRST_PERSON_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A scene to be checked."""

    scene: Scene  # The scene.
    sentences: tuple[prose.Sentence, ...]  # Its sentences.
    narration: tuple[str, ...]  # Those outside dialogue.
    words: int  # Number of its words, without headings and front matter.


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A beat of the outline, looked for in the draft."""

    text: str  # What should happen.
    score: float  # Share of its words that are close together in the draft, 0 to 1.
    line: int  # Line of these words; 0 if there are none.

    @property
    def is_covered(self) -> bool:
        """Whether the draft narrates it, as far as words can show."""
        return self.score >= _COVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Requirements of a draft, from the task or its outline."""

    in_outline: bool | None  # Whether its scene was found in the outline; None without an outline.
    beats: tuple[Beat, ...] = ()  # Beats that it should narrate.
    min_words: int | None = None  # Fewest words.
    max_words: int | None = None  # Most words.
    pov: str | None = None  # Name of the viewpoint character.
    forbidden_words: tuple[str, ...] = ()  # Words that it must not contain.
    required_headings: tuple[str, ...] = ()  # Headings that its parts must have.


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A requested check, with the findings against it."""

    name: str  # Its name.
    against: tuple[Finding, ...]  # Findings; without any, the check is passed.

    def to_json(self) -> dict[str, object]:
        """Return `{check, pass, message}`."""
        message = " ".join(finding["message"] for finding in self.against[:5]) or "as asked"
        return {"check": self.name, "pass": not self.against, "message": bounds.clipped(message, 400)}


def of_scene(scene: Scene) -> Draft:
    """Take a scene apart for its checks."""
    paragraphs = prose.paragraphs(scene.document)
    sentences = [(paragraph, sentence) for paragraph in paragraphs for sentence in paragraph.sentences]
    return Draft(
        scene=scene,
        sentences=tuple(sentence for _, sentence in sentences),
        narration=tuple(s.text for paragraph, s in sentences if not paragraph.is_spoken(s.start)),
        words=sum(len(prose.words(sentence.text)) for _, sentence in sentences),
    )


def find_beats(texts: Sequence[str], draft: Draft) -> tuple[Beat, ...]:
    """Find for each beat the consecutive sentences that contain most of its words."""
    by_sentence = [set(matching.terms(sentence.text)) for sentence in draft.sentences]
    windows = [set().union(*by_sentence[start : start + _WINDOW_SENTENCES]) for start in range(len(by_sentence))]
    return tuple(_found(text, windows, draft) for text in texts[:MAX_BEATS])


def checked(draft: Draft, wishes: Wishes) -> list[Check]:
    """Make every requested check."""
    return [
        Check(name=name, against=tuple(find(draft, wishes)))
        for name, (is_asked, find) in _CHECKS.items()
        if is_asked(wishes)
    ]


def _found(text: str, windows: Sequence[set[str]], draft: Draft) -> Beat:
    wanted = matching.terms(text)
    scores = [matching.overlap(wanted, window) for window in windows]
    best = max(scores, default=0.0)
    line = draft.sentences[scores.index(best)].line if best else 0
    return Beat(text=text, score=round(best, 3), line=line)


def _emptiness(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    if not draft.words:
        yield _finding(draft, "empty", "The draft has no words.")


def _absence(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    if not wishes.in_outline:
        yield _finding(draft, "not_in_outline", "No scene of the outline fits the draft.")


def _missing_beats(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    for beat in wishes.beats:
        if not beat.is_covered:
            yield _finding(draft, "missing_beat", f"The beat “{beat.text}” is not told.", line=beat.line)


def _wrong_length(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    if wishes.min_words is not None and draft.words < wishes.min_words:
        yield _finding(
            draft, "length", f"The draft has {findings.counted(draft.words, 'word')}, fewer than {wishes.min_words}."
        )
    if wishes.max_words is not None and draft.words > wishes.max_words:
        yield _finding(
            draft, "length", f"The draft has {findings.counted(draft.words, 'word')}, more than {wishes.max_words}."
        )


def _wrong_pov(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    wanted = set(matching.terms(wishes.pov or ""))
    stated = draft.scene.pov
    if stated is not None and not wanted & set(matching.terms(stated)):
        line = draft.scene.document.front_matter_lines.get("pov", 0)
        yield _finding(draft, "pov", f"The draft is told by {stated}, not by {wishes.pov}.", line=line)
    # A narrator in the first person need not be named.
    by_narrator = sum(bool(_FIRST_PERSON.search(text)) for text in draft.narration)
    in_first_person = by_narrator > _FIRST_PERSON_SHARE * len(draft.narration)
    if not in_first_person and not any(wanted & set(matching.terms(text)) for text in draft.narration):
        yield _finding(draft, "pov", f"{wishes.pov}, whose point of view it should be, does not appear.")


def _forbidden_words(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    for word in wishes.forbidden_words:
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
        hits = [sentence for sentence in draft.sentences if pattern.search(sentence.text)]
        if hits:
            message = f"“{word}” may not occur and does so in {findings.counted(len(hits), 'sentence')}."
            yield _finding(draft, "forbidden_word", message, line=hits[0].line, quote=hits[0].text)


def _missing_headings(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    present = [matching.tokens(heading.text) for heading in documents.headings(draft.scene.document)]
    for heading in wishes.required_headings:
        if matching.tokens(heading) not in present:
            yield _finding(draft, "missing_heading", f"The heading “{heading}” is missing.")


def _finding(draft: Draft, kind: str, message: str, *, line: int = 0, quote: str = "") -> Finding:
    place = line or draft.scene.document.body_line
    return findings.finding(kind, "error", message, path=draft.scene.path, line=place, quote=quote)


_CHECKS: dict[str, tuple[Callable[[Wishes], bool], Callable[[Draft, Wishes], Iterator[Finding]]]] = {
    "not_empty": (lambda wishes: True, _emptiness),
    "in_outline": (lambda wishes: wishes.in_outline is not None, _absence),
    "beats": (lambda wishes: bool(wishes.beats), _missing_beats),
    "length": (lambda wishes: wishes.min_words is not None or wishes.max_words is not None, _wrong_length),
    "pov": (lambda wishes: wishes.pov is not None, _wrong_pov),
    "forbidden_words": (lambda wishes: bool(wishes.forbidden_words), _forbidden_words),
    "headings": (lambda wishes: bool(wishes.required_headings), _missing_headings),
}
