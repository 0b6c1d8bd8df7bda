"""Graphs: a recipe drawn as steps, approvals and what follows what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from app.dialects.amplifier import schema, walk
from app.domain import plain

_Edge: TypeAlias = dict[str, plain.Json]


def graph(document: plain.Object) -> dict[str, plain.Json]:
    """Return `{nodes: [{id, label, kind}], edges: [{source, target, label}]}`."""
    nodes: list[_Edge] = []
    edges: list[_Edge] = []
    before: str | None = None
    for node, label, inner in _flow(document):
        nodes += [node, *(one for one, _ in inner)]
        if before is not None:
            edges.append({"source": before, "target": node["id"], "label": label})
        edges += [edge for _, edge in inner]
        before = node["id"]
    return {"nodes": nodes, "edges": edges}


def _flow(document: plain.Object) -> Iterator[tuple[_Edge, str, list[tuple[_Edge, _Edge]]]]:
    for place, stage in walk.stages(document):
        approval = stage.get("approval", {}) if place else {}
        requested = approval if approval.get("required") else None
        question = {"id": f"approval:{stage.get('name')}", "label": stage.get("name", ""), "kind": "gate"}
        if requested and schema.when(requested) == schema.BEFORE:
            yield question, "", []
        for step in stage["steps"]:
            yield _node(step), _why(step), list(_inside(step))
        if requested and schema.when(requested) != schema.BEFORE:
            yield question, "", []


def _inside(step: plain.Object) -> Iterator[tuple[_Edge, _Edge]]:
    for _, _, substep in walk.body(step):
        label = _why(substep) or ("parallel" if step.get("parallel") and "foreach" not in step else "")
        yield _node(substep), {"source": step["id"], "target": substep["id"], "label": label}
        yield from _inside(substep)


def _node(step: plain.Object) -> _Edge:
    kind = {"bash": "command", "recipe": "recipe"}.get(step.get("type", ""), "agent")
    return {"id": step["id"], "label": step["id"], "kind": kind if schema.body_of(step) is None else "group"}


def _why(step: plain.Object) -> str:
    condition, looped, repeated = step.get("condition"), step.get("foreach"), step.get("while_condition")
    reported = [f"if {condition}" if condition else "", f"for each {looped}" if looped else ""]
    return ", ".join(text for text in (*reported, f"while {repeated}" if repeated else "") if text)
