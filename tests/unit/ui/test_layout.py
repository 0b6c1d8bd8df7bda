"""The layout of graphs in the pages (docs/decisions/0281), without a browser."""

from __future__ import annotations

import itertools
import random
from typing import Any

from tests.unit.ui import node

WIDTH, HEIGHT = 176, 40


def laid_out(*graphs: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """Return the layouts of graphs, given as node names and edges of two names; each name is one letter."""
    cases = [
        {"ids": list(ids), "edges": [{"source": edge[0], "target": edge[1], "width": 30} for edge in edges]}
        for ids, edges in graphs
    ]
    return node.run("layouts.mjs", "layout.js", cases)


def test_a_chain_is_a_straight_column() -> None:
    """The steps of a chain are one below the other, in the order of the recipe."""
    (found,) = laid_out(("abcd", ["ab", "bc", "cd"]))
    places = [found["nodes"][name] for name in "abcd"]

    assert {round(place["x"]) for place in places} == {round(places[0]["x"])}
    assert [place["y"] for place in places] == sorted({place["y"] for place in places})


def test_a_loop_leads_down_and_back() -> None:
    """Two steps in a loop are in two layers with separate edges; a step that leads to itself has an edge too."""
    (found,) = laid_out(("abc", ["ab", "bc", "cb", "bb"]))
    forth, back, own = (found["edges"][index]["points"] for index in (1, 2, 3))

    assert found["nodes"]["a"]["y"] < found["nodes"]["b"]["y"] < found["nodes"]["c"]["y"]
    assert (forth[0], forth[-1]) == (back[-1], back[0])
    assert forth[1] != back[1]
    assert own[0]["x"] == found["nodes"]["b"]["x"] + WIDTH


def test_a_long_way_beside_a_chain_crosses_nothing() -> None:
    """A way from the first step of a chain to a handler at its end stays on the side of the handler."""
    (found,) = laid_out(("abcdegh", ["ag", "ab", "bc", "cd", "de", "eh", "eg"]))
    beside = found["edges"][0]["points"][-2]["x"] - found["nodes"]["e"]["x"] - WIDTH / 2

    assert (beside < 0) == (found["nodes"]["g"]["x"] < found["nodes"]["h"]["x"])


def test_no_nodes_overlap_and_every_edge_joins_its_nodes() -> None:
    """In any graph the nodes do not overlap and are inside the drawing, and edges begin and end at their nodes."""
    dice = random.Random(7)
    graphs = []
    for count in range(1, 15):
        ids = "abcdefghijklmnop"[:count]
        graphs.append((ids, [dice.choice(ids) + dice.choice(ids) for _ in range(dice.randrange(2 * count))]))
    graphs.append(("", []))
    for (ids, edges), found in zip(graphs, laid_out(*graphs), strict=True):
        nodes = found["nodes"]

        assert sorted(nodes) == sorted(ids)
        for one, other in itertools.combinations(nodes.values(), 2):
            apart = abs(one["x"] - other["x"]) >= WIDTH or abs(one["y"] - other["y"]) >= HEIGHT
            assert apart, (ids, edges)
        for place in nodes.values():
            assert 0 <= place["x"] <= found["width"] - WIDTH
            assert 0 <= place["y"] <= found["height"] - HEIGHT
        for edge, way in zip(edges, found["edges"], strict=True):
            for name, end in ((edge[0], way["points"][0]), (edge[1], way["points"][-1])):
                assert nodes[name]["x"] <= end["x"] <= nodes[name]["x"] + WIDTH + 1
                assert nodes[name]["y"] <= end["y"] <= nodes[name]["y"] + HEIGHT


def folded(*graphs: tuple[str, list[str]]) -> list[tuple[list[str], list[str]]]:
    """Return labels and edges of folded graphs; each node is given as its name and the letter of its state."""
    cases = [
        {
            "nodes": [{"id": node[0], "label": node[0], "status": node[1:]} for node in nodes.split()],
            "edges": [{"source": edge[0], "target": edge[1]} for edge in edges],
        }
        for nodes, edges in graphs
    ]
    return [
        ([each["label"] for each in found["nodes"]], [edge["source"] + edge["target"] for edge in found["edges"]])
        for found in node.run("folds.mjs", "layout.js", cases)
    ]


def test_a_chain_is_folded_between_its_ends_and_changes() -> None:
    """Steps of a chain whose neighbours are in the same state are one node; those at a change stay."""
    chain = ["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"]
    one, running = folded(("ad bd cd dd ed fd gd hd id", chain), ("ad bd cd dd er fp gp hp ip", chain))

    assert one == (["a", "7 steps: b … h", "i"], ["ab", "bi"])
    assert running == (
        ["a", "2 steps: b … c", "d", "e", "f", "2 steps: g … h", "i"],
        ["ab", "bd", "de", "ef", "fg", "gi"],
    )


def test_branches_and_loops_are_not_folded() -> None:
    """A step with another way in or out keeps its own node, and so does a step that leads to itself."""
    branches = ("ad bd cd dd ed", ["ab", "ac", "bd", "cd", "de"])
    loop = ("ad bd cd dd ed", ["ab", "bc", "cd", "de", "db"])
    own = ("ad bd cd", ["ab", "bb", "bc"])

    assert folded(branches, loop, own) == [
        (["a", "b", "c", "d", "e"], branches[1]),
        (["a", "b", "c", "d", "e"], loop[1]),
        (["a", "b", "c"], own[1]),
    ]
