"""The tool `outline_analyzer`: parse an outline, and find the scene that a task means."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.findings import Finding
from app.tools.story import documents, matching, outline_fields, outline_matching, outlines, scene_matching
from app.tools.story.outline_fields import Ignored
from app.tools.story.outline_matching import Match
from app.tools.story.outlines import Outline, PlannedScene
from app.tools.workspace import Workspace

_BEATS_SHOWN = 40
_PLANTS_FOLLOWED = 500


class OutlineAnalyzer:
    """List the scenes of an outline with their beats, the scene that a query means, and the gaps of the outline."""

    name = "outline_analyzer"
    description = "Read an outline: its scenes, beats, points of view and gaps, and the scene that a task means."
    args_schema: plain.Object = arguments.schema(
        required=["outline_path"],
        outline_path=arguments.path("The outline."),
        mode=arguments.choice(
            "structure: all scenes with their beats, and findings; beat: the scene meant by the query in full, the "
            "others by title only.",
            "structure",
            "beat",
            default="structure",
        ),
        query=arguments.text(
            "Scene to find: `scene 21`, a title, a file, or a task. The tool fails if no scene, or several, fit.",
            max_length=20_000,
        ),
        second_query=arguments.text("What settles a query that several scenes fit, or none well.", max_length=20_000),
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the scenes, and the one that the query means."""
        params = arguments.complete(self.name, self.args_schema, args)
        outline = outlines.of_document(documents.read(workspace, params["outline_path"]))
        match = _meant(workspace, outline, params)
        whole = params["mode"] == "structure"
        unread = outline.ignored if match is None or whole else match.scene.ignored
        found = findings.ranked(_findings(outline)) if whole else []
        payload = {
            "outline_path": params["outline_path"],
            "title": bounds.clipped(outline.title),
            "scene_count": len(outline.scenes),
            "scenes": [_shown(planned, with_beats=whole or _is(match, planned)) for planned in outline.scenes],
            "matched": _matched(outline, match),
            "ignored": [_unread(entry) for entry in unread],
            "findings": found,
            "report": bounds.report([*_report(outline, match, found), *_unread_lines(unread)]),
        }
        return ports.ToolOutput(
            payload=bounds.fitted(payload, ("scenes", "findings", "ignored")), summary=_summary(outline, match)
        )


def _meant(workspace: Workspace, outline: Outline, params: plain.Object) -> Match | None:
    if "query" not in params:
        return None
    clues = [outline_matching.clue_of(workspace, outline, params["query"])]
    if "second_query" in params:
        clues.append(scene_matching.of_text(params["second_query"]))
    return outline_matching.find(outline, clues)


def _unread(entry: Ignored) -> dict[str, plain.Json]:
    return {
        "line": entry.line, "name": entry.name, "text": bounds.clipped(entry.text), "reason": entry.reason
    }  # fmt: skip


def _unread_lines(unread: Sequence[Ignored]) -> Iterator[str]:
    if unread:
        yield "Not read:"
        yield from (f"- line {entry.line}, {entry.reason}: {bounds.clipped(entry.text, 80)}" for entry in unread)


def _is(match: Match | None, planned: PlannedScene) -> bool:
    return match is not None and match.scene.index == planned.index


def _shown(planned: PlannedScene, *, with_beats: bool) -> dict[str, plain.Json]:
    fewest, most = planned.words
    return {
        "index": planned.index,
        "number": planned.number,
        "title": bounds.clipped(planned.title),
        "label": bounds.clipped(planned.label),
        "line": planned.line,
        **{name: _text(planned, name) for name in ("pov", "place", "date", "goal", "summary")},
        **{name: [bounds.clipped(entry) for entry in planned.entries(name)][:_BEATS_SHOWN] for name in _LIST_FIELDS},
        "min_words": fewest,
        "max_words": most,
        "beats": [bounds.clipped(beat) for beat in planned.beats[:_BEATS_SHOWN]] if with_beats else [],
    }


_LIST_FIELDS = ("characters", "plants", "payoffs")


def _text(planned: PlannedScene, name: str) -> str | None:
    value = planned.value(name)
    return bounds.clipped(value) if value else None


def _matched(outline: Outline, match: Match | None) -> dict[str, plain.Json] | None:
    if match is None:
        return None
    before, after = outlines.neighbours(outline, match.scene)
    return {
        **_shown(match.scene, with_beats=True),
        "score": match.score,
        "found_by": match.by,
        "previous_title": bounds.clipped(before) if before else None,
        "next_title": bounds.clipped(after) if after else None,
    }


