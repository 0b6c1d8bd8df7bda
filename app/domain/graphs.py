"""Graphs: the flow of a recipe as nodes and edges, and the place of each step of a run in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain import shapes
from app.domain.records import Record
from app.domain.states import StepState

MOST_NODES = 2000
"""Most nodes of an answer; a larger graph is cut there, and the answer reports it."""

MOST_EDGES = 4 * MOST_NODES  # Most edges of an answer.

NodeKind: TypeAlias = Literal[
    "step", "agent", "tool", "command", "gate", "recipe", "branch", "loop", "start", "end", "check"
]
"""Kind of a node; `branch` and `loop` contain other nodes."""

EdgeKind: TypeAlias = Literal["next", "outcome", "loop", "branch", "error", "data"]
"""Why the flow takes an edge; `data` edges show which slot a step reads, and are not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(shapes.Shape):
    """A place in a recipe."""

    id: str  # Id, unique within the graph.
    label: str  # Name for people.
    kind: NodeKind  # Kind of the node.
    phase: str | None = None  # Phase or stage of the recipe that contains it.
    group: str | None = None
    """Node that contains it: a loop, parallel branches, a step of several parts, or a recipe begun by a restart."""
    actor: str | None = shapes.internal(default=None)  # Agent, role, tool or program that acts there.


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge(shapes.Shape):
    """A path from one node to another."""

    source: str  # Node where it begins.
    target: str  # Node where it ends.
    label: str | None = None  # Outcome, condition, loop or slot that it shows.
    kind: EdgeKind = "next"  # Why the flow takes it.
    outcomes: tuple[str, ...] | None = shapes.internal(default=None)
    """Outcomes of the source after which the flow takes this edge; None: always, once both ends are reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One passage of the flow through a node."""

    node: str  # The node.
    visit: str
    """Distinguishes it from other passages: the key of its step, or of its iteration; empty: it is not counted."""
    done_means: StepState | None = StepState.DONE
    """State of the node once its step is done; None: the step only prepares another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The place of a step in a graph."""

    path: tuple[Passage, ...]  # Its node, after those that contain it, the outermost first.
    through: Passage | None = None
    """Node without a step of its own, through which the flow came on its way there."""
    aside: bool = False
    """Whether the result of the step does not concern its node, e.g. the move of a file after an iteration."""


Locate: TypeAlias = Callable[[str, Record | None], Location | None]
"""Returns the place of a step by its key. Call it for the steps of a run in order, each with its record, or without one
while the step is being performed.
"""


def _no_outcome(_: Record) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The graph of a recipe, with the function that locates the steps of its runs."""

    nodes: Sequence[Node]  # The nodes, in the order of the recipe.
    edges: Sequence[Edge]  # The edges.
    locator: Callable[[], Locate]  # Makes the function that locates one run's steps.
    outcome_of: Callable[[Record], str | None] = _no_outcome
    """Returns the outcome with which a record leaves its node; None if it cannot be known."""


EMPTY = Drawing(nodes=(), edges=(), locator=lambda: lambda key, record: None)
"""The graph of a recipe in an unknown language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShown(Node):
    """A node with its state in a run."""

    status: StepState | None = None  # State of its latest passage; None if the flow has not reached it.
    visits: int = 0  # How often the flow passed it; for a loop, its iterations.
    key: str | None = None  # Its latest step.


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeShown(Edge):
    """An edge with its state in a run."""

    taken: bool = False  # Whether the flow took this edge.


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(shapes.Shape):
    """Size of a graph that is too large for one answer."""

    nodes: int  # Number of its nodes.
    edges: int  # Number of its edges.


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(shapes.Shape):
    """The graph of a recipe; for a run, with the state of each node."""

    recipe_id: str  # Id of the recipe.
    dialect: str  # Language of the recipe.
    nodes: Sequence[NodeShown]  # The nodes, in the order of the recipe.
    edges: Sequence[EdgeShown]  # The edges between them.
    truncated: Truncated | None
    """Size of the whole graph if it has more nodes or edges than an answer can have; None if the answer has all."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a key, between two dots."""

    name: str  # Name of the step.
    visit: str  # The key up to here with the number of the visit, without positions in loops.
    position: str | None  # The key up to here with the positions in loops; None if the part has none.


_SEGMENT = re.compile(r"([^.#:\[\]]*)(#[0-9]+)?((?:\[[0-9]+\])*)")


def segments(key: str) -> Iterator[Segment]:
    """Split a key such as `Each#2[0].Ask#3` into its parts."""
    before = ""
    for part in key.split("."):
        matched = _SEGMENT.match(part)
        assert matched is not None
        name, number, positions = matched[1], matched[2] or "", matched[3]
        visit = f"{before}{name}{number}"
        yield Segment(name, visit, f"{visit}{positions}" if positions else None)
        before = f"{visit}{positions}."


def static(places: Mapping[str, Location]) -> Callable[[], Locate]:
    """Return the locator of a graph in which each step has one key."""
    return lambda: lambda key, record: places.get(key)


def place(node: str, visit: str | None = None, *, group: str | None = None) -> Location:
    """Return the place of a step that is a node's own, or that of a node in a group that is passed once."""
    passage = Passage(node=node, visit=visit or node)
    return Location(path=(passage,) if group is None else (Passage(node=group, visit=group), passage))
