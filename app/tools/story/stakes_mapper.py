"""The tool `stakes_mapper`: the goals, risks and losses of each scene, and whether they grow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.bounds import mean
from app.tools.findings import Finding
from app.tools.story import folders, prose, scenes
from app.tools.story.scenes import Scene
from app.tools.workspace import Workspace

Trend = Literal["rising", "flat", "falling", "uneven"]  # Course of the stakes from the first scene to the last.

_SHOWN = 8
_SAME_LEVEL = 0.5
_GOALS = re.compile(
    r"\b(?:wants? to|wanted to|needs?(?: to)?|needed(?: to)?|must|ha[sd] to|have to|tries to|tried to|"
    r"hopes? to|hoped to|(?:means|meant|intends|intended|plans|planned|longs|longed|determined|asks?|came|come) to|"
    r"in order to|so that)\b",
    re.IGNORECASE,
)
_RISKS = re.compile(
    r"\b(?:if|unless|or else|otherwise|lest|before it (?:is|was) too late|at risk|risk(?:s|ed)?|threat(?:ens?|ened)?|"
    r"afraid|fear(?:s|ed)?|danger(?:ous)?|could lose|(?:might|would) (?:lose|die|fail|fall|drown))\b",
    re.IGNORECASE,
)
_CONSEQUENCES = re.compile(
    r"\b(?:therefore|because of (?:this|that|it)|as a result|so (?:he|she|they|it)|lost|broke|broken|too late|"
    r"never again|ruined|destroyed|was dead|were dead|died|killed|drowned|sank|burned|burnt|wounded|betrayed|"
    r"gave up|refused|taken)\b",
    re.IGNORECASE,
)
_GRAVE = re.compile(
    r"\b(?:die[sd]?|dead|death|dying|kill(?:s|ed)?|murder(?:ed)?|drown(?:s|ed)?|blood|grave|hang(?:s|ed)?|"
    r"war|life|lives|wreck(?:ed)?)\b",
    re.IGNORECASE,
)
_SERIOUS = re.compile(
    r"\b(?:loses?|lost|love[sd]?|betray(?:s|ed)?|home|name|honou?r|freedom|prison|child(?:ren)?|friend(?:s)?|trust(?:ed)?|"
    r"wound(?:ed)?|fail(?:s|ed)?|ruin(?:ed)?|secret)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    line: int
    quote: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapped:
    scene: Scene
    goals: Sequence[_Marker]
    risks: Sequence[_Marker]
    consequences: Sequence[_Marker]
    level: float


class StakesMapper:
    """Mark goals, risks and consequences in scenes, weigh them, and judge whether the stakes rise."""

    name = "stakes_mapper"
    description = "Map goals, risks and consequences scene by scene, and tell whether the stakes rise."
    args_schema: plain.Object = arguments.schema(
        required=["scene_paths"],
        scene_paths=arguments.paths("The scenes, or folders of them; numbered ones are put in order."),
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the stakes of each scene and their course."""
        params = arguments.complete(self.name, self.args_schema, args)
        left_out: list[str] = []
        mapped = [_mapped(scene) for scene in scenes.read_all(workspace, params["scene_paths"], left_out)]
        levels = [entry.level for entry in mapped]
        trend = _trend(levels)
        found = findings.ranked(_findings(mapped))
        payload = {
            "scenes": [_shown(entry) for entry in mapped],
            "escalation": {
                "levels": levels[: bounds.LIST_ENTRIES],
                "trend": trend,
                "drops": [scenes.label(after.scene) for before, after in _drops(mapped)][: bounds.LIST_ENTRIES],
            },
            "findings": found,
            "left_out": left_out,
            "report": bounds.report([*folders.warning(left_out), *_report(mapped, trend, found)]),
        }
        counts = f"{findings.counted(len(mapped), 'scene')}: {trend}, {findings.counted(len(found), 'finding')}"
        summary = f"Stakes of {counts}{folders.remark(left_out)}"
        return ports.ToolOutput(payload=bounds.fitted(payload, ("scenes", "findings", "left_out")), summary=summary)


