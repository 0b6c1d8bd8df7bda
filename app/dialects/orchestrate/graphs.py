"""Graphs: the steps of a workflow, and where the flow goes from each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from app.dialects.orchestrate import fields, steps
from app.domain import plain

_Step: TypeAlias = Mapping[str, plain.Json]
_Ids: TypeAlias = Mapping[str, str]


def graph(document: _Step) -> dict[str, plain.Json]:
    """Return `{nodes: [{id, label, kind}], edges: [{source, target, label}]}`; steps of a loop have its id before
    theirs.
    """
    nodes: list[plain.Json] = []
    edges = list(_edges(document["steps"], "", {}, nodes))
    if any(edge["target"] == fields.END for edge in edges):
        nodes.append({"id": fields.END, "label": fields.END, "kind": "exit"})
    return {"nodes": nodes, "edges": edges}


def _edges(
    listed: Sequence[_Step], prefix: str, around: _Ids, nodes: list[plain.Json]
) -> Iterator[dict[str, plain.Json]]:
    ids = {step["name"]: f"{prefix}{step['name']}" for step in listed}
    seen = {**around, **ids, fields.END: fields.END}
    for step, following in itertools.zip_longest(listed, listed[1:]):
        here = ids[step["name"]]
        nodes.append({"id": here, "label": step["name"], "kind": steps.form(step)})
        for event, branch in step.get("on", {}).items():
            yield {"source": here, "target": seen[branch["goto"]], "label": event}
        if following is not None and not _leaves(step):
            yield {"source": here, "target": ids[following["name"]], "label": ""}
        if "for_each" in step:
            inner = step["for_each"]["steps"]
            yield {"source": here, "target": f"{here}.{inner[0]['name']}", "label": "each"}
            yield from _edges(inner, f"{here}.", seen, nodes)


def _leaves(step: _Step) -> bool:
    """Tell whether the flow never goes on to the step behind."""
    branches = step.get("on", {})
    return "when" not in step and ("always" in branches or {"success", "failure"} <= branches.keys())
