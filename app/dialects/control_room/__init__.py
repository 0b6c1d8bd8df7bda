"""The dialect control_room: pipelines of tools and agents with a definition of done (execution-modes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app import errors
from app.dialects.control_room import bounds, driver, graph, parse, prompts, refs, schema
from app.domain import graphs, json_schemas, json_text, json_words, library, limits, plain, runs
from app.engine import ports


class ControlRoom:
    """The interface of this dialect to the rest of the program."""

    name: str = parse.DIALECT
    driver_version: int = refs.WORDING_VERSION
    file_suffixes: tuple[str, ...] = (".json",)

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a recipe file; the id comes from its content, not from the file's name."""
        return parse.parse(source)

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return every missing tool, archetype and prompt type, and every argument that does not fit."""
        return [
            *(flaw for index, step in _steps(recipe, "phase_a") for flaw in _tool_flaws(recipe, library, index, step)),
            *(flaw for index, step in _steps(recipe, "phase_b") for flaw in _agent_flaws(recipe, library, index, step)),
        ]

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """Return every flaw of a recipe's text, including those against the project's library."""
        try:
            return self.check(self.parse(source, stem), library)
        except errors.RecipeInvalid as error:
            draft = parse.draft(source)
            return [*error.flaws, *(self.check(draft, library) if draft is not None else ())]

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return the agents by archetype, and the prompt variant for each step's agent."""
        steps = [step for _, step in _steps(recipe, "phase_b")]
        agents = {step["agent_archetype"]: library.agent_of(step["agent_archetype"]) for step in steps}
        return {
            "prompts": {step["step_id"]: prompts.frozen(step, library) for step in steps},
            "agents": {archetype: agent.to_json() for archetype, agent in agents.items() if agent is not None},
        }

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return its steps in order, the slots between them, and what follows the last step."""
        return graph.draw(document, frozen)

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return one call for each step of an agent, or three if the step is split."""
        return bounds.calls(start.recipe, start.frozen)

    declares_paths = True

    def path_args(self, document: Mapping[str, plain.Json]) -> Mapping[str, bool]:
        """Return the arguments that tools get as paths, or that outputs are written to."""
        return refs.path_args(document)

    def slots(self, document: plain.Object) -> Sequence[str]:
        """Return the output slots of its steps."""
        return [step["output_slot"] for phase in ("phase_a", "phase_b") for step in document.get(phase, ())]

    def json_schema(self) -> dict[str, plain.Json]:
        return schema.json_schema()

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> Iterator[library.Use]:
        """Return the backend of each step's agent."""
        return _uses(recipe, library)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        return await driver.drive(ctx)


def _steps(recipe: library.Recipe, phase: str) -> list[tuple[int, plain.Object]]:
    return [(index, step) for index, step in enumerate(recipe.document.get(phase, ())) if step is not None]


def _tool_flaws(
    recipe: library.Recipe, registry: library.Library, index: int, step: plain.Object
) -> Iterator[errors.Flaw]:
    tool, args, place = registry.tools.get(step["tool"]), step.get("args", {}), ("phase_a", index)
    if tool is None:
        hint = json_schemas.nearest(step["tool"], registry.tools)
        yield json_schemas.flaw((*place, "tool"), "unknown_tool", f"there is no tool {step['tool']!r:.80}{hint}")
        return
    places = {where for where, _ in refs.found_in(args)}
    around = {where[:length] for where in places for length in range(len(where))}

    def lenient(where: json_text.Parts, keyword: str) -> bool:
        # Inside references, and in objects around them, only fields and their number are certain before the run.
        inside = any(where[:length] in places for length in range(len(where) + 1))
        return inside or (where in around and keyword not in ("required", "additionalProperties", "type"))

    yield from json_schemas.flaws(tool.args_schema, args, (*place, "args"), lenient)
    yield from _doubtful_args(recipe, tool, (*place, "args"), args)
    yield from _misfits(recipe, tool, (*place, "args"), args)


def _doubtful_args(
    recipe: library.Recipe, tool: library.ToolSpec, place: json_text.Parts, args: plain.Object
) -> Iterator[errors.Flaw]:
    schema = recipe.args_schema
    described: plain.Object = schema.get("properties") or {}
    for name in tool.args_schema.get("required", ()):
        if not refs.is_reference(args.get(name)):
            continue
        arg = refs.read(args[name]["$ref"]).arg
        if arg and arg not in schema.get("required", ()) and "default" not in described.get(arg, {}):
            message = f"needs a value, but the argument {arg} is optional and has no default"
            yield json_schemas.flaw((*place, name), "optional_arg", message)


def _misfits(
    recipe: library.Recipe, tool: library.ToolSpec, place: json_text.Parts, args: plain.Object
) -> Iterator[errors.Flaw]:
    for name in (name for name, value in args.items() if refs.is_reference(value)):
        reference = refs.read(args[name]["$ref"])
        if reference.arg is None or len(reference.steps) != 2:
            continue
        wanted, given = _type_of(tool.args_schema, name), _type_of(recipe.args_schema, reference.arg)
        if wanted and given and wanted != given and {wanted, given} != {"integer", "number"}:
            message = f"needs {json_words.TYPES[wanted]}, but the argument {reference.arg} is {json_words.TYPES[given]}"
            yield json_schemas.flaw((*place, name), "wrong_type", message)


def _type_of(schema: plain.Object, name: str) -> str | None:
    """Return the type of a property, if its schema has exactly one."""
    found = ((schema.get("properties") or {}).get(name) or {}).get("type")
    return found if isinstance(found, str) else None


def _agent_flaws(
    recipe: library.Recipe, registry: library.Library, index: int, step: plain.Object
) -> Iterator[errors.Flaw]:
    archetype, place = step["agent_archetype"], ("phase_b", index)
    agent, template = registry.agent_of(archetype), registry.prompts.get(step["prompt_type"])
    if agent is None:
        hint = json_schemas.nearest(archetype, {agent.archetype for agent in registry.agents})
        message = f"no agent plays the archetype {archetype!r:.80}{hint}"
        yield json_schemas.flaw((*place, "agent_archetype"), "unknown_archetype", message)
    unread = registry.unread_prompts.get(step["prompt_type"]) or registry.unread_prompts.get("*")
    if unread is not None:
        # A template of another layer would be a different prompt.
        yield json_schemas.flaw((*place, "prompt_type"), errors.Unreadable.default_code, unread)
        return
    if template is None:
        hint = json_schemas.nearest(step["prompt_type"], registry.prompts)
        message = f"prompts.json has no template {step['prompt_type']!r:.80}{hint}"
        yield json_schemas.flaw((*place, "prompt_type"), "unknown_prompt_type", message)
    if agent is None or template is None:
        return
    tier, args = prompts.variant(template, agent.tier), recipe.args_schema.get("properties", {})
    for code, message in prompts.problems(template.variants[tier], tier, step["input_slots"], args):
        reported = f"the {tier} template of {template.prompt_type} {message}"
        yield json_schemas.flaw((*place, "prompt_type"), code, reported)


def _uses(recipe: library.Recipe, registry: library.Library) -> Iterator[library.Use]:
    for index, step in _steps(recipe, "phase_b"):
        agent = registry.agent_of(step["agent_archetype"])
        if agent is not None:
            place = json_text.json_path(("phase_b", index, "agent_archetype"))
            yield library.use_of(agent, place)
