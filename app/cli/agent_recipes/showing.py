"""Showing: the list of recipes, and the drawing of one, without starting a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app import errors, printable
from app.cli import exit_codes as common
from app.cli import formats, terminal, use_cases
from app.cli.agent_recipes import projects
from app.cli.client import Access, JsonObject

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services import requests

DIALECT = "agent_recipes"  # Language of the recipes that are listed and run.

_LACKING = frozenset({"missing_arg", "args_required"})


def list_recipes(project: projects.Project, as_json: bool) -> int:
    """Print every recipe with its description, and invalid ones with their flaws."""
    found = project.work_here(_described, Access.RECIPES)
    if as_json:
        terminal.say_json(found)
    else:
        terminal.say_block(listing(found))
    return common.ExitCode.DONE


def draw(project: projects.Project, request: requests.StartRequest, as_json: bool) -> int:
    """Print a recipe with the given arguments; required arguments may be missing."""

    async def work(client: FolderClient) -> JsonObject | str:
        from app.dialects import agent_recipes

        plan = await _planned(client, request, as_json)
        if as_json and plan is not None:
            return plan
        return agent_recipes.render(client.application.catalogue.get(request.recipe_id or "").recipe, request.args)

    drawn = project.work_here(work, Access.PREVIEW)
    if isinstance(drawn, str):
        terminal.say_block(drawn.rstrip("\n"))
    else:
        terminal.say_json(drawn)
    return common.ExitCode.DONE


async def of_this_language(client: FolderClient, recipe_id: str) -> None:
    """Raise if a name is not that of a recipe of this language.

    Raises:
        errors.UnknownRecipe: the message names the nearest recipes, or the program that runs it.
    """
    entries = await client.call(use_cases.list_recipes)
    found = next((entry for entry in entries if entry["recipe_id"] == recipe_id), None)
    if found is not None and found["dialect"] != DIALECT:
        message = (
            f"{recipe_id} is not an agent recipe but a recipe of {found['dialect']}; start it with: control-room run"
        )
        raise errors.UnknownRecipe(message)
    if found is None:
        near = formats.nearest(recipe_id, [entry["recipe_id"] for entry in entries if entry["dialect"] == DIALECT])
        raise errors.UnknownRecipe(f"there is no agent recipe {recipe_id!r:.80}{near}; --list shows all")


def listing(found: list[JsonObject]) -> str:
    """Return the recipes as lines of id and description."""
    if not found:
        return "no recipes"
    width = max(len(entry["recipe_id"]) for entry in found)
    return printable.block(f"{entry['recipe_id']:<{width}}  {_description(entry)}" for entry in found)


async def _described(client: FolderClient) -> list[JsonObject]:
    entries = [entry for entry in await client.call(use_cases.list_recipes) if entry["dialect"] == DIALECT]
    return [entry | {"description": await _description_of(client, entry)} for entry in entries]


async def _description_of(client: FolderClient, entry: JsonObject) -> str | None:
    document = (await client.call(use_cases.show_recipe, entry["recipe_id"]))["document"]
    return document["description"] if document else None


def _description(entry: JsonObject) -> str:
    if entry["valid"]:
        return str(entry["description"])
    return f"(not valid) {formats.flaw(entry['flaws'][0])}"


async def _planned(client: FolderClient, request: requests.StartRequest, as_json: bool) -> JsonObject | None:
    await of_this_language(client, request.recipe_id or "")
    try:
        return await client.call(use_cases.plan_run, request)
    except errors.NotReady as lacking:
        # A drawing needs no backend, so a missing one is only a warning.
        if as_json:
            raise
        terminal.warn(*(f"agent-recipes: {line}" for line in common.sentences(lacking)))
        return None
    except errors.RequestInvalid as error:
        if as_json or not _may_be_open(request, error):
            raise
        return None


def _may_be_open(request: requests.StartRequest, error: errors.RequestInvalid) -> bool:
    # A drawing needs neither the arguments of a run nor an agent.
    if error.code == "unknown_backend":
        return "backend" not in request.args
    return isinstance(error, errors.ArgsInvalid) and all(flaw.code in _LACKING for flaw in error.flaws)
