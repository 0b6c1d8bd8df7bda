"""Tracing: follows the path of a run through the graph of its recipe, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain import graphs, views
from app.domain.records import Record
from app.domain.states import RunState, StepState

MOST_LABEL = 200  # Characters of a label; a longer one is cut off.
MOST_FAILED = 1000  # Failed steps of an ending that are located in the graph.

_Path: TypeAlias = tuple[graphs.Passage, ...]
_Way: TypeAlias = tuple[str, str, str | None]
"""Source, target, and the outcome by which the run left the source; None if unknown."""


@dataclass(slots=True)
class _Reached:
    visits: set[str] = field(default_factory=set)
    status: StepState | None = None
    key: str | None = None
    own: int = -1  # Number of the last step of the node itself.
    inside: int = -1  # Number of the last step inside the node.

    def enter(self, passage: graphs.Passage, number: int) -> None:
        self.inside = number
        if passage.visit:
            self.visits.add(passage.visit)


class Trace:
    """The path of one run so far; steps are added as they are recorded."""

    def __init__(self, drawing: graphs.Drawing) -> None:
        self._drawing = drawing
        self._locate = drawing.locator()
        self._reached: dict[str, _Reached] = {}
        self._ways: set[_Way] = set()
        self._path: _Path = ()
        self._outcome: str | None = None
        kinds = {node.id: node.kind for node in drawing.nodes}
        self._closing = [edge for edge in drawing.edges if kinds[edge.target] == "end"]
        self.added = 0
        """Records added so far."""

    def add(self, record: Record) -> None:
        """Add the next valid record."""
        self.added += 1
        location = self._locate(record.key, record)
        if location is None:
            return
        self._ways.update(_ways(self._path, self._outcome, location))
        for passage in (*([location.through] if location.through else []), *location.path):
            self._at(passage.node).enter(passage, self.added)
        if not location.aside:
            self._set_status(location.path[-1], record)
        elif (reached := self._at(location.path[-1].node)).status is not None:
            # Optional parts do not change the state of a step that has a result.
            reached.own = self.added
        self._path, self._outcome = location.path, self._drawing.outcome_of(record)

    def shown(self, view: views.RunView) -> tuple[list[graphs.NodeShown], list[graphs.EdgeShown]]:
        """Return the nodes and edges that an answer shows, with their state in a run."""
        located = ((step.key, self._locate(step.key, None)) for step in view.open)
        now = _Now(view.status, self._path, [(key, location) for key, location in located if location])
        end = self._end(view)
        ways = self._ways.union(*(_ways(self._path, self._outcome, location) for _, location in now.opened))
        if end is not None:
            ways.add((end.source, end.target, self._outcome))
        failed = self._failed(view)
        nodes = [self._node(node, now, end, failed.get(node.id)) for node in self._drawing.nodes[: graphs.MOST_NODES]]
        taken = _Taken({node.id for node in nodes if node.status is not None}, ways)
        return nodes, [_edge(edge, taken) for edge in edges_shown(self._drawing)]

    def _set_status(self, leaf: graphs.Passage, record: Record) -> None:
        reached = self._at(leaf.node)
        reached.own, reached.key = self.added, record.key
        reached.status = leaf.done_means if record.done else record.status

    def _at(self, node: str) -> _Reached:
        return self._reached.setdefault(node, _Reached())

    def _end(self, view: views.RunView) -> graphs.Edge | None:
        """Return the edge by which a run reached its end, if its recipe names ends."""
        if view.status is not RunState.DONE:
            return None
        reason = (view.ending or {}).get("reason")
        here = [passage.node for passage in reversed(self._path)]
        fitting = [edge for edge in self._closing if edge.source in here and _fits(edge, {self._outcome})]
        # An exit is named by its reason; if the outcome was not kept, the reason identifies it.
        fitting.sort(key=lambda edge: (not edge.target.endswith(f":{reason}"), here.index(edge.source)))
        return fitting[0] if fitting else None

    def _failed(self, view: views.RunView) -> dict[str, str]:
        """Return the nodes of the steps that a run failed at or, if it is done, tolerated; each with the step's key."""
        reported: list[str] = []
        if view.status is RunState.FAILED and view.error and view.error.get("key"):
            reported = [str(view.error["key"])]
        elif view.status is RunState.DONE and isinstance(keys := (view.ending or {}).get("failed_steps"), list | tuple):
            reported = [str(key) for key in keys[:MOST_FAILED]]
        located = ((key, self._locate(key, None)) for key in reported)
        return {location.path[-1].node: key for key, location in located if location}

    def _node(self, node: graphs.Node, now: _Now, end: graphs.Edge | None, failed_key: str | None) -> graphs.NodeShown:
        status, visits, key = self._state(node, now, end)
        # A driver can reject a result after its step was recorded as done; a later iteration hides an earlier failure.
        if failed_key is not None and status is StepState.DONE:
            status, key = StepState.FAILED, failed_key
        return _shown(node, status, visits, key)

    def _state(self, node: graphs.Node, now: _Now, end: graphs.Edge | None) -> tuple[StepState | None, int, str | None]:
        reached, running = self._reached.get(node.id), now.running.get(node.id)
        if running is not None:
            return StepState.RUNNING, len(running.visits | (reached.visits if reached else set())), running.key
        if reached is not None:
            return _status(reached, now.holds(node.id), now.status), len(reached.visits), reached.key
        is_begun = bool(self._reached or now.opened)
        is_passed = (
            (end is not None and node.id == end.target)
            or (node.kind == "start" and is_begun)
            # A check of a slot is not a step; a run that is done has passed them all.
            or (node.kind == "check" and now.status is RunState.DONE)
        )
        return (StepState.DONE, 1, None) if is_passed else (None, 0, None)