def _findings(outline: Outline) -> Iterator[Finding]:
    for planned in outline.scenes:
        yield from _gaps(outline, planned)
    counts = Counter(str(planned.scene_number) for planned in outline.scenes if planned.scene_number is not None)
    for planned in outline.scenes:
        if planned.scene_number is not None and counts[str(planned.scene_number)] > 1:
            message = f"{counts[str(planned.scene_number)]} scenes have the number {planned.scene_number}."
            yield _finding(outline, planned, "duplicate_number", "error", message)
    for entry in outline.ignored:
        if entry.name is not None:
            yield _unknown_field(outline, entry)
    yield from _steps(outline)
    yield from _open_plants(outline)


def _gaps(outline: Outline, planned: PlannedScene) -> Iterator[Finding]:
    label = _label(planned)
    if not planned.beats:
        yield _finding(outline, planned, "no_beats", "warning", f"{label} has no beats.")
    for name, words in (("pov", "point of view"), ("goal", "goal")):
        if planned.value(name) is None:
            yield _finding(outline, planned, f"no_{name}", "hint", f"{label} names no {words}.")


def _steps(outline: Outline) -> Iterator[Finding]:
    for before, planned in itertools.pairwise(outline.scenes):
        # Each part has its own numbering, so a step from one part to the next is not significant.
        same = (before.scene_number and before.scene_number.within) == (
            planned.scene_number and planned.scene_number.within
        )
        if same and before.number is not None and planned.number is not None and planned.number > before.number + 1:
            missing = f"{before.number + 1} to {planned.number - 1}"
            message = f"Scenes {missing} are missing before {_label(planned)}."
            yield _finding(outline, planned, "number_gap", "hint", message)
        if before.date is not None and planned.date is not None and planned.date.is_before(before.date):
            message = f"{_label(planned)} plays on {planned.date}, before {_label(before)} on {before.date}."
            yield _finding(outline, planned, "timeline", "warning", message)


def _open_plants(outline: Outline) -> Iterator[Finding]:
    payoffs = [
        (planned.index, frozenset(matching.terms(payoff)))
        for planned in outline.scenes
        for payoff in planned.entries("payoffs")
    ]
    planted = ((planned, plant) for planned in outline.scenes for plant in planned.entries("plants"))
    for planned, plant in itertools.islice(planted, _PLANTS_FOLLOWED):
        wanted = frozenset(matching.terms(plant))
        if not any(index >= planned.index and wanted <= payoff for index, payoff in payoffs):
            message = f"{plant} is planted in {_label(planned)} and pays off nowhere."
            yield _finding(outline, planned, "unpaid_plant", "warning", message)


def _finding(outline: Outline, planned: PlannedScene, kind: str, severity: findings.Severity, message: str) -> Finding:
    return findings.finding(kind, severity, message, path=outline.path, line=planned.line, quote=planned.title)


def _unknown_field(outline: Outline, entry: Ignored) -> Finding:
    message = (
        f"“{entry.name}” is not a field of an outline, and its value is not read. Fields are "
        f"{', '.join(outline_fields.FIELDS)}; what happens belongs below Beats."
    )
    return findings.finding("unknown_field", "hint", message, path=outline.path, line=entry.line, quote=entry.text)


def _label(planned: PlannedScene) -> str:
    return planned.label


def _summary(outline: Outline, match: Match | None) -> str:
    counted = findings.counted(len(outline.scenes), "scene")
    return (
        counted
        if match is None
        else bounds.clipped(f"{counted}, beat {match.scene.index + 1} matched: {match.scene.title}")
    )


def _report(outline: Outline, match: Match | None, found: list[Finding]) -> Iterator[str]:
    if match is not None:
        planned = match.scene
        yield _label(planned)
        yield from (
            f"{name}: {planned.value(name)}"
            for name in ("pov", "place", "date", "characters", "goal")
            if planned.value(name)
        )
        yield from (f"{number}. {bounds.clipped(beat)}" for number, beat in enumerate(planned.beats, start=1))
        return
    yield "Scenes:"
    yield from (f"- {_label(planned)}, {findings.counted(len(planned.beats), 'beat')}" for planned in outline.scenes)
    if found:
        yield "Findings:"
        yield from findings.lines(found, "")
