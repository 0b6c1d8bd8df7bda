"""The tool `scene_draft_validator`: hold the draft of a scene against its beats in the outline and the wishes of the
task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app import errors
from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.findings import Finding
from app.tools.story import documents, matching, outlines, prose, scenes
from app.tools.story.outlines import Match, Outline
from app.tools.story.scenes import Scene
from app.tools.workspace import Workspace

_LISTS = ("findings", "beats")


class SceneDraftValidator:
    """Check a draft for its beats, point of view, length, headings and forbidden words."""

    name = "scene_draft_validator"
    description = (
        "Check a scene's draft against its outline beats, point of view, length, required headings and forbidden words."
    )
    args_schema: Mapping[str, plain.Json] = {
        **arguments.schema(
            required=[],
            scene_path=arguments.path("The draft's file."),
            text=arguments.text("The draft itself, instead of a file.", max_length=1024 * 1024),
            outline_path=arguments.path("Outline with the scene's beats."),
            beat=arguments.text(
                "Scene of the outline: number, title or task; without it, the draft's own number or title.",
                max_length=20_000,
            ),
            min_words=arguments.count("Fewest words; without it, what the outline says.", minimum=0, maximum=1_000_000),
            max_words=arguments.count("Most words; without it, what the outline says.", minimum=1, maximum=1_000_000),
            pov=arguments.text("Through whose eyes; without it, what the outline says.", max_length=200),
            forbidden_words=arguments.texts("Words or phrases that may not occur.", max_items=200),
            required_headings=arguments.texts("Headings that must be there.", max_items=50),
        ),
        "oneOf": [{"required": ["scene_path"]}, {"required": ["text"]}],
    }

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return every check with its result."""
        params = arguments.complete(self.name, self.args_schema, args)
        draft = of_scene(_scene(params, workspace))
        outline = _outline(params, workspace)
        match = _match(workspace, outline, params.get("beat"), draft.scene) if outline else None
        wishes = _wishes(params, draft, outline, match)
        checks = checked(draft, wishes)
        found = findings.ranked(finding for check in checks for finding in check.against)
        payload = {
            "pass": not found,
            "checks": [check.to_json() for check in checks],
            "scene_path": params.get("scene_path"),
            "words": draft.words,
            "matched": _matched(match),
            "beats": [_shown(beat) for beat in wishes.beats],
            "findings": found,
            "report": bounds.report(_report(checks, found)),
        }
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=_summary(draft, wishes, found))


def _scene(params: plain.Object, workspace: Workspace) -> Scene:
    if "text" in params:
        return scenes.of_document(documents.parse(params["text"]))
    return scenes.read(workspace, params["scene_path"])


def _outline(params: plain.Object, workspace: Workspace) -> Outline | None:
    return outlines.of_document(documents.read(workspace, params["outline_path"])) if "outline_path" in params else None


def _match(workspace: Workspace, outline: Outline, wanted: str | None, scene: Scene) -> Match | None:
    """Return the planned scene that the task names, else the one that the draft's number, title or file name means.

    Raises:
        errors.ToolFailed: `scene_ambiguous`; no scene at all is a failed check instead.
    """
    by_draft = outlines.of_file(scene.document)
    clue = outlines.clue_of(workspace, outline, wanted) if wanted is not None else by_draft
    try:
        return outlines.find(outline, [clue])
    except errors.ToolFailed as failure:
        if failure.code == outlines.AMBIGUOUS:
            raise
        return None


def _wishes(params: plain.Object, draft: Draft, outline: Outline | None, match: Match | None) -> Wishes:
    """Take what the task asks; where it is silent, what the outline says."""
    fewest, most = match.scene.words if match else (None, None)
    return Wishes(
        in_outline=None if outline is None else match is not None,
        beats=find_beats(match.scene.beats, draft) if match else (),
        min_words=params.get("min_words", fewest),
        max_words=params.get("max_words", most),
        pov=params.get("pov") or (match.scene.value("pov") if match else None),
        forbidden_words=tuple(params.get("forbidden_words", ())),
        required_headings=tuple(params.get("required_headings", ())),
    )


