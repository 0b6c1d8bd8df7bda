"""The tool `scene_draft_validator`: check a scene's draft against its outlined beats and the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app import errors
from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.findings import Finding
from app.tools.story import documents, draft_checks, outline_matching, outlines, scenes
from app.tools.story.outline_matching import Match
from app.tools.story.outlines import Outline
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
        draft = draft_checks.of_scene(_scene(params, workspace))
        outline = _outline(params, workspace)
        match = _match(workspace, outline, params.get("beat"), draft.scene) if outline else None
        wishes = _wishes(params, draft, outline, match)
        checks = draft_checks.checked(draft, wishes)
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
    """Return the planned scene that the task names, otherwise the one that the draft's number, title or name means."""
    by_draft = outline_matching.of_file(scene.document)
    clue = outline_matching.clue_of(workspace, outline, wanted) if wanted is not None else by_draft
    try:
        return outline_matching.find(outline, [clue])
    except errors.ToolFailed as failure:
        if failure.code == outline_matching.AMBIGUOUS:
            raise
        return None


def _wishes(
    params: plain.Object, draft: draft_checks.Draft, outline: Outline | None, match: Match | None
) -> draft_checks.Wishes:
    fewest, most = match.scene.words if match else (None, None)
    return draft_checks.Wishes(
        in_outline=None if outline is None else match is not None,
        beats=draft_checks.find_beats(match.scene.beats, draft) if match else (),
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


def _shown(beat: draft_checks.Beat) -> dict[str, plain.Json]:
    return {"text": bounds.clipped(beat.text), "covered": beat.is_covered, "score": beat.score, "line": beat.line}


def _report(checks: Sequence[draft_checks.Check], found: Sequence[Finding]) -> Iterator[str]:
    yield from (f"- {check.name}: {'FAIL' if check.against else 'pass'}" for check in checks)
    yield "Findings:"
    yield from findings.lines(found, "none")


def _summary(draft: draft_checks.Draft, wishes: draft_checks.Wishes, found: Sequence[Finding]) -> str:
    covered = sum(beat.is_covered for beat in wishes.beats)
    beats = f"{covered} of {findings.counted(len(wishes.beats), 'beat')} covered"
    return f"{'not passed' if found else 'passed'}: {findings.counted(draft.words, 'word')}, {beats}"
