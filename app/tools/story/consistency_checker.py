"""The tool `consistency_checker`: check the scenes of a story against each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.findings import Finding
from app.tools.story import folders, scenes
from app.tools.story.continuity import comparison, deaths, spellings
from app.tools.story.continuity.passages import Fact
from app.tools.story.scenes import Scene
from app.tools.workspace import Workspace

_LISTS = ("conflicts", "scenes", "left_out")
_STATEMENTS_SHOWN = 6
# These may change in the course of a story.
_CHANGING = frozenset({"age", "possession", "trade"})


class ConsistencyChecker:
    """Find facts that scenes state differently, names spelled in two ways, and time that runs backwards."""

    name = "consistency_checker"
    description = (
        "Compare scenes with each other: contradicting attributes, names spelled differently, dates that run "
        "backwards, the dead who speak."
    )
    args_schema: plain.Object = arguments.schema(
        required=["scene_paths"],
        scene_paths=arguments.paths("The scenes to compare, or folders of them."),
        canon_paths=arguments.paths("Canon cards or folders; they say which names are right and who is he or she."),
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the conflicts between the scenes."""
        params = arguments.complete(self.name, self.args_schema, args)
        left_out: list[str] = []
        narrated = scenes.read_all(workspace, params["scene_paths"], left_out)
        cards = folders.read_all(workspace, params.get("canon_paths", ()), left_out)
        result = comparison.compare(narrated, cards)
        conflicts = findings.ranked(_conflicts(narrated, result))
        payload = {
            "pass": not findings.has_error(conflicts),
            "conflict_count": len(conflicts),
            "conflicts": conflicts,
            **result.counts(),
            "scenes": [_shown(scene) for scene in narrated],
            "left_out": left_out,
            "report": bounds.report(
                [
                    *folders.warning(left_out),
                    "Conflicts between the scenes:",
                    *findings.lines(conflicts, "none found"),
                ]
            ),
        }
        summary = result.summary(len(conflicts), folders.remark(left_out))
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


def _conflicts(narrated: Sequence[Scene], result: comparison.Comparison) -> Iterator[Finding]:
    for entry in result.contradictions:
        yield _contradiction(entry)
    assert result.roster is not None
    yield from _slips(narrated, spellings.right_names(result.cards))
    yield from _backward_steps(narrated)


def _contradiction(entry: comparison.Contradiction) -> Finding:
    one, other = entry.one, entry.other
    values = dict.fromkeys([one.value, other.value])
    statements = list({fact.passage: fact for fact in (one, other, *entry.versions)}.values())
    kind = "dead_speaks" if other.kind == "death" else other.attribute
    return findings.finding(
        kind,
        "warning" if _is_doubtful(one) or _is_doubtful(other) or deaths.may_precede(one, other) else "error",
        f"{other.subject}: {other.attribute.replace('_', ' ')} is told as {' and '.join(values)}.",
        path=other.passage.path,
        line=other.passage.line,
        quote=other.passage.quote,
        subject=other.subject,
        attribute=other.attribute,
        statements=[_statement(fact) for fact in statements[:_STATEMENTS_SHOWN]],
    )


def _is_doubtful(fact: Fact) -> bool:
    return fact.attribute in _CHANGING or fact.passage.is_spoken or not fact.is_sure


def _slips(narrated: Sequence[Scene], known: Sequence[str]) -> Iterator[Finding]:
    for slip, intended in spellings.slips([scene.document for scene in narrated], known):
        place = slip.sighting
        places = [findings.place(place.path, place.line, place.quote) | {"value": slip.name}]
        if intended is not None:
            places.append(findings.place(intended.path, intended.line, intended.quote) | {"value": slip.intended})
        yield findings.finding(
            "name_spelling",
            "warning",
            f"{slip.name} ({findings.counted(slip.count, 'time')}) is probably a slip for {slip.intended} "
            f"({findings.counted(slip.intended_count, 'time')}).",
            path=place.path,
            line=place.line,
            quote=place.quote,
            subject=slip.intended,
            attribute="name",
            statements=places,
        )


def _backward_steps(narrated: Sequence[Scene]) -> Iterator[Finding]:
    dated = [(scene, scene.date) for scene in narrated if scene.date is not None and not scene.is_flashback]
    for (before, earlier), (scene, date) in itertools.pairwise(dated):
        if date.is_before(earlier):
            line = _date_line(scene)
            yield findings.finding(
                "timeline",
                "error",
                f"“{scenes.label(scene)}” plays on {date}, before “{scenes.label(before)}” on {earlier}.",
                path=scene.path,
                line=line,
                quote=scene.document.lines[line - 1],
                subject=scene.title,
                attribute="date",
                statements=[
                    findings.place(scene.path, _date_line(scene), "") | {"value": str(date)}
                    for scene, date in ((before, earlier), (scene, date))
                ],
            )


def _date_line(scene: Scene) -> int:
    stated = (line for name, line in scene.document.front_matter_lines.items() if name in scenes.DATE_FIELDS)
    return next(stated, scene.document.body_line)


def _statement(fact: Fact) -> dict[str, plain.Json]:
    passage = fact.passage
    return findings.place(passage.path, passage.line, passage.quote) | {"value": fact.value}


def _shown(scene: Scene) -> dict[str, plain.Json]:
    return {
        "path": scene.path,
        "number": scene.number,
        "title": bounds.clipped(scene.title),
        "date": str(scene.date) if scene.date else None,
    }
