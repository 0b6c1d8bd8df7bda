"""The driver of conferences: opinions of several agents on the same evidence. It has no recipe files."""

# Participants and tools decide on the steps, so they are frozen as the document of a recipe that is made for each
# request. The idempotency key compares the original request, before agents are looked up.

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from app import errors
from app.domain import graphs, json_schemas, library, limits, plain, runs
from app.engine import ports
from app.flows.conference import driver, gathering, graph, schema
from app.flows.conference.schema import CHIEF, NAME

__all__ = ["CHIEF", "NAME", "Conference", "chief_of"]

_TAKEN = (gathering.TOOL, driver.TRANSCRIPT)


def chief_of(definitions: library.Library) -> library.Agent | None:
    """Return the agent that gathers the evidence, None if there is none."""
    return definitions.agent_of(CHIEF, NAME)


class Conference:
    """The interface of this driver to the rest of the program."""

    name: str = NAME
    driver_version: int = 3

    def recipe(self, document: plain.Object) -> library.Recipe:
        """Return the recipe with a configuration."""
        flaws = json_schemas.flaws(schema.DOCUMENT, document)
        if flaws:
            raise errors.RecipeInvalid("the configuration of the conference is not valid", flaws=flaws)
        return library.Recipe(
            recipe_id=NAME, dialect=NAME, label="Conference", document=document, args_schema=schema.ARGS
        )

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return every agent and tool that is not available, and every combination that does not work."""
        return [*_people_flaws(recipe, library), *_tool_flaws(recipe, library)]

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return chief and participants with their present configuration, and the tools that may be called."""
        chief, agents = chief_of(library), {agent.id: agent for agent in library.agents}
        named = recipe.document["agents"]
        allowed = recipe.document["allowed_tools"]
        # Only descriptions and schemas: the code of a tool is not part of the recipe.
        tools = [spec for name, spec in library.tools.items() if allowed is None or name in allowed]
        return {
            "chief": chief.to_json() if chief is not None else None,
            "participants": [agents[agent_id].to_json() for agent_id in named if agent_id in agents],
            "tools": {
                spec.name: {"description": spec.description, "args_schema": plain.plain(spec.args_schema)}
                for spec in tools
            },
        }

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> Iterator[library.Use]:
        """Return the backends of chief and participants."""
        return _uses(recipe, library)

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return the tool calls, the round of opinions, and the transcript."""
        return graph.draw(document, frozen)

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return one call for each participant, and the chief's turns: one for each tool call, and a correction."""
        return limits.CallLimit(most=_most_turns(start) + len(start.frozen["participants"]))

    def calls_left(self, start: runs.RunStart, finished: Sequence[str], open_keys: Collection[str]) -> limits.CallLimit:
        """Return the limit without finished calls; once opinions are asked for, without turns of the chief."""
        opinions = {driver.opinion_key(agent["id"]) for agent in start.frozen["participants"]}
        given = sum(key in opinions for key in finished)
        is_gathered = given > 0 or not opinions.isdisjoint(open_keys)
        return self.call_limit(start).less(given + _most_turns(start) if is_gathered else len(finished))

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Hold the conference."""
        return await driver.drive(ctx)


def _most_turns(start: runs.RunStart) -> int:
    turns: int = start.recipe["max_tool_calls"] + 1
    return turns if start.frozen["tools"] else 0


def _uses(recipe: library.Recipe, definitions: library.Library) -> Iterator[library.Use]:
    chief, agents = chief_of(definitions), {agent.id: agent for agent in definitions.agents}
    allowed = recipe.document["allowed_tools"]
    # Without tools, the chief is not asked.
    if chief is not None and (definitions.tools if allowed is None else allowed):
        yield library.use_of(chief, "$.chief")
    for index, agent_id in enumerate(recipe.document["agents"]):
        if agent_id in agents:
            yield library.use_of(agents[agent_id], f"$.agents[{index}]")


def _people_flaws(recipe: library.Recipe, definitions: library.Library) -> Iterator[errors.Flaw]:
    named: Sequence[str] = recipe.document["agents"]
    if chief_of(definitions) is None:
        message = f"there is no agent of the archetype {CHIEF} with the mode conference"
        yield json_schemas.flaw((), "no_chief", message)
    if not named:
        yield json_schemas.flaw(("agents",), "no_participants", "there are no agents to ask")
    if len(named) > schema.MOST_AGENTS:
        message = f"{len(named)} agents would be asked; name at most {schema.MOST_AGENTS}"
        yield json_schemas.flaw(("agents",), "too_many_agents", message)
    for index, agent_id in enumerate(named):
        found = _agent_flaw(agent_id, named[:index], definitions)
        if found is not None:
            yield json_schemas.flaw(("agents", index), *found)


def _agent_flaw(agent_id: str, before: Sequence[str], definitions: library.Library) -> tuple[str, str] | None:
    agent = next((each for each in definitions.agents if each.id == agent_id), None)
    if agent is None:
        known = {name for each in definitions.agents if each.takes_part_in(NAME) for name in (each.id, each.archetype)}
        return "unknown_agent", f"there is no agent {agent_id!r:.80}{json_schemas.nearest(agent_id, known)}"
    if not agent.takes_part_in(NAME):
        return "agent_not_conferring", f"{agent_id} takes part in {', '.join(agent.modes)} only"
    if agent_id in before:
        return "repeated_agent", f"{agent_id} is named before"
    # Steps are named after agents; two agents with the same key would share one line.
    keys = {driver.opinion_key(each) for each in before}
    evidence_keys = {f"{key}.evidence" for key in keys}
    key = driver.opinion_key(agent_id)
    if agent_id in _TAKEN or key in evidence_keys or f"{key}.evidence" in keys:
        return "agent_name_taken", f"an agent of the name {agent_id} cannot be told from a step; give it another id"
    return None


def _tool_flaws(recipe: library.Recipe, definitions: library.Library) -> Iterator[errors.Flaw]:
    allowed: Sequence[str] | None = recipe.document["allowed_tools"]
    for index, name in enumerate(allowed or ()):
        if name not in definitions.tools:
            message = f"there is no tool {name!r:.80}{json_schemas.nearest(name, definitions.tools)}"
            yield json_schemas.flaw(("allowed_tools", index), "unknown_tool", message)
    if recipe.document["require_tool"] and not (definitions.tools if allowed is None else allowed):
        yield json_schemas.flaw(("require_tool",), "no_tool_allowed", "a tool is required, but none is allowed")
