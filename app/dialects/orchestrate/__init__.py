"""The dialect orchestrate: workflows of commands and prompts to programs, with files as their queues (workflow-dsl)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from app import errors
from app.dialects.orchestrate import bounds, driver, graph, parse, providers, schema, scopes, step_flow, variables
from app.domain import graphs, json_text, library, limits, plain, runs
from app.engine import ports


class Orchestrate:
    """The interface of this dialect to the rest of the program."""

    name: str = parse.DIALECT
    driver_version: int = step_flow.CURRENT_VERSION
    file_suffixes: tuple[str, ...] = (".yaml", ".yml")

    def parse(self, source: str, stem: str) -> library.Recipe:
        """Read a workflow; the file's name is its id."""
        return parse.parse(source, stem)

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return an empty list: a workflow depends on no other recipe."""
        return []

    def flaws(self, source: str, stem: str, library: library.Library) -> list[errors.Flaw]:
        """Return all flaws of a workflow's text."""
        try:
            self.parse(source, stem)
        except errors.RecipeInvalid as error:
            return list(error.flaws)
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return the hash of the workflow's text, which reveals a changed file, and its number of steps."""
        return {"workflow_checksum": f"sha256:{recipe.source_sha256}", "total_steps": recipe.total_steps}

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return the steps, including those of loops, and the edges of the flow from each."""
        return graph.draw(document)

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return the limit that follows from loops and retries."""
        return bounds.calls(start.recipe, start.options)

    def calls_left(self, start: runs.RunStart, finished: Sequence[str], open_keys: Collection[str]) -> limits.CallLimit:
        """Return the limit of the steps that the flow has not passed, without their finished calls."""
        over, settled = bounds.progress(start.recipe, finished, open_keys)
        return bounds.calls(start.recipe, start.options, over).less(settled)

    declares_paths = False

    def path_args(self, document: plain.Object) -> Mapping[str, bool]:
        """Return the values of the context that are the whole path of a step's file."""
        return scopes.path_args(document)

    def slots(self, document: plain.Object) -> Sequence[str]:
        """Return the names of its steps, those of a loop as `Loop[*].Step`."""
        return list(_slots(document["steps"], ""))

    def json_schema(self) -> dict[str, plain.Json]:
        return schema.json_schema()

    def secrets(self, document: plain.Object) -> ports.Secrets:
        """Return the secrets that steps of a workflow name; a value that a step sets for such a name is one, too."""
        named = [spot.step for spot in scopes.spots(document) if "secrets" in spot.step]
        return ports.Secrets(
            names=frozenset(name for step in named for name in step["secrets"]),
            texts=frozenset(
                step["env"][name] for step in named for name in step["secrets"] if name in step.get("env", {})
            ),
        )

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> Iterator[library.Use]:
        """Return the program of each provider that a step names, unless the step sets its own PATH."""
        return _uses(recipe)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        return await driver.drive(ctx)


def _uses(recipe: library.Recipe) -> Iterator[library.Use]:
    # With a PATH of its own, a step may find a program that is not found here.
    asking = (spot for spot in scopes.spots(recipe.document) if "PATH" not in spot.step.get("env", {}))
    named = {spot.step["provider"]: spot.place for spot in asking if "provider" in spot.step}
    for name, provider in recipe.document.get("providers", {}).items():
        program = provider["command"][0]
        if name in named and not any(variables.names(program)):
            is_built_in = provider == providers.BUILT_IN.get(name)
            place = (*named[name], "provider") if is_built_in else ("providers", name, "command", 0)
            yield library.ProgramUse(path=json_text.json_path(place), program=program)


def _slots(steps: Sequence[plain.Object], prefix: str) -> Iterator[str]:
    for step in steps:
        name = f"{prefix}{step['name']}"
        if "for_each" in step:
            yield from _slots(step["for_each"]["steps"], f"{name}[*].")
        else:
            yield name
