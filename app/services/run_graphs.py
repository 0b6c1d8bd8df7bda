"""Graphs of runs: the frozen recipe of a run, with the state of each node."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.domain import graphs, library, plain, views
from app.domain.records import Record
from app.services import graph_trace

if TYPE_CHECKING:
    # Commands that only list import this module; drivers and recipes need far more than they do.
    from app.engine import ports
    from app.services.recipe_versions import RecipeVersion

CACHED = 16  # Runs whose path through their graph is kept in memory.
PORTION = 500  # Steps that are traced before other requests get their turn.
SMALL = 200  # Nodes of a graph that is encoded on the loop; a larger one is encoded on a thread.


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAnswer:
    """A run's graph as bytes."""

    body: bytes  # JSON of a `graphs.Graph`.
    etag: str  # Entity tag: the quoted hash of the body.


@dataclass(slots=True, kw_only=True)
class _Traced:
    recipe_sha256: str
    drawing: graphs.Drawing
    trace: graph_trace.Trace
    newest: Record | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class RunGraphs:
    """Shows the graphs of runs; each answer processes only the steps since the last one."""

    def __init__(self, drivers: Mapping[str, ports.Driver]) -> None:
        self._drivers = drivers
        self._traced: OrderedDict[str, _Traced] = OrderedDict()

    async def answer(self, view: views.RunView) -> GraphAnswer:
        """Return the present graph of a run."""
        traced = await self._of(view)
        async with traced.turn:
            await _catch_up(traced, view)
            is_small = len(traced.drawing.nodes) <= SMALL
            body = _encoded(view, traced) if is_small else await asyncio.to_thread(_encoded, view, traced)
        return GraphAnswer(body=body, etag=plain.entity_tag(body))

    def forget(self, run_id: str) -> None:
        """Drop the cached graph of a run."""
        self._traced.pop(run_id, None)

    async def _of(self, view: views.RunView) -> _Traced:
        start = view.start
        traced = self._traced.get(start.run_id)
        if traced is None or traced.recipe_sha256 != start.recipe_sha256:
            drawing = await asyncio.to_thread(drawn, self._drivers.get(start.dialect), start.recipe, start.frozen)
            traced = _Traced(recipe_sha256=start.recipe_sha256, drawing=drawing, trace=graph_trace.Trace(drawing))
            self._traced[start.run_id] = traced
        self._traced.move_to_end(start.run_id)
        while len(self._traced) > CACHED:
            self._traced.popitem(last=False)
        return traced


def drawn(driver: object, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
    """Return the graph of a recipe, which is empty if its driver has none."""
    from app.engine import ports

    return driver.graph(document, frozen) if isinstance(driver, ports.GraphedDriver) else graphs.EMPTY


def of_recipe(
    recipe: library.Recipe | None, driver: ports.Driver, recipe_version: RecipeVersion | None
) -> graphs.Graph | None:
    """Return the graph of a recipe without a run; None if the recipe cannot be parsed.

    Args:
        recipe_version: Version that its runs would freeze; None for a recipe that cannot be started but has a flow.
    """
    if recipe is None:
        return None
    frozen = recipe_version.frozen()["frozen"] if recipe_version is not None else {}
    drawing = drawn(driver, recipe.document, frozen)
    return _graph(recipe.recipe_id, recipe.dialect, drawing, *graph_trace.untraced(drawing))


async def _catch_up(traced: _Traced, view: views.RunView) -> None:
    living = view.living()
    count = traced.trace.added
    # Records are only appended, unless a resume has declared some of them dead.
    if count and (len(living) < count or living[count - 1] is not traced.newest):
        traced.trace = graph_trace.Trace(traced.drawing)
    for position in range(traced.trace.added, len(living)):
        traced.trace.add(living[position])
        traced.newest = living[position]
        if position % PORTION == PORTION - 1:
            await asyncio.sleep(0)


def _encoded(view: views.RunView, traced: _Traced) -> bytes:
    parts = traced.trace.shown(view)
    return plain.encode(_graph(view.start.recipe_id, view.start.dialect, traced.drawing, *parts).to_json())


def _graph(
    recipe_id: str,
    dialect: str,
    drawing: graphs.Drawing,
    nodes: list[graphs.NodeShown],
    edges: list[graphs.EdgeShown],
) -> graphs.Graph:
    is_cut = len(nodes) < len(drawing.nodes) or len(edges) < len(drawing.edges)
    truncated = graphs.Truncated(nodes=len(drawing.nodes), edges=len(drawing.edges)) if is_cut else None
    return graphs.Graph(recipe_id=recipe_id, dialect=dialect, nodes=nodes, edges=edges, truncated=truncated)
