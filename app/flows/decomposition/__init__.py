"""The driver of decompositions: the chief splits an intent into the tasks of a session plan. It has no recipe files
(execution-modes, chief's role in pipeline mode).
"""

from __future__ import annotations

from app import errors
from app.domain import graphs, library, limits, plain, runs
from app.engine import ports
from app.flows.decomposition import driver, graph, kinds, replies, schema

NAME = "decomposition"  # Name of the driver.
RECIPE_ID = "decompose"  # Name of its only recipe.
SLOT = driver.TASKS  # Slot with the tasks, as JSON text; `tasks` reads it.
INTENT = schema.INTENT  # The only argument: the intent.
ARCHETYPE = "chief"  # Archetype of the agent.
MODE = "pipeline"  # Mode in which the agent must take part: the tasks of a plan start pipelines.
TaskDraft = replies.TaskDraft  # A task as the chief describes it.
tasks = replies.kept  # Read the slot's text.

RECIPE = library.Recipe(
    recipe_id=RECIPE_ID,
    dialect=NAME,
    label="Split an intent into tasks",
    document={"id": RECIPE_ID},
    args_schema=schema.ARGS,
    total_steps=driver.STEPS,
)
"""The recipe of every decomposition."""


def check(definitions: library.Library) -> list[errors.Flaw]:
    """Return why a project's intents cannot be split into tasks: `no_chief`, if no agent has that role."""
    if definitions.agent_of(ARCHETYPE, MODE) is not None:
        return []
    message = (
        f"no agent with the archetype {ARCHETYPE} has the mode pipeline, so no agent can split an intent into tasks"
    )
    return [errors.Flaw(path="$.intent", code="no_chief", message=message)]


def _uses(definitions: library.Library) -> list[library.Use]:
    chief = definitions.agent_of(ARCHETYPE, MODE)
    return [] if chief is None else [library.use_of(chief, "$.intent")]


class Decomposition:
    """The interface of this driver to the rest of the program."""

    name: str = NAME
    driver_version: int = 3

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return `no_chief` if no agent has that role."""
        return check(library)

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return the chief, and the kinds of tasks that the recipes of the library perform.

        Raises:
            errors.RequestInvalid: `no_chief`.
        """
        chief = library.agent_of(ARCHETYPE, MODE)
        if chief is None:
            flaws = check(library)
            raise errors.RequestInvalid(flaws[0].message, code=flaws[0].code, flaws=flaws)
        return {"agent": chief.to_json(), "kinds": kinds.frozen(library.recipes.values())}

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> list[library.Use]:
        """Return the backend of the chief."""
        return _uses(library)

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return the search for files, the tasks, and their correction."""
        return graph.DRAWING

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return the chief's call and its correction."""
        return limits.CallLimit(most=2)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Have the chief split the intent into tasks, and store them.

        Raises:
            errors.RunFailed: the chief did not answer, or gave no valid tasks twice (`decomposition_invalid`).
        """
        return await driver.drive(ctx)