def _matched(match: Match | None) -> dict[str, plain.Json] | None:
    if match is None:
        return None
    planned = match.scene
    title = bounds.clipped(planned.title)
    return {"index": planned.index, "number": planned.number, "title": title, "score": match.score}


def _shown(beat: Beat) -> dict[str, plain.Json]:
    return {"text": bounds.clipped(beat.text), "covered": beat.is_covered, "score": beat.score, "line": beat.line}


def _report(checks: Sequence[Check], found: Sequence[Finding]) -> Iterator[str]:
    yield from (f"- {check.name}: {'FAIL' if check.against else 'pass'}" for check in checks)
    yield "Findings:"
    yield from findings.lines(found, "none")


def _summary(draft: Draft, wishes: Wishes, found: Sequence[Finding]) -> str:
    covered = sum(beat.is_covered for beat in wishes.beats)
    beats = f"{covered} of {findings.counted(len(wishes.beats), 'beat')} covered"
    return f"{'not passed' if found else 'passed'}: {findings.counted(draft.words, 'word')}, {beats}"


MAX_BEATS = 60
"""Beats of one scene that are looked for."""

_COVERED = 0.6
_WINDOW_SENTENCES = 3
_FIRST_PERSON = re.compile(r"\b(?:I|my|me)\b")
_FIRST_PERSON_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A scene to be checked."""

    scene: Scene
    """The scene."""
    sentences: tuple[prose.Sentence, ...]
    """Its sentences."""
    narration: tuple[str, ...]
    """Those that nobody speaks."""
    words: int
    """Number of its words, without headings and front matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A beat of the outline, looked for in the draft."""

    text: str
    """What should happen."""
    score: float
    """Part of its words that stand close together in the draft, 0 to 1."""
    line: int
    """Where they stand; 0 if nowhere."""

    @property
    def is_covered(self) -> bool:
        """Whether the draft tells it, as far as words can show."""
        return self.score >= _COVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is asked of a draft, by the task or by its outline."""

    in_outline: bool | None
    """Whether its scene was found in the outline; None without an outline."""
    beats: tuple[Beat, ...] = ()
    """What it should tell."""
    min_words: int | None = None
    """Fewest words."""
    max_words: int | None = None
    """Most words."""
    pov: str | None = None
    """Through whose eyes."""
    forbidden_words: tuple[str, ...] = ()
    """What may not occur."""
    required_headings: tuple[str, ...] = ()
    """What must stand above its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check that was asked for, with what speaks against it."""

    name: str
    """Its name."""
    against: tuple[Finding, ...]
    """What was found; the check is passed without any."""

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
    """Find for each beat the few sentences in a row that hold most of its words."""
    by_sentence = [set(matching.terms(sentence.text)) for sentence in draft.sentences]
    windows = [set().union(*by_sentence[start : start + _WINDOW_SENTENCES]) for start in range(len(by_sentence))]
    return tuple(_found(text, windows, draft) for text in texts[:MAX_BEATS])


def checked(draft: Draft, wishes: Wishes) -> list[Check]:
    """Make every check that is asked for."""
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
        yield _finding(draft, "length", f"The draft has {draft.words} words, fewer than {wishes.min_words}.")
    if wishes.max_words is not None and draft.words > wishes.max_words:
        yield _finding(draft, "length", f"The draft has {draft.words} words, more than {wishes.max_words}.")


def _wrong_pov(draft: Draft, wishes: Wishes) -> Iterator[Finding]:
    """Compare through whose eyes the draft says, or seems, to be told with whose they should be."""
    wanted = set(matching.terms(wishes.pov or ""))
    stated = draft.scene.pov
    if stated is not None and not wanted & set(matching.terms(stated)):
        line = draft.scene.document.front_matter_lines.get("pov", 0)
        yield _finding(draft, "pov", f"The draft is told by {stated}, not by {wishes.pov}.", line=line)
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
