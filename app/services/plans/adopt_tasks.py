"""Taking over: turns the chief's tasks for an intent into the tasks of its plan, once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from app import errors
from app.domain import library, plans
from app.flows import decomposition
from app.services.plans import edits, requests, tasks
from app.services.plans.scoping import Scoper
from app.services.recipe_versions import RecipeVersion
from app.services.recipes import Catalogue
from app.services.requests import StartRequest
from app.services.runs import Runs

UNUSABLE = "chief_result_unusable"
"""Code of a plan whose chief's run ended well without usable tasks."""


class Chief:
    """Lets the chief split an intent into tasks in a run of its own, and takes over its result."""

    def __init__(
        self, *, runs: Runs, library: Callable[[], library.Library], catalogue: Catalogue, scoper: Scoper
    ) -> None:
        self._runs = runs
        self._library = library
        self._catalogue = catalogue
        self._scoper = scoper

    def check(self) -> None:
        """Refuse an intent that cannot be split.

        Raises:
            errors.RequestInvalid: `no_chief`.
            errors.NotReady: the chief's backend cannot work here.
        """
        definition_cache = self._library()
        flaws = decomposition.check(definition_cache)
        if flaws:
            raise errors.RequestInvalid(flaws[0].message, code=flaws[0].code, flaws=flaws)
        self._catalogue.refuse_unready(
            RecipeVersion(decomposition.RECIPE, definition_cache, decomposition.Decomposition()), {}
        )

    async def start(self, plan: plans.Plan) -> str:
        """Return the run in which the chief splits a plan's intent; after a crash, return the same run.

        Raises:
            errors.ControlRoomError: it cannot be started.
        """
        await self._catalogue.refresh()
        recipes = {entry.recipe_id: entry.recipe for entry in self._catalogue.all() if entry.usable and entry.recipe}
        definition_cache = dataclasses.replace(self._library(), recipes=recipes)
        own = RecipeVersion(decomposition.RECIPE, definition_cache, decomposition.Decomposition())
        return (await self._runs.start(_request(plan), own)).run_id

    async def tasks(self, plan: plans.Plan, run_id: str) -> tuple[plans.Task, ...]:
        """Return the tasks from the chief's run, each with the known recipe and arguments.

        Raises:
            errors.InputRefused: `chief_result_unusable`.
        """
        try:
            slot = await self._runs.reader.slot(run_id, decomposition.SLOT)
            found = tasks.numbered([_new(draft) for draft in decomposition.tasks(slot["text"])], plans.BY_CHIEF)
            requests.refuse(edits.graph_flaws(found))
        except (errors.ControlRoomError, ValueError, LookupError, TypeError, AttributeError) as error:
            # A model wrote the result, so any error in it is the model's fault, and a person may let it try again.
            message = f"the result of the chief's run {run_id} is not a list of tasks: {error!s:.300}"
            raise errors.InputRefused(message, code=UNUSABLE, detail={"run_id": run_id}) from error
        ordered = edits.in_order(found)
        return await asyncio.to_thread(lambda: tuple(self._scoper.scoped(plan, task) for task in ordered))


def _request(plan: plans.Plan) -> StartRequest:
    asked = StartRequest(
        recipe_id=decomposition.RECIPE_ID,
        description=plan.intent,
        args={decomposition.INTENT: plan.intent},
        idempotency_key=tasks.chief_key(plan.session_id),
    )
    return tasks.of_plan(plan, asked)


def _new(draft: decomposition.TaskDraft) -> requests.NewTask:
    new = requests.NewTask(
        id=draft.id,
        description=draft.description,
        args=draft.args,
        deps=draft.deps,
        dod=draft.dod,
        scoping_question=draft.scoping_question,
    )
    requests.check_task(new)
    return new
