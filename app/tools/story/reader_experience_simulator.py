"""The tool `reader_experience_simulator`: the expectations and the tension of a reader, scene by scene."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.bounds import mean
from app.tools.findings import Finding
from app.tools.story import documents, folders, open_loops, outlines, prose, scenes
from app.tools.story.loop_signs import Loop, Place
from app.tools.story.prose import Paragraph
from app.tools.story.scenes import Scene
from app.tools.workspace import Workspace

_PARTS = 4
_PARTED_SCENES = 40
_FLAT_RANGE = 0.1
_SAG = 0.2
_SHORT_SENTENCE_WORDS = 6
_MUCH_DANGER = 0.05
_DANGER = re.compile(
    r"\b(?:dark(?:ness)?|dead|death|die[sd]?|blood|fear|afraid|scream(?:ed)?|run|ran|fell|fall|knife|gun|"
    r"fire|storm|cold|alone|never|nobody|nothing|too late|lost|lose|danger|trap(?:ped)?|locked|broke(?:n)?|struck|"
    r"shadow|silence|threat|hurt|drown(?:ed)?)\b",
    re.IGNORECASE,
)
_SEVERITIES: dict[tuple[str, str], findings.Severity] = {
    ("foreshadowing", "open"): "warning",
    ("foreshadowing", "touched"): "hint",
    ("promise", "open"): "warning",
    ("question", "open"): "hint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    scene: Scene
    position: float
    tension: float


class ReaderExperienceSimulator:
    """Follow questions, promises and foreshadowing to their payoff, and draw the curve of tension."""

    name = "reader_experience_simulator"
    description = (
        "Follow open questions, promises and foreshadowed things to their payoff, name those without one, and draw "
        "the tension."
    )
    args_schema: plain.Object = arguments.schema(
        required=["scene_paths"],
        scene_paths=arguments.paths("The scenes, or folders of them; numbered ones are put in order."),
        outline_path=arguments.path("Outline whose `Plants` and `Pays off` lines are taken into account."),
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return all loops, the open ones, and the tension."""
        params = arguments.complete(self.name, self.args_schema, args)
        left_out: list[str] = []
        stated = scenes.read_all(workspace, params["scene_paths"], left_out)
        outline = (
            outlines.of_document(documents.read(workspace, params["outline_path"]))
            if "outline_path" in params
            else None
        )
        loops = open_loops.find(stated, outline)
        points = _points(stated)
        unpaid = findings.ranked(_unpaid(loops))
        payload = {
            "pass": not any(finding["severity"] == "warning" for finding in unpaid),
            "scenes": _scenes(stated, loops, points),
            "tension_curve": [_shown_point(point) for point in points],
            "open_loops": [_shown_loop(number, loop) for number, loop in enumerate(loops, start=1)],
            "unpaid": unpaid,
            "findings": findings.ranked(_tension_findings(stated, points)),
            "left_out": left_out,
            "report": bounds.report([*folders.warning(left_out), *_report(stated, points, unpaid)]),
        }
        summary = _summary(stated, loops, unpaid) + folders.remark(left_out)
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


_LISTS = ("unpaid", "open_loops", "tension_curve", "scenes", "findings", "left_out")


