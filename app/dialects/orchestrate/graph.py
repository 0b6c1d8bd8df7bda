"""The graph of a workflow: its steps, including those of loops, and the edges of the flow from each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.dialects.orchestrate import schema, steps
from app.domain import graphs, plain
from app.domain.records import Record
from app.domain.states import StepState

_SUCCESS, _FAILURE, _SKIPPED, _ALWAYS = "success", "failure", "skipped", "always"
_OUTCOMES: Mapping[StepState, str] = {
    StepState.DONE: _SUCCESS,
    StepState.FAILED: _FAILURE,
    StepState.SKIPPED: _SKIPPED,
}
_LEADING: Mapping[str, tuple[str, ...]] = {
    _SUCCESS: (_SUCCESS,),
    _FAILURE: (_FAILURE,),
    _ALWAYS: (_SUCCESS, _FAILURE),
}
"""Outcomes after which the flow follows a branch of `on`."""
_KINDS: Mapping[str | None, graphs.NodeKind] = {"provider": "agent", "command": "command", "for_each": "loop"}
_MOVED = "moved"

_Ids: TypeAlias = Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class _Place:
    node: str
    inside: dict[str, _Place] = field(default_factory=dict)


def draw(document: plain.Object) -> graphs.Drawing:
    """Return the steps; the id of a loop's step has that of the loop before it."""
    nodes: list[graphs.Node] = []
    places: dict[str, _Place] = {}
    edges = list(_edges(document["steps"], None, {}, nodes, places))
    if any(edge.target == schema.END for edge in edges):
        nodes.append(graphs.Node(id=schema.END, label=schema.END, kind="end"))
    return graphs.Drawing(
        nodes=nodes,
        edges=edges,
        locator=lambda: lambda key, record: _locate(places, key, record),
        outcome_of=lambda record: _OUTCOMES.get(record.status),
    )


def _edges(
    listed: Sequence[plain.Object],
    group: str | None,
    around: _Ids,
    nodes: list[graphs.Node],
    places: dict[str, _Place],
) -> Iterator[graphs.Edge]:
    prefix = "" if group is None else f"{group}."
    ids = {step["name"]: f"{prefix}{step['name']}" for step in listed}
    seen = {**around, **ids, schema.END: schema.END}
    for step, following in itertools.zip_longest(listed, listed[1:]):
        here = ids[step["name"]]
        kind = _KINDS.get(steps.form(step), "step")
        nodes.append(graphs.Node(id=here, label=step["name"], kind=kind, group=group, actor=step.get("provider")))
        places[step["name"]] = place = _Place(node=here)
        yield from _jumps(step, here, seen)
        if following is not None and (ways := _passing(step)):
            yield graphs.Edge(source=here, target=ids[following["name"]], outcomes=ways)
        if "for_each" in step:
            inner = step["for_each"]["steps"]
            yield graphs.Edge(source=here, target=f"{here}.{inner[0]['name']}", label="each", kind="loop")
            yield from _edges(inner, here, seen, nodes, place.inside)


def _jumps(step: plain.Object, here: str, seen: _Ids) -> Iterator[graphs.Edge]:
    branches = step.get("on", {})
    for event, branch in branches.items():
        # A branch for one outcome has precedence over the one for all outcomes.
        ways = tuple(way for way in _LEADING[event] if event != _ALWAYS or way not in branches)
        kind: graphs.EdgeKind = "error" if event == _FAILURE else "outcome"
        yield graphs.Edge(source=here, target=seen[branch["goto"]], label=event, kind=kind, outcomes=ways)


def _passing(step: plain.Object) -> tuple[str, ...]:
    """Return the outcomes after which the flow continues with the next step."""
    branches = step.get("on", {})
    left = {way for event in branches for way in _LEADING[event]}
    # Only a step with a condition can be skipped.
    possible = (_SUCCESS, _FAILURE, *((_SKIPPED,) if "when" in step else ()))
    return tuple(way for way in possible if way not in left)


def _locate(places: Mapping[str, _Place], key: str, _: Record | None) -> graphs.Location | None:
    path: list[graphs.Passage] = []
    parts = list(graphs.segments(key))
    for number, segment in enumerate(parts):
        place = places.get(segment.name)
        if place is None:
            break
        further = number + 1 < len(parts)
        if further and segment.position is None:
            return _beside(path, place, segment, parts[number + 1])
        path.append(graphs.Passage(node=place.node, visit=segment.position or segment.visit))
        places = place.inside
    return graphs.Location(path=tuple(path)) if path else None


def _beside(
    path: list[graphs.Passage], place: _Place, segment: graphs.Segment, behind: graphs.Segment
) -> graphs.Location:
    """Return the position of a lookup before a step, or of a move after an iteration of a loop."""
    # A loop is passed once per item, even if it has a lookup before it.
    visit, position = ("" if place.inside else segment.visit), behind.position
    is_move = behind.name == _MOVED and position is not None and bool(place.inside)
    if is_move and position is not None:
        visit = f"{segment.visit}{position.removeprefix(behind.visit)}"
    passage = graphs.Passage(node=place.node, visit=visit, done_means=None)
    return graphs.Location(path=(*path, passage), aside=is_move)
