"""The dialect agent_recipes: state machines whose steps are prompts to one agent (agent-recipes)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from app import errors
from app.dialects.agent_recipes import bounds, composition, driver, graph, parse, schema, transitions
from app.domain import graphs, json_schemas, library, limits, plain, runs
from app.engine import ports


class AgentRecipes:
    """The interface of this dialect to the rest of the program."""

    name: str = parse.DIALECT
    driver_version: int = 2
    file_suffixes: tuple[str, ...] = (".json",)
    speaks_through: str = parse.SPEAKS_THROUGH

    def compose(self, source: str, read: Callable[[str], str]) -> ports.Composition:
        """Replace references in a recipe by the steps from the files beside it."""
        return composition.compose(source, read)

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a recipe file; the id comes from its content, not from the file's name."""
        return parse.parse(source)

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return the flaws of restarts: of an unknown recipe, or of one that requires arguments unknown to this one."""
        return list(_restart_flaws(recipe, library))

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """Return all flaws of a recipe's text, including those that depend on other recipes."""
        try:
            return self.check(self.parse(source, stem), library)
        except errors.RecipeInvalid as error:
            return list(error.flaws)

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return every other recipe that a restart can lead to, by its id."""
        return {"recipes": {target.recipe_id: dict(target.document) for target in _targets(recipe, library)}}

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return its steps, exits and restarts, with an edge for each outcome."""
        return graph.draw(document, frozen)

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return the limit that the guardrails set."""
        return bounds.calls(start.recipe, start.frozen, start.args)

    def calls_left(self, start: runs.RunStart, finished: Sequence[str], open_keys: Collection[str]) -> limits.CallLimit:
        """Return the limit without the calls of finished steps, and without the reminders that they did not need."""
        return self.call_limit(start).less(bounds.settled(finished, open_keys))

    def slots(self, document: plain.Object) -> Sequence[str] | None:
        """Return the names of its steps; None if a restart leads to the steps of another recipe."""
        steps = document["steps"].values()
        ways = [way for step in steps for way in step["onOutcome"].values()]
        leaves = any(way.get("recipeId", document["id"]) != document["id"] for way in ways)
        return None if leaves else [*document["steps"]]

    def json_schema(self) -> dict[str, plain.Json]:
        return schema.json_schema()

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> list[library.Use]:
        """Return the run's backend; all steps, and each reminder, continue one conversation."""
        return _uses(args)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        return await driver.drive(ctx)


def _uses(args: plain.Object) -> list[library.Use]:
    backend = args.get("backend", schema.DEFAULT_BACKEND)
    return [library.BackendUse(path="$.args.backend", backends=(backend,), continues=True)]


def render(recipe: library.Recipe, args: plain.Object | None = None) -> str:
    """Draw a recipe as a state machine in text (agent-recipes, 19.3)."""
    document, params = recipe.document, args or {}
    limits = transitions.Guardrails.of(document, params)
    counts = f"maxStepVisits={limits.max_step_visits}, maxTotalSteps={limits.max_total_steps}"
    lines = [
        f"Recipe: {recipe.recipe_id}",
        f"  Label: {recipe.label}",
        f"  Description: {document['description']}",
        f"  Guardrails: {counts}, exitOnOther={str(limits.exit_on_other).lower()}",
        "",
        "  Steps:",
    ]
    for name, step in document["steps"].items():
        initial = " (initial)" if name == document["initialStep"] else ""
        outcomes = ", ".join(f"{outcome} → {_drawn(node)}" for outcome, node in graph.following(document, step))
        model = params.get("model") or step.get("model") or document.get("model") or "(default)"
        lines += [f"    {name}{initial}", f"      Outcomes: {outcomes}", f"      Model: {model}"]
    return "\n".join(lines) + "\n"


def _drawn(node: graphs.Node) -> str:
    if node.kind == "end":
        return "EXIT"
    return f"RESTART {node.label}" if node.kind == "recipe" else node.label


def _targets(recipe: library.Recipe, registry: library.Library) -> list[library.Recipe]:
    found: dict[str, library.Recipe] = {}
    waiting = [recipe]
    while waiting:
        for _, target_id in transitions.restarts(waiting.pop().document):
            target = registry.recipes.get(target_id)
            if target_id not in (recipe.recipe_id, *found) and target is not None and target.dialect == parse.DIALECT:
                found[target_id] = target
                waiting.append(target)
    return list(found.values())


def _restart_flaws(recipe: library.Recipe, registry: library.Library) -> Iterator[errors.Flaw]:
    targets = _targets(recipe, registry)
    for owner in (recipe, *targets):
        for place, target_id in transitions.restarts(owner.document):
            problem = None if target_id == recipe.recipe_id else _problem_of(target_id, registry)
            if problem is not None:
                # A flaw of another recipe has no position in this file.
                code, message = problem
                reported = message if owner is recipe else f"{message}, and {owner.recipe_id} begins it"
                yield json_schemas.flaw(place if owner is recipe else (), code, reported)
    for target in targets:
        for name in sorted(_demanded_args(target.document) - parse.certain_args(recipe.document)):
            message = f"{target.recipe_id}, which a restart begins, needs the argument {name}"
            yield json_schemas.flaw((), "undeclared_arg", message)


def _problem_of(target_id: str, registry: library.Library) -> tuple[str, str] | None:
    target = registry.recipes.get(target_id)
    if target is None:
        own = (name for name, known in registry.recipes.items() if known.dialect == parse.DIALECT)
        near = json_schemas.nearest(target_id, own)
        return "unknown_recipe", f"there is no valid recipe {target_id!r:.80}{near}"
    if target.dialect != parse.DIALECT:
        return "wrong_dialect", f"{target_id} is a recipe of the dialect {target.dialect}"
    return None


def _demanded_args(document: plain.Object) -> set[str]:
    rules = parse.own_args(document).get("properties") or {}
    return {name for name in parse.certain_args(document) if "default" not in rules[name]}
