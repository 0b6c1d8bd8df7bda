"""
The dialect amplifier: prompts to agents in order, with conditions, loops and approvals (amplifier-recipe-schema).
"""

from __future__ import annotations

from collections.abc import Iterator

from app import errors
from app.dialects.amplifier import agents, driver, graphs, parse, schema, walk
from app.engine import json_schemas, json_text, library, plain, ports, runs


class Amplifier:
    """
    The dialect as the rest of the program sees it.
    """

    name: str = parse.DIALECT
    driver_version: int = 1
    file_suffixes: tuple[str, ...] = (".yaml", ".yml")

    def parse(self, source: str, stem: str) -> library.Recipe:
        """
        Read a recipe file; its id stands in it, so the file's name is of no account.
        """
        return parse.parse(source)

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """
        Return every agent that there is not, and every recipe that cannot be run as the recipe runs it.
        """
        return [*_agent_flaws(recipe, library), *_recipe_flaws(recipe, library)]

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """
        Return everything that is wrong with a recipe's text, what shows only beside the agents included.
        """
        try:
            return self.check(self.parse(source, stem), library)
        except errors.RecipeInvalid as error:
            return list(error.flaws)

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """
        Return the agents that the recipe names, by the names that it gives them.
        """
        found = {name: agents.find(name, library.agents) for name, _ in _named_agents(recipe)}
        return {"agents": {name: agent.to_json() for name, agent in found.items() if agent is not None}}

    def graph(self, recipe: library.Recipe) -> dict[str, plain.Json]:
        """
        Return steps and approvals in order, with conditions and loops on the edges that lead to them.
        """
        return graphs.graph(recipe.document)

    def json_schema(self) -> dict[str, plain.Json]:
        """
        Return the JSON Schema of the newest version.
        """
        return schema.json_schema()

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """
        Execute the recipe.
        """
        return await driver.drive(ctx)


def _named_agents(recipe: library.Recipe) -> Iterator[tuple[str, json_text.Parts]]:
    return ((step["agent"], place) for place, step in walk.placed(recipe.document) if "agent" in step)


def _agent_flaws(recipe: library.Recipe, registry: library.Library) -> Iterator[errors.Flaw]:
    for name, place in _named_agents(recipe):
        if agents.find(name, registry.agents) is None:
            known = {called for agent in registry.agents for called in (agent.id, agent.archetype)}
            message = f"there is no agent {name!r:.80}{json_schemas.nearest(name.rsplit(':', 1)[-1], known)}"
            yield json_schemas.flaw((*place, "agent"), "unknown_agent", message)


def _recipe_flaws(recipe: library.Recipe, registry: library.Library) -> Iterator[errors.Flaw]:
    for place, step in walk.placed(recipe.document):
        name = step.get("recipe")
        if name is None:
            continue
        target = recipe if name == recipe.recipe_id else registry.recipes.get(name)
        if target is None:
            near = json_schemas.nearest(name, registry.recipes)
            yield json_schemas.flaw((*place, "recipe"), "unknown_recipe", f"there is no recipe {name!r:.80}{near}")
            continue
        given, schema_ = step.get("context", {}), target.args_schema
        known = schema_.get("properties") or {}
        for missing in (arg for arg in schema_.get("required") or () if arg not in given):
            message = f"{name} needs the argument {missing}"
            yield json_schemas.flaw((*place, "context", missing), "missing_arg", message)
        if schema_.get("additionalProperties", False) is False:
            for arg in (arg for arg in given if arg not in known):
                message = f"{name} has no argument {arg!r:.80}{json_schemas.nearest(arg, known)}"
                yield json_schemas.flaw((*place, "context", arg), "undeclared_arg", message)
