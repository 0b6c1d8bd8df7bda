"""The graph of a recipe: its stages, steps and approvals, with conditions and loops on the edges that lead to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.dialects.amplifier import schema, walk
from app.domain import graphs, plain
from app.domain.records import Record

_APPROVAL = "approval:"
_KINDS: Mapping[str, graphs.NodeKind] = {"bash": "command", "recipe": "recipe"}


@dataclass(slots=True, kw_only=True)
class _Place:
    node: graphs.Node
    inside: dict[str, _Place] = field(default_factory=dict)


def draw(document: plain.Object) -> graphs.Drawing:
    """Return steps and approvals in order; nested nodes have their step as their group."""
    nodes: list[graphs.Node] = []
    edges: list[graphs.Edge] = []
    places: dict[str, _Place] = {}
    before: str | None = None
    for stage, step in _flow(document):
        if step is None:
            name = f"{_APPROVAL}{stage}"
            places[name] = _Place(node=graphs.Node(id=name, label=stage or "", kind="gate", phase=stage))
            nodes.append(places[name].node)
            way = None
        else:
            name, way = step["id"], _why(step)
            places[name] = _placed(step, stage, None, nodes, edges)
        if before is not None:
            edges.append(graphs.Edge(source=before, target=name, label=way or None))
        before = name
    return graphs.Drawing(nodes=nodes, edges=edges, locator=lambda: lambda key, record: _locate(places, key, record))


def _flow(document: plain.Object) -> Iterator[tuple[str | None, plain.Object | None]]:
    """Return the steps of all stages with their stage, and None for an approval."""
    for place, stage in walk.stages(document):
        name = stage["name"] if place else None
        approval = (stage.get("approval") or {}) if place else {}
        when = schema.when(approval) if approval.get("required") else None
        if when == schema.BEFORE:
            yield name, None
        for step in stage["steps"]:
            yield name, step
        if when == schema.AFTER:
            yield name, None


def _placed(
    step: plain.Object,
    stage: str | None,
    group: str | None,
    nodes: list[graphs.Node],
    edges: list[graphs.Edge],
) -> _Place:
    """Return the place of a step, and append its node, the nodes inside of it, and their edges."""
    step_id = step["id"]
    label = f"{step_id}: {step['recipe']}" if step.get("type") == "recipe" else step_id
    place = _Place(
        node=graphs.Node(id=step_id, label=label, kind=_kind(step), phase=stage, group=group, actor=step.get("agent"))
    )
    nodes.append(place.node)
    substeps = [substep for _, _, substep in walk.body(step)]
    for substep in substeps:
        place.inside[substep["id"]] = _placed(substep, stage, step_id, nodes, edges)
    edges += _parallel(step, substeps) if _is_parallel(step) else _sequence(step, substeps)
    return place


def _kind(step: plain.Object) -> graphs.NodeKind:
    if schema.body_of(step) is None:
        return _KINDS.get(step.get("type", ""), "agent")
    if "foreach" in step or "while_condition" in step:
        return "loop"
    return "branch" if _is_parallel(step) else "step"


def _is_parallel(step: plain.Object) -> bool:
    return "foreach" not in step and step.get("parallel") not in (None, False)


def _parallel(step: plain.Object, substeps: list[plain.Object]) -> Iterator[graphs.Edge]:
    for substep in substeps:
        label = _why(substep) or "parallel"
        yield graphs.Edge(source=step["id"], target=substep["id"], label=label, kind="branch")


def _sequence(step: plain.Object, substeps: list[plain.Object]) -> Iterator[graphs.Edge]:
    entry: graphs.EdgeKind = "loop" if _kind(step) == "loop" else "next"
    for one, other in itertools.pairwise([step, *substeps]):
        kind = entry if one is step else "next"
        yield graphs.Edge(source=one["id"], target=other["id"], label=_why(other) or None, kind=kind)


def _why(step: plain.Object) -> str:
    parts = [f"if {step['condition']}"] if "condition" in step else []
    loop: plain.Json = step
    while isinstance(loop, dict) and "foreach" in loop:
        parts.append(f"for each {loop['foreach']}")
        loop = loop.get("nested_foreach")
    return ", ".join([*parts, *([f"while {step['while_condition']}"] if "while_condition" in step else [])])


def _locate(places: Mapping[str, _Place], key: str, _: Record | None) -> graphs.Location | None:
    if key.startswith(_APPROVAL) and key in places:
        return graphs.place(key)
    path: list[graphs.Passage] = []
    for segment in graphs.segments(key):
        place = places.get(segment.name)
        if place is None:
            # The rest of the key is a delay before the step, or another way to ask its agent.
            if path and segment.name == "delay":
                path[-1] = graphs.Passage(node=path[-1].node, visit=path[-1].visit, done_means=None)
            break
        path.append(graphs.Passage(node=place.node.id, visit=segment.position or segment.visit))
        places = place.inside
    return graphs.Location(path=tuple(path)) if path else None
