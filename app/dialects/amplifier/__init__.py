"""The dialect amplifier: prompts to agents in order, with conditions, loops and approvals (amplifier-recipe-schema)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from app import errors
from app.dialects.amplifier import agents, bounds, checks, driver, graph, parse, replies, schema, showing, walk
from app.domain import graphs, library, limits, plain, runs
from app.engine import ports


class Amplifier:
    """The interface of this dialect to the rest of the program."""

    name: str = parse.DIALECT
    driver_version: int = replies.NEWEST
    file_suffixes: tuple[str, ...] = (".yaml", ".yml")
    takes_folders: bool = True

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a recipe file; the id comes from its content, not from the file's name."""
        return parse.parse(source)

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return unknown agents, and recipes that this recipe cannot run."""
        return checks.flaws(recipe, library)

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """Return all flaws of a recipe's text, including those that depend on agents and other recipes."""
        try:
            return self.check(self.parse(source, stem), library)
        except errors.RecipeInvalid as error:
            return list(error.flaws)

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return the agents, the recipes named by file, and the backends' models if a pattern names one."""
        names = [step["agent"] for _, step in walk.placed(recipe.document) if "agent" in step]
        found = {name: agents.find(name, library.agents) for name in names}
        frozen: dict[str, plain.Json] = {
            "agents": {name: agent.to_json() for name, agent in found.items() if agent is not None}
        }
        called = checks.files(recipe, library)
        models = agents.models(recipe.document, found.values(), library.backends or {})
        return frozen | ({"recipes": called} if called else {}) | ({"models": models} if models else {})

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return steps and approvals in order, with conditions and loops on the edges that lead to them."""
        return graph.draw(document)

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return the limit that follows from loops and retries."""
        return bounds.most_calls(start.recipe, start.frozen, start.args)

    def calls_left(self, start: runs.RunStart, finished: Sequence[str], open_keys: Collection[str]) -> limits.CallLimit:
        """Return the limit of the steps that are not over, without their finished calls."""
        over, settled = bounds.progress(start.recipe, finished, open_keys)
        return bounds.most_calls(start.recipe, start.frozen, start.args, over).less(settled)

    declares_paths = False

    def path_args(self, document: plain.Object) -> Mapping[str, bool]:
        """Return the variables that are the whole folder of a command."""
        return walk.path_args(document)

    def slots(self, document: plain.Object) -> Sequence[str]:
        """Return the variables that its steps and approvals set, and the result of the run."""
        return showing.slots_of(document)

    def json_schema(self) -> dict[str, plain.Json]:
        return schema.json_schema()

    def secrets(self, document: plain.Object) -> ports.Secrets:
        """Return the recipe's secrets; a text that a step assigns to one of these variables is also a secret."""
        everywhere = document.get("secrets", ())
        named = [((*everywhere, *step.get("secrets", ())), step.get("env", {})) for _, step in walk.placed(document)]
        return ports.Secrets(
            names=frozenset(everywhere).union(*(names for names, _ in named)),
            # A value with variables is known only when the command runs, and is masked there.
            texts=frozenset(env[name] for names, env in named for name in names if "{{" not in env.get(name, "{{")),
        )

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> Iterator[library.Use]:
        """Return the backends through which each step's agent may be asked, and the recipes that steps run."""
        return checks.uses(recipe, library)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        return await driver.drive(ctx)
