"""
The tool `consistency_checker`: hold the scenes of a story against each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.engine import plain, ports
from app.tools import arguments, bounds, canon, claims, disagreements, findings, names, scenes
from app.tools.cast import Cast
from app.tools.claims import Claim
from app.tools.findings import Finding
from app.tools.scenes import Scene
from app.tools.workspace import Workspace

_LISTS = ("conflicts", "scenes")
_STATEMENTS_SHOWN = 6
_VERSIONS_COMPARED = 40
# These may change in the course of a story.
_CHANGING = frozenset({"status", "owner", "age"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    claim: Claim
    scene: Scene


class ConsistencyChecker:
    """
    Find what scenes say differently of the same thing, names spelled in two ways, and time that runs backwards.
    """

    name = "consistency_checker"
    description = (
        "Compare scenes with each other: contradicting attributes, names spelled differently, dates that run "
        "backwards, the dead who speak."
    )
    args_schema: Mapping[str, plain.Json] = arguments.schema(
        required=["scene_paths"],
        scene_paths=arguments.paths("The scenes to compare, or folders of them."),
        canon_paths=arguments.paths("Canon cards or folders; they say which names are right and who is he or she."),
    )

    def execute(self, args: Mapping[str, plain.Json], workspace: Workspace) -> ports.ToolOutput:
        """
        Return the conflicts between the scenes.
        """
        given = arguments.complete(self.name, self.args_schema, args)
        told = scenes.read_all(workspace, given["scene_paths"])
        entities = canon.read_all(workspace, given["canon_paths"]) if "canon_paths" in given else []
        conflicts = findings.ranked(_conflicts(told, entities))
        payload = {
            "pass": not findings.has_error(conflicts),
            "conflict_count": len(conflicts),
            "conflicts": conflicts,
            "scenes": [_shown(scene) for scene in told],
            "report": bounds.report(["Conflicts between the scenes:", *findings.lines(conflicts, "none found")]),
        }
        summary = f"{findings.counted(len(conflicts), 'conflict')} found in {findings.counted(len(told), 'scene')}"
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


def _conflicts(told: Sequence[Scene], entities: Sequence[canon.Entity]) -> Iterator[Finding]:
    seen = names.sightings(scene.document for scene in told)
    cast = Cast(entities or names.entities(seen))
    stated = [
        _Stated(claim=claim, scene=scene)
        for scene in told
        for claim in claims.of_document(scene.document, cast, pov=scene.pov)
        if not claim.is_spoken and not (scene.is_flashback and claim.attribute in _CHANGING)
    ]
    yield from _contradictions(stated, cast)
    yield from _speaking_dead(stated, scenes.order(told))
    yield from _slips(seen, [alias for entity in entities for alias in entity.aliases])
    yield from _backward_steps(told)


def _contradictions(stated: Sequence[_Stated], cast: Cast) -> Iterator[Finding]:
    by_subject: dict[tuple[str, str], list[Claim]] = {}
    for entry in stated:
        if entry.claim.attribute != "status":
            by_subject.setdefault((entry.claim.subject, entry.claim.attribute), []).append(entry.claim)
    for (subject, attribute), told in by_subject.items():
        versions = list({claim.value: claim for claim in reversed(told)}.values())[::-1]
        pairs = itertools.combinations(versions[:_VERSIONS_COMPARED], 2)
        other = next((b for a, b in pairs if disagreements.contradict(attribute, a.value, b.value, cast)), None)
        if other is not None:
            yield _contradiction(subject, attribute, versions, other)


def _contradiction(subject: str, attribute: str, versions: Sequence[Claim], other: Claim) -> Finding:
    values = " and ".join(claim.value for claim in versions[:3])
    return findings.finding(
        attribute,
        "warning" if attribute in _CHANGING else "error",
        f"{subject}: {attribute.replace('_', ' ')} is told as {values}.",
        path=other.path,
        line=other.line,
        quote=other.quote,
        subject=subject,
        attribute=attribute,
        statements=[_statement(claim) for claim in versions[:_STATEMENTS_SHOWN]],
    )


def _speaking_dead(stated: Sequence[_Stated], order: Mapping[str, int]) -> Iterator[Finding]:
    deaths: dict[str, _Stated] = {}
    reported: set[str] = set()
    for entry in stated:
        claim = entry.claim
        if claim.attribute != "status" or claim.subject in reported:
            continue
        death = deaths.get(claim.subject)
        if claim.value == "dead":
            deaths.setdefault(claim.subject, entry)
        elif death is not None and claim.is_shown and order[entry.scene.path] > order[death.scene.path]:
            reported.add(claim.subject)
            yield findings.finding(
                "dead_speaks",
                "error",
                f"{claim.subject} is dead in “{scenes.label(death.scene)}” and speaks in "
                f"“{scenes.label(entry.scene)}”.",
                path=claim.path,
                line=claim.line,
                quote=claim.quote,
                subject=claim.subject,
                attribute="status",
                statements=[_statement(death.claim), _statement(claim)],
            )


def _slips(seen: Sequence[names.Sighting], known: Sequence[str]) -> Iterator[Finding]:
    for slip in names.slips(seen, known):
        place = slip.sighting
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
            statements=[findings.place(place.path, place.line, place.quote) | {"value": slip.name}],
        )


def _backward_steps(told: Sequence[Scene]) -> Iterator[Finding]:
    dated = [(scene, scene.date) for scene in told if scene.date is not None and not scene.is_flashback]
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


def _statement(claim: Claim) -> dict[str, plain.Json]:
    return findings.place(claim.path, claim.line, claim.quote) | {"value": claim.value}


def _shown(scene: Scene) -> dict[str, plain.Json]:
    return {
        "path": scene.path,
        "number": scene.number,
        "title": bounds.clipped(scene.title),
        "date": str(scene.date) if scene.date else None,
    }