class _Now:
    """The position of a run: its steps at work or, if it has none, its last step."""

    def __init__(self, status: RunState, path: _Path, opened: Sequence[tuple[str, graphs.Location]]) -> None:
        self.status = status
        self.opened = opened
        self.running: dict[str, _Reached] = {}
        for key, location in opened:
            for passage in location.path:
                reached = self.running.setdefault(passage.node, _Reached())
                reached.enter(passage, 0)
                reached.key = key
        self._last = frozenset(passage.node for passage in path)

    def holds(self, node: str) -> bool:
        """Return whether the run is in a node."""
        return node in (self.running if self.opened else self._last)


class _Taken:
    """The edges that a run has taken."""

    def __init__(self, reached: Container[str], ways: Iterable[_Way]) -> None:
        self._reached = reached
        self._outcomes: dict[tuple[str, str], set[str | None]] = {}
        for source, target, outcome in ways:
            self._outcomes.setdefault((source, target), set()).add(outcome)

    def __contains__(self, edge: object) -> bool:
        assert isinstance(edge, graphs.Edge)
        if edge.kind == "data":
            return False
        if edge.outcomes is None:
            return edge.source in self._reached and edge.target in self._reached
        found = self._outcomes.get((edge.source, edge.target))
        return found is not None and _fits(edge, found)


def untraced(drawing: graphs.Drawing) -> tuple[list[graphs.NodeShown], list[graphs.EdgeShown]]:
    """Return the nodes and edges that an answer shows for a recipe without a run."""
    nodes = [_shown(node) for node in drawing.nodes[: graphs.MOST_NODES]]
    return nodes, [_edge(edge, ()) for edge in edges_shown(drawing)]


def edges_shown(drawing: graphs.Drawing) -> Sequence[graphs.Edge]:
    """Return the edges that an answer shows: those between its nodes, up to a limit."""
    edges: Iterable[graphs.Edge] = drawing.edges
    if len(drawing.nodes) > graphs.MOST_NODES:
        known = {node.id for node in drawing.nodes[: graphs.MOST_NODES]}
        edges = (edge for edge in edges if edge.source in known and edge.target in known)
    return list(itertools.islice(edges, graphs.MOST_EDGES))


def _ways(before: _Path, outcome: str | None, location: graphs.Location) -> Iterator[_Way]:
    after = location.path
    common = 0
    # Nodes that both paths share were neither left nor entered.
    while common < min(len(before), len(after)) and _same(before[common], after[common]):
        common += 1
    left, entered = before[common:], after[common:]
    if not entered:
        return
    first = location.through or entered[0]
    for passage in left:
        yield passage.node, first.node, outcome if passage is before[-1] else None
    if location.through is not None:
        yield first.node, entered[0].node, None
    for one, other in itertools.pairwise(entered):
        yield one.node, other.node, None


def _same(one: graphs.Passage, other: graphs.Passage) -> bool:
    return (one.node, one.visit) == (other.node, other.visit)


def _fits(edge: graphs.Edge, outcomes: set[str | None]) -> bool:
    return None in outcomes or edge.outcomes is None or not outcomes.isdisjoint(edge.outcomes)


def _status(reached: _Reached, holds: bool, run: RunState) -> StepState | None:
    if reached.own == reached.inside:
        is_prepared = reached.status is None and holds and not run.finished and run is not RunState.PAUSED
        return StepState.RUNNING if is_prepared else reached.status
    # A node that contains others is running while the flow is in it, and shares the run's end.
    if not holds:
        return StepState.DONE
    if not run.finished:
        return StepState.RUNNING
    return StepState.DONE if run is RunState.DONE else StepState.FAILED


def _shown(
    node: graphs.Node, status: StepState | None = None, visits: int = 0, key: str | None = None
) -> graphs.NodeShown:
    return graphs.NodeShown(
        id=node.id,
        label=node.label[:MOST_LABEL],
        kind=node.kind,
        phase=node.phase,
        group=node.group,
        status=status,
        visits=visits,
        key=key,
    )


def _edge(edge: graphs.Edge, taken: Container[graphs.Edge]) -> graphs.EdgeShown:
    return graphs.EdgeShown(
        source=edge.source,
        target=edge.target,
        label=edge.label and edge.label[:MOST_LABEL],
        kind=edge.kind,
        taken=edge in taken,
    )
