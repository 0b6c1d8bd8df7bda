"""The driver of reviews: the chief, or a person if the chief cannot, decides whether a task of a session plan is done.
It has no recipe files (execution-modes, chief's role in pipeline mode).
"""

from __future__ import annotations

from app import errors
from app.domain import graphs, library, limits, plain, runs
from app.engine import ports
from app.flows import decomposition
from app.flows.review import driver, graph, prompts

NAME = "review"  # Name of the driver.
RECIPE_ID = "review_task"  # Name of its only recipe.
SLOT = driver.REVIEW  # Slot with the result, as JSON text.
OUTPUT = prompts.OUTPUT  # Prefix of names that evidence uses for outputs without a file.

RECIPE = library.Recipe(
    recipe_id=RECIPE_ID,
    dialect=NAME,
    label="Review a finished task",
    document={"id": RECIPE_ID},
    args_schema=prompts.ARGS,
    total_steps=driver.STEPS,
)
"""The recipe of every review."""


def judge(definitions: library.Library) -> library.Agent | None:
    """Return the chief if its tier, t3 or t5, may judge."""
    chief = definitions.agent_of(decomposition.ARCHETYPE, decomposition.MODE)
    return chief if chief is not None and chief.tier in prompts.SIZES else None


def why_person(definitions: library.Library) -> str | None:
    """Return why a person must judge; None if the chief may."""
    chief = definitions.agent_of(decomposition.ARCHETYPE, decomposition.MODE)
    if chief is None:
        return f"no agent with the archetype {decomposition.ARCHETYPE} has the mode pipeline"
    if chief.tier not in prompts.SIZES:
        return f"the chief {chief.id} is of tier {chief.tier}, and only {' or '.join(prompts.SIZES)} may judge"
    return None


class Review:
    """The interface of this driver to the rest of the program."""

    name: str = NAME
    driver_version: int = 1

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return an empty list: without a chief, the review asks a person."""
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return the chief, if it may judge."""
        chief = judge(library)
        return {"agent": None if chief is None else chief.to_json()}

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> list[library.Use]:
        """Return the backend of the chief, if it may judge."""
        return _uses(library)

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return the chief's verdict, its correction, and the person."""
        return graph.DRAWING

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return the chief's call and its correction; none if a person judges."""
        is_judged = start.frozen["agent"] is not None and not start.args.get("person")
        return limits.CallLimit(most=2 if is_judged else 0)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Have the task judged, and store the verdict."""
        return await driver.drive(ctx)


def _uses(definitions: library.Library) -> list[library.Use]:
    chief = judge(definitions)
    return [] if chief is None else [library.use_of(chief, "$.task")]