def _points(stated: Sequence[Scene]) -> list[_Point]:
    parts = _PARTS if len(stated) <= _PARTED_SCENES else 1
    found = []
    for index, scene in enumerate(stated):
        paragraphs = prose.paragraphs(scene.document)
        size = max(-(-len(paragraphs) // parts), 1)
        for start in range(0, len(paragraphs), size):
            position = (index + start / len(paragraphs)) / len(stated)
            tension = _tension(paragraphs[start : start + size])
            found.append(_Point(scene=scene, position=round(position, 3), tension=tension))
    return found


def _tension(paragraphs: Sequence[Paragraph]) -> float:
    texts = [sentence.text for paragraph in paragraphs for sentence in paragraph.sentences]
    lengths = [len(prose.words(text)) for text in texts]
    danger = sum(len(_DANGER.findall(text)) for text in texts) / max(sum(lengths), 1)
    short = mean([float(length <= _SHORT_SENTENCE_WORDS) for length in lengths])
    charged = mean([float(text.rstrip("\"”'’").endswith(("?", "!"))) for text in texts])
    return round(0.5 * min(danger / _MUCH_DANGER, 1.0) + 0.3 * short + 0.2 * charged, 3)


def _unpaid(loops: Sequence[Loop]) -> Iterator[Finding]:
    for loop in loops:
        severity = _SEVERITIES.get((loop.kind, loop.status))
        if severity is not None:
            yield findings.finding(
                f"{loop.status}_{loop.kind}",
                severity,
                _message(loop),
                path=loop.planted.path,
                line=loop.planted.line,
                quote=loop.planted.quote,
                item=loop.item,
            )


def _message(loop: Loop) -> str:
    match loop.kind, loop.status:
        case "question", _:
            return f"The question “{loop.item}” stays open."
        case "promise", _:
            return f"“{loop.item}”: nothing comes of it."
        case _, "touched":
            return f"“{loop.item}” comes back, but nothing comes of it."
    return f"“{loop.item}” is set before the reader and never comes back."


def _tension_findings(stated: Sequence[Scene], points: Sequence[_Point]) -> Iterator[Finding]:
    levels = [(scene, _level(scene, points)) for scene in stated]
    values = [level for _, level in levels]
    if len(values) >= _PARTS and max(values) - min(values) < _FLAT_RANGE:
        yield findings.finding(
            "flat_tension", "warning", "The tension is nearly the same in all scenes.", path=stated[0].path, line=1
        )
    for (_, before), (scene, level), (_, after) in zip(levels, levels[1:], levels[2:], strict=False):
        if level < min(before, after) - _SAG:
            message = f"The tension sags in “{scenes.label(scene)}” ({level})."
            yield findings.finding("sagging_tension", "hint", message, path=scene.path, line=scene.document.body_line)


def _level(scene: Scene, points: Sequence[_Point]) -> float:
    return round(mean([point.tension for point in points if point.scene.path == scene.path]), 3)


def _scenes(stated: Sequence[Scene], loops: Sequence[Loop], points: Sequence[_Point]) -> list[dict[str, plain.Json]]:
    opened = Counter(loop.planted.scene for loop in loops)
    closed = Counter(loop.payoff.scene for loop in loops if loop.status == "paid" and loop.payoff)
    return [
        {
            "path": scene.path,
            "number": scene.number,
            "title": bounds.clipped(scene.title),
            "tension": _level(scene, points),
            "opened": opened[index],
            "closed": closed[index],
        }
        for index, scene in enumerate(stated)
    ]


def _shown_point(point: _Point) -> dict[str, plain.Json]:
    return {"path": point.scene.path, "position": point.position, "tension": point.tension}


def _shown_loop(number: int, loop: Loop) -> dict[str, plain.Json]:
    return {
        "loop_id": f"loop-{number}",
        "kind": loop.kind,
        "item": loop.item,
        "status": loop.status,
        "planted": _shown_place(loop.planted),
        "payoff": _shown_place(loop.payoff) if loop.payoff else None,
        "planned_for": loop.planned_for,
    }


def _shown_place(place: Place) -> dict[str, plain.Json]:
    return findings.place(place.path, place.line, place.quote)


def _summary(narrated: Sequence[Scene], loops: Sequence[Loop], unpaid: Sequence[Finding]) -> str:
    foreshadowed = sum(entry["kind"] == "open_foreshadowing" for entry in unpaid)
    return (
        f"{findings.counted(len(loops), 'open loop')} in {findings.counted(len(narrated), 'scene')}, "
        f"{len(unpaid)} unpaid, {foreshadowed} of them foreshadowing"
    )


def _report(stated: Sequence[Scene], points: Sequence[_Point], unpaid: Sequence[Finding]) -> Iterator[str]:
    yield "Unpaid:"
    yield from findings.lines(unpaid, "nothing")
    yield "Tension:"
    yield from (f"- {scenes.label(scene)}: {_level(scene, points)}" for scene in itertools.islice(stated, 40))
