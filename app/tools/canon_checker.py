"""
The tool `canon_checker`: hold a scene against the cards of the canon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.engine import plain, ports
from app.tools import arguments, bounds, canon, claims, dates, disagreements, findings, names, scenes
from app.tools.canon import Entity, Fact
from app.tools.cast import Cast
from app.tools.claims import Claim
from app.tools.findings import Finding
from app.tools.scenes import Scene
from app.tools.workspace import Workspace

_LISTS = ("conflicts", "facts", "unknown_names")


class CanonChecker:
    """
    Compare what a scene states with what the canon cards say, and the cards with each other.
    """

    name = "canon_checker"
    description = (
        "Compare a scene with canon cards: eye and hair colour, hand, age, alive or dead, dates, places, owners, "
        "materials and the spelling of names."
    )
    args_schema: Mapping[str, plain.Json] = arguments.schema(
        required=["canon_paths"],
        canon_paths=arguments.paths("Canon cards, or folders of them."),
        scene_path=arguments.path("The scene to check; without it the cards are only compared with each other."),
        allow_missing_scene=arguments.flag("Take a scene that is not written yet for an empty one instead of failing."),
    )

    def execute(self, args: Mapping[str, plain.Json], workspace: Workspace) -> ports.ToolOutput:
        """
        Return the conflicts and the canon's facts, those of the scene's own cast first.
        """
        given = arguments.complete(self.name, self.args_schema, args)
        entities = canon.read_all(workspace, given["canon_paths"])
        cast = Cast(entities)
        scene = _scene(workspace, given.get("scene_path"), given["allow_missing_scene"])
        conflicts = findings.ranked([*_between_cards(entities, cast), *_in_scene(scene, cast)])
        facts = _facts_by_relevance(entities, cast, scene)
        payload = {
            "scene_path": given.get("scene_path"),
            "scene_found": scene is not None,
            "pass": not findings.has_error(conflicts),
            "conflict_count": len(conflicts),
            "conflicts": conflicts,
            "facts": [_shown(fact) for fact in facts],
            "unknown_names": _unknown_names(scene, cast),
            "report": bounds.report(_report(conflicts, facts)),
        }
        summary = (
            f"{findings.counted(len(conflicts), 'conflict')} found, {findings.counted(len(facts), 'canon fact')} "
            f"from {findings.counted(len(entities), 'card')}"
        )
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


def _scene(workspace: Workspace, path: str | None, may_be_missing: bool) -> Scene | None:
    if path is None or (may_be_missing and not workspace.exists(path)):
        return None
    return scenes.read(workspace, path)


def _between_cards(entities: Sequence[Entity], cast: Cast) -> Iterator[Finding]:
    """
    Yield what two cards, or front matter and prose of one, say differently of the same thing.
    """
    stated: dict[tuple[str, str], list[Fact]] = {}
    for entity in entities:
        for fact in (*entity.facts, *_told_on_card(entity, cast)):
            if fact.attribute in disagreements.COMPARED:
                stated.setdefault((fact.subject, fact.attribute), []).append(fact)
    for (subject, attribute), facts in stated.items():
        first = facts[0]
        other = next((f for f in facts[1:] if disagreements.contradict(attribute, first.value, f.value, cast)), None)
        if other:
            message = f"Canon disagrees on {_words(attribute)} of {subject}: {first.value} and {other.value}."
            yield _conflict(attribute, "error", message, first, other, scene_value=None)


def _told_on_card(entity: Entity, cast: Cast) -> list[Fact]:
    if entity.document is None:
        return []
    told = claims.of_document(entity.document, cast, pov=entity.name)
    return [
        Fact(subject=c.subject, attribute=c.attribute, value=c.value, path=c.path, line=c.line, quote=c.quote)
        for c in told
        if not c.is_spoken and not (c.attribute == "status" and c.is_shown)
    ]


def _in_scene(scene: Scene | None, cast: Cast) -> Iterator[Finding]:
    if scene is None:
        return
    reported: set[tuple[str, str, str]] = set()
    for claim in claims.of_document(scene.document, cast, pov=scene.pov):
        entity = next(entity for entity in cast.entities if entity.name == claim.subject)
        fact = _contradicted(entity, claim, scene, cast)
        if fact and (claim.subject, claim.attribute, claim.value) not in reported:
            reported.add((claim.subject, claim.attribute, claim.value))
            severity: findings.Severity = "warning" if claim.is_spoken else "error"
            yield _conflict(claim.attribute, severity, _message(claim, fact), fact, claim, scene_value=claim.value)
    yield from _misspelt(scene, cast)


def _contradicted(entity: Entity, claim: Claim, scene: Scene, cast: Cast) -> Fact | None:
    """
    Return the fact that a claim breaks.
    """
    if scene.is_flashback and claim.attribute in {"age", "status"}:
        return None
    if claim.attribute == "status" and claim.value == "alive":
        return _death_before(entity, scene)
    same = (fact for fact in entity.facts if fact.attribute == claim.attribute)
    return next((f for f in same if disagreements.contradict(claim.attribute, f.value, claim.value, cast)), None)


def _death_before(entity: Entity, scene: Scene) -> Fact | None:
    """
    Return the fact that someone is dead by the time of a scene.
    """
    died, status = entity.first("died"), entity.first("status")
    if died is None:
        return status if status and disagreements.says_dead(status.value) else None
    number = disagreements.scene_named(died.value)
    if number is not None:
        return died if scene.number is not None and scene.number > number else None
    dates_of_death = dates.find(died.value, bare_years=True)
    if dates_of_death and scene.date is not None:
        return died if dates_of_death[0].is_before(scene.date) else None
    return died


def _misspelt(scene: Scene, cast: Cast) -> Iterator[Finding]:
    known = [alias for entity in cast.entities for alias in entity.aliases]
    for slip in names.slips(names.sightings([scene.document]), known):
        seen = slip.sighting
        yield findings.finding(
            "name_spelling",
            "warning",
            f"{slip.name} is probably a slip for {slip.intended}.",
            path=seen.path,
            line=seen.line,
            quote=seen.quote,
            subject=slip.intended,
            attribute="name",
            canon_value=slip.intended,
            scene_value=slip.name,
            canon=None,
        )


def _conflict(
    attribute: str,
    severity: findings.Severity,
    message: str,
    fact: Fact,
    other: Fact | Claim,
    *,
    scene_value: str | None,
) -> Finding:
    return findings.finding(
        "canon" if scene_value is None else attribute,
        severity,
        message,
        path=other.path,
        line=other.line,
        quote=other.quote,
        subject=fact.subject,
        attribute=attribute,
        canon_value=fact.value,
        scene_value=scene_value,
        canon=findings.place(fact.path, fact.line, fact.quote),
    )


def _message(claim: Claim, fact: Fact) -> str:
    if claim.attribute == "status" and claim.is_shown:
        return f"{claim.subject} speaks, but canon says: {fact.quote.strip('- ')}."
    return f"{claim.subject}: {_words(claim.attribute)} is {claim.value} here, {fact.value} in canon."


def _facts_by_relevance(entities: Sequence[Entity], cast: Cast, scene: Scene | None) -> list[Fact]:
    text = "\n".join(scene.document.lines) if scene else ""
    present = {mention.entity.name for mention in cast.mentions(text)}
    ordered = sorted(entities, key=lambda entity: entity.name not in present)
    return [fact for entity in ordered for fact in entity.facts]


def _unknown_names(scene: Scene | None, cast: Cast) -> list[str]:
    if scene is None:
        return []
    seen = dict.fromkeys(sighting.name for sighting in names.certain(names.sightings([scene.document])))
    return [name for name in seen if not cast.mentions(name)]


def _shown(fact: Fact) -> dict[str, plain.Json]:
    return {"subject": fact.subject, "attribute": fact.attribute, "value": fact.value} | findings.place(
        fact.path, fact.line, fact.quote
    )


def _report(conflicts: Sequence[Finding], facts: Sequence[Fact]) -> Iterator[str]:
    yield "Conflicts with canon:"
    yield from findings.lines(conflicts, "none found")
    yield "Canon:"
    by_subject: dict[str, list[str]] = {}
    for fact in facts:
        by_subject.setdefault(fact.subject, []).append(f"{_words(fact.attribute)} {fact.value}")
    yield from (f"- {subject}: {'; '.join(told)}" for subject, told in by_subject.items())


def _words(attribute: str) -> str:
    return attribute.replace("_", " ")