def _mapped(scene: Scene) -> _Mapped:
    sentences = [sentence for paragraph in prose.paragraphs(scene.document) for sentence in paragraph.sentences]
    goals, risks, consequences = (_markers(sentences, pattern) for pattern in (_GOALS, _RISKS, _CONSEQUENCES))
    weighed = 0.5 * len(goals) + sum(m.weight for m in risks) + sum(m.weight for m in consequences)
    # Per hundred words, so that a long scene does not rank higher; shorter scenes count as a hundred words.
    words = max(sum(len(prose.words(sentence.text)) for sentence in sentences), 100)
    return _Mapped(
        scene=scene, goals=goals, risks=risks, consequences=consequences, level=round(100 * weighed / words, 2)
    )


def _markers(sentences: Sequence[prose.Sentence], pattern: re.Pattern[str]) -> list[_Marker]:
    return [
        _Marker(line=sentence.line, quote=bounds.clipped(sentence.text), weight=_weight(sentence.text))
        for sentence in sentences
        if pattern.search(sentence.text)
    ]


def _weight(text: str) -> int:
    """Weigh the stakes of a sentence: 3 for life and death, 2 for loved things, 1 for the rest."""
    if _GRAVE.search(text):
        return 3
    return 2 if _SERIOUS.search(text) else 1


def _trend(levels: Sequence[float]) -> Trend:
    """Compare the second half with the first; halves with equal means but different scenes are uneven."""
    if len(levels) < 2:
        return "flat"
    middle = len(levels) // 2
    difference = mean(levels[len(levels) - middle :]) - mean(levels[:middle])
    if abs(difference) > _SAME_LEVEL:
        return "rising" if difference > 0 else "falling"
    return "flat" if max(levels) - min(levels) <= 2 * _SAME_LEVEL else "uneven"


def _drops(mapped: Sequence[_Mapped]) -> Iterator[tuple[_Mapped, _Mapped]]:
    return ((before, after) for before, after in itertools.pairwise(mapped) if after.level < before.level - _SAME_LEVEL)


def _findings(mapped: Sequence[_Mapped]) -> Iterator[Finding]:
    for entry in mapped:
        if not entry.goals:
            yield _finding(entry, "no_goal", "warning", "has no goal: no wish, need or duty is named.")
        if not entry.risks:
            yield _finding(entry, "no_risk", "warning", "has no risk: nothing is said to go wrong.")
        if not entry.consequences:
            yield _finding(entry, "no_consequence", "hint", "has no consequence: nothing is lost, broken or refused.")
    for before, after in _drops(mapped):
        text = f"has lower stakes ({after.level}) than “{scenes.label(before.scene)}” before it ({before.level})."
        yield _finding(after, "falling_stakes", "hint", text)


def _finding(entry: _Mapped, kind: str, severity: findings.Severity, text: str) -> Finding:
    message = f"“{scenes.label(entry.scene)}” {text}"
    return findings.finding(kind, severity, message, path=entry.scene.path, line=entry.scene.document.body_line)


def _shown(entry: _Mapped) -> dict[str, plain.Json]:
    marked = {"goals": entry.goals, "risks": entry.risks, "consequences": entry.consequences}
    return {
        "path": entry.scene.path,
        "number": entry.scene.number,
        "title": bounds.clipped(entry.scene.title),
        "level": entry.level,
        **{name: [_shown_marker(marker) for marker in found[:_SHOWN]] for name, found in marked.items()},
        "marker_counts": {name: len(found) for name, found in marked.items()},
    }


def _shown_marker(marker: _Marker) -> dict[str, plain.Json]:
    return {"line": marker.line, "quote": marker.quote, "weight": marker.weight}


def _report(mapped: Sequence[_Mapped], trend: Trend, found: Sequence[Finding]) -> Iterator[str]:
    yield f"Stakes: {trend}."
    for entry in mapped:
        first = next(iter([*entry.risks, *entry.consequences, *entry.goals]), None)
        quote = f": {first.quote}" if first else ""
        yield f"- {scenes.label(entry.scene)}, level {entry.level}{quote}"
    yield "Findings:"
    yield from findings.lines(found, "none")
