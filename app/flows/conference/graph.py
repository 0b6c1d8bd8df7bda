"""The graph of a conference: the chief's tool calls, the round of opinions, and the transcript."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from app.domain import graphs, plain
from app.domain.records import Record
from app.flows.conference import driver, gathering

ROUND = "round"  # Node that groups the opinions, which are requested at the same time.


def draw(document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
    """Return the chief and its tools if it has any, each participant, and the transcript."""
    participants = _participants(document, frozen)
    opinions = [
        graphs.Node(id=driver.opinion_key(name), label=name, kind="agent", group=ROUND) for name in participants
    ]
    nodes = [
        graphs.Node(id=ROUND, label="opinions", kind="branch"),
        *opinions,
        graphs.Node(id=driver.TRANSCRIPT, label="transcript", kind="step"),
    ]
    edges = [graphs.Edge(source=ROUND, target=node.id, kind="branch") for node in opinions]
    edges.append(graphs.Edge(source=ROUND, target=driver.TRANSCRIPT))
    if frozen.get("tools", True):
        gatherers = [
            graphs.Node(id=gathering.CHIEF, label="chief", kind="agent"),
            graphs.Node(id=gathering.TOOL, label="tool", kind="tool"),
        ]
        nodes = [*gatherers, *nodes]
        edges = [
            graphs.Edge(source=gathering.CHIEF, target=gathering.TOOL, label="call", kind="outcome"),
            graphs.Edge(source=gathering.TOOL, target=gathering.CHIEF, kind="loop"),
            graphs.Edge(source=gathering.CHIEF, target=ROUND, label="done", kind="outcome"),
            *edges,
        ]
    known = frozenset(node.id for node in nodes)
    return graphs.Drawing(nodes=nodes, edges=edges, locator=lambda: functools.partial(_locate, known))


def _participants(document: plain.Object, frozen: plain.Object) -> Sequence[str]:
    frozen_agents = frozen.get("participants")
    named: Sequence[str] = document.get("agents", ())
    return named if frozen_agents is None else [agent["id"] for agent in frozen_agents]


def _locate(known: frozenset[str], key: str, _: Record | None) -> graphs.Location | None:
    opinion = key if key in known else key.removesuffix(".evidence")
    if opinion.startswith(driver.opinion_key("")) and opinion in known:
        return graphs.place(opinion, group=ROUND)
    name = key.partition("#")[0]
    return graphs.place(name, key) if name in known else None
