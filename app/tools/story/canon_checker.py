"""The tool `canon_checker`: check a scene against the cards of the canon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from app import printable
from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.findings import Finding
from app.tools.story import canon, documents, folders, names, scenes
from app.tools.story.cast import Cast
from app.tools.story.scenes import Scene
from app.tools.workspace import Workspace

if TYPE_CHECKING:
    # Loading its expressions takes longer than listing all recipes, which needs only the name of this tool.
    from app.tools.story.continuity import comparison
    from app.tools.story.continuity.passages import Fact

_LISTS = ("conflicts", "facts", "unknown_names", "left_out")


class CanonChecker:
    """Compare what a scene states with what the canon cards say, and the cards with each other."""

    name = "canon_checker"
    description = (
        "Compare a scene with canon cards: eye and hair colour, hand, age, alive or dead, dates, places, owners, "
        "materials and the spelling of names."
    )
    args_schema: plain.Object = arguments.schema(
        required=["canon_paths"],
        canon_paths=arguments.paths("Canon cards, or folders of them."),
        scene_path=arguments.path("The scene to check; without it the cards are only compared with each other."),
        allow_missing_scene=arguments.flag("Take a scene that is not written yet for an empty one instead of failing."),
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the conflicts and the canon's facts, those of the scene's own cast first."""
        from app.tools.story.continuity import comparison

        params = arguments.complete(self.name, self.args_schema, args)
        left_out: list[str] = []
        cards = folders.read_all(workspace, params["canon_paths"], left_out)
        scene = _scene(workspace, params.get("scene_path"), params["allow_missing_scene"])
        result = comparison.compare([scene] if scene else [], cards)
        conflicts = findings.ranked([*(_conflict(entry) for entry in result.contradictions), *_misspelt(scene, result)])
        facts = _facts_by_relevance(cards, result, scene)
        payload = {
            "scene_path": params.get("scene_path"),
            "scene_found": scene is not None,
            "pass": not findings.has_error(conflicts),
            "conflict_count": len(conflicts),
            "conflicts": conflicts,
            **result.counts(),
            "facts": [_shown(fact) for fact in facts],
            "unknown_names": _unknown_names(scene, result),
            "left_out": left_out,
            "report": bounds.report([*folders.warning(left_out), *_report(conflicts, facts)]),
        }
        summary = result.summary(len(conflicts), folders.remark(left_out))
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


def _scene(workspace: Workspace, path: str | None, may_be_missing: bool) -> Scene | None:
    if path is None or (may_be_missing and not workspace.exists(path)):
        return None
    return scenes.read(workspace, path)


def _misspelt(scene: Scene | None, result: comparison.Comparison) -> Iterator[Finding]:
    from app.tools.story.continuity import spellings

    known = spellings.right_names(result.cards)
    for slip, _ in spellings.slips([scene.document] if scene else [], known):
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


def _conflict(entry: comparison.Contradiction) -> Finding:
    from app.tools.story.continuity import deaths

    one, other = entry.one, entry.other
    is_canon = other.passage.is_card
    is_sure = other.is_sure and not other.passage.is_spoken and not deaths.may_precede(one, other)
    severity: findings.Severity = "error" if is_sure else "warning"
    return findings.finding(
        "canon" if is_canon else other.attribute,
        severity,
        _message(one, other),
        path=other.passage.path,
        line=other.passage.line,
        quote=other.passage.quote,
        subject=other.subject,
        attribute=other.attribute,
        canon_value=one.value,
        scene_value=None if is_canon else other.value,
        canon=findings.place(one.passage.path, one.passage.line, one.passage.quote),
    )


def _message(one: Fact, other: Fact) -> str:
    attribute = _words(other.attribute)
    if other.passage.is_card:
        return printable.sentence(f"Canon disagrees on {attribute} of {other.subject}: {one.value} and {other.value}")
    if other.attribute == "status" and other.value == "alive":
        return printable.sentence(f"{other.subject} speaks or acts, but canon says: {one.passage.quote.strip('- ')}")
    stated = "in canon" if one.passage.is_card else f"in line {one.passage.line}"
    return f"{other.subject}: {attribute} is {other.value} here, {one.value} {stated}."


def _facts_by_relevance(
    cards: Sequence[documents.Document], result: comparison.Comparison, scene: Scene | None
) -> list[canon.Fact]:
    entities = [canon.of_document(card) for card in cards]
    read = [fact for entity in entities for fact in entity.facts]
    lines = {(fact.path, fact.line) for fact in read}
    stated = (
        fact for fact in result.facts if fact.passage.is_card and (fact.passage.path, fact.passage.line) not in lines
    )
    read += [
        canon.Fact(
            subject=fact.subject,
            attribute=fact.attribute,
            value=fact.value,
            path=fact.passage.path,
            line=fact.passage.line,
            quote=fact.passage.quote,
        )
        for fact in stated
    ]
    text = "\n".join(scene.document.lines) if scene else ""
    present = {mention.entity.name for mention in result.roster.cast.mentions(text)}
    return sorted(dict.fromkeys(read), key=lambda fact: fact.subject not in present)


def _unknown_names(scene: Scene | None, result: comparison.Comparison) -> list[str]:
    if scene is None:
        return []
    known = Cast(card.entity for card in result.cards)
    seen = dict.fromkeys(sighting.name for sighting in names.certain(names.sightings([scene.document])))
    return [name for name in seen if not known.mentions(name)]


def _shown(fact: canon.Fact) -> dict[str, plain.Json]:
    return {"subject": fact.subject, "attribute": fact.attribute, "value": fact.value} | findings.place(
        fact.path, fact.line, fact.quote
    )


def _report(conflicts: Sequence[Finding], facts: Sequence[canon.Fact]) -> Iterator[str]:
    yield "Conflicts with canon:"
    yield from findings.lines(conflicts, "none found")
    yield "Canon:"
    by_subject: dict[str, list[str]] = {}
    for fact in facts:
        by_subject.setdefault(fact.subject, []).append(f"{_words(fact.attribute)} {fact.value}")
    yield from (f"- {subject}: {'; '.join(stated)}" for subject, stated in by_subject.items())


def _words(attribute: str) -> str:
    return attribute.replace("_", " ")
