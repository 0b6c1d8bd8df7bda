"""The graph of a state machine: its steps, exits and restarts, with an edge for each outcome."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from app.dialects.agent_recipes import outcomes, schema
from app.domain import graphs, plain
from app.domain.records import Record

START = "(start)"  # Id of the node before the initial step; no step can have it.
_EXIT, _RESTART = "exit:", "restart:"
_KEY = re.compile(r"(?:restart([0-9]+)/)?(([^#./]+)(?:#[0-9]+)?)(?:\.reminder)?")


def draw(document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
    """Return the steps of a recipe, and those of the recipes that restarts begin."""
    recipes: dict[str, plain.Object] = {**frozen.get("recipes", {}), document["id"]: document}
    ordered = [document, *(recipe for recipe in recipes.values() if recipe is not document)]
    nodes = {START: graphs.Node(id=START, label="start", kind="start")}
    edges = [graphs.Edge(source=START, target=document["initialStep"])]
    for recipe in ordered:
        nodes |= {node.id: node for node in _steps(recipe, document)}
    for recipe in ordered:
        prefix = _prefix(recipe, document)
        for name, step in recipe["steps"].items():
            for outcome, node in following(recipe, step, prefix):
                nodes.setdefault(node.id, node)
                way = (outcome,)
                source = f"{prefix}{name}"
                edges.append(graphs.Edge(source=source, target=node.id, label=outcome, kind="outcome", outcomes=way))
    edges += _entries(recipes, document, nodes)
    return graphs.Drawing(
        nodes=list(nodes.values()),
        edges=edges,
        locator=lambda: _Locator(document, recipes).locate,
        outcome_of=lambda record: _outcome(recipes, record),
    )


def following(recipe: plain.Object, step: plain.Object, prefix: str = "") -> Iterator[tuple[str, graphs.Node]]:
    """Return the successor for each outcome of a step: another step, an exit or a restart."""
    exit_on_other = recipe["guardrails"]["exitOnOther"]
    for outcome in step["outcomes"]:
        transition = step["onOutcome"][outcome]
        if transition.get("action") == schema.EXIT or (outcome == schema.OTHER and exit_on_other):
            reason = transition["reason"]
            yield outcome, graphs.Node(id=f"{_EXIT}{reason}", label=reason, kind="end")
        elif "nextStep" in transition:
            name = transition["nextStep"]
            yield outcome, graphs.Node(id=f"{prefix}{name}", label=name, kind="agent")
        else:
            target = transition["recipeId"]
            yield outcome, graphs.Node(id=f"{_RESTART}{target}", label=target, kind="recipe")


def _prefix(recipe: plain.Object, document: plain.Object) -> str:
    return "" if recipe is document else f"{recipe['id']}/"


def _steps(recipe: plain.Object, document: plain.Object) -> Iterator[graphs.Node]:
    prefix, group = _prefix(recipe, document), None
    if recipe is not document:
        group = f"{_RESTART}{recipe['id']}"
        yield graphs.Node(id=group, label=recipe["id"], kind="recipe")
    for name in recipe["steps"]:
        yield graphs.Node(id=f"{prefix}{name}", label=name, kind="agent", group=group)


def _entries(
    recipes: Mapping[str, plain.Object], document: plain.Object, nodes: Mapping[str, graphs.Node]
) -> Iterator[graphs.Edge]:
    for recipe_id, recipe in recipes.items():
        if f"{_RESTART}{recipe_id}" in nodes:
            first = f"{_prefix(recipe, document)}{recipe['initialStep']}"
            yield graphs.Edge(source=f"{_RESTART}{recipe_id}", target=first, kind="loop")


class _Locator:
    """Find the places of a run's steps; earlier outcomes identify the recipe of a restart, which keys do not name."""

    def __init__(self, document: plain.Object, recipes: Mapping[str, plain.Object]) -> None:
        self._document = document
        self._recipes = recipes
        self._recipe = document
        self._restarts = 0
        self._last: Record | None = None

    def locate(self, key: str, record: Record | None) -> graphs.Location | None:
        matched = _KEY.fullmatch(key)
        if matched is None:
            return None
        restarts, name = int(matched[1] or 0), matched[3]
        recipe = self._recipe if restarts == self._restarts else self._begun(name)
        if name not in recipe["steps"]:
            return None
        location = self._placed(recipe, key.removesuffix(outcomes.REMINDER), name, restarts)
        if record is not None:
            self._recipe, self._restarts, self._last = recipe, restarts, record
        return location

    def _placed(self, recipe: plain.Object, visit: str, name: str, restarts: int) -> graphs.Location:
        step = graphs.Passage(node=f"{_prefix(recipe, self._document)}{name}", visit=visit)
        begun = graphs.Passage(node=f"{_RESTART}{recipe['id']}", visit=f"restart{restarts}")
        if recipe is not self._document:
            return graphs.Location(path=(begun, step))
        return graphs.Location(path=(step,), through=None if restarts == self._restarts else begun)

    def _begun(self, first: str) -> plain.Object:
        """Return the recipe that the newest restart began."""
        outcome = _outcome({self._recipe["id"]: self._recipe}, self._last) if self._last is not None else None
        step = self._recipe["steps"].get(self._last.line.get("step_id"), {}) if self._last is not None else {}
        ways = step.get("onOutcome", {})
        found = [ways[outcome]] if outcome in ways else list(ways.values())
        targets = [self._recipes.get(way.get("recipeId")) for way in found]
        # If several restarts are possible, take the recipe that begins with the next recorded step.
        fitting = (recipe for recipe in targets if recipe is not None and recipe["initialStep"] == first)
        return next(fitting, self._recipe)


def _outcome(recipes: Mapping[str, plain.Object], record: Record) -> str | None:
    named = {
        outcome
        for recipe in recipes.values()
        for outcome in recipe["steps"].get(record.line.get("step_id"), {}).get("outcomes", ())
    }
    if not named or not isinstance(record.output, str):
        return None
    found = outcomes.extract(record.output, named)
    return found.outcome if isinstance(found, outcomes.Reported) else None
