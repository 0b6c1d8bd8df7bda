"""Graphs as text: the nodes of a recipe in order, with their state and their outgoing edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import printable


def graph(found: Mapping[str, Any]) -> str:
    """Return a graph as an indented list; the edges that the run took have a double arrow."""
    if not found["nodes"]:
        return "no graph"
    depths: dict[str, int] = {}
    for node in found["nodes"]:
        depths[node["id"]] = depths.get(node["group"], -1) + 1
    leaving: dict[str, list[Mapping[str, Any]]] = {}
    for edge in found["edges"]:
        if edge["label"] and edge["kind"] != "data":
            leaving.setdefault(edge["source"], []).append(edge)
    lines = [
        line
        for node in found["nodes"]
        for line in (_node(node, depths[node["id"]]), *_ways(leaving.get(node["id"], ()), depths[node["id"]]))
    ]
    cut = found["truncated"]
    return "\n".join([*lines, *([f"… of {cut['nodes']} nodes"] if cut else [])])


def _node(node: Mapping[str, Any], depth: int) -> str:
    visits = f" x{node['visits']}" if node["visits"] > 1 else ""
    label = node["label"] if node["id"] in node["label"] else f"{node['id']}: {node['label']}"
    return printable.one_line(f"{node['status'] or '-':8} {'  ' * depth}{label} ({node['kind']}){visits}").rstrip()


def _ways(edges: Sequence[Mapping[str, Any]], depth: int) -> list[str]:
    # The column of the state stays empty.
    indent = " " * 9 + "  " * (depth + 2)
    return [
        indent + printable.one_line(f"{edge['label']} {'=>' if edge['taken'] else '->'} {edge['target']}")
        for edge in edges
    ]
