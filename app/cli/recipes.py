"""The commands under `control-room recipes`, and `route`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from app import errors
from app.cli import arguments, exit_codes, formats, options, terminal, use_cases
from app.cli.client import Access, Client, JsonObject


@click.group()
def recipes() -> None:
    """List, show and validate recipes."""


@recipes.command("list")
@options.as_json
@options.anywhere
def list_recipes(place: options.Place, as_json: bool) -> int:
    """List all recipes; invalid ones include their errors."""
    if as_json or place.server is not None:
        return exit_codes.shown(place.ask(use_cases.list_recipes), as_json, formats.recipes)

    from app.cli import folder_client, recipe_listing

    # The list for people has only fields that depend on files.
    config = place.settings()
    folder_client.refuse_faults(config)
    found = recipe_listing.listed(config, lambda: place.ask(use_cases.list_recipes))
    return exit_codes.shown(found, as_json, formats.recipes)


@recipes.command()
@click.argument("recipe_id")
@options.as_json
@options.anywhere
def show(place: options.Place, as_json: bool, recipe_id: str) -> int:
    """Show a recipe with its arguments and steps."""
    found = place.ask(use_cases.show_recipe, recipe_id)
    return exit_codes.shown(found, as_json, formats.recipe)


@recipes.command()
@click.argument("targets", nargs=-1, metavar="[FILE|RECIPE]...")
@click.option("--dialect", help="Language of the files.  [default: by their folder, ending and text]")
@options.as_json
@options.anywhere
def validate(place: options.Place, as_json: bool, targets: tuple[str, ...], dialect: str | None) -> int:
    """Validate recipe files, or recipes by id; without arguments, all recipes.

    Exit code 2 if one is invalid; 5 if a named recipe lacks a backend, program or recipe that a run could need.
    """

    async def work(client: Client) -> list[JsonObject]:
        return [await _examine(client, target, dialect) for target in targets] or await _examine_all(client)

    verdicts = place.work(work, Access.RECIPES)
    terminal.show(verdicts, as_json, formats.verdicts)
    if not all(verdict["valid"] for verdict in verdicts):
        return exit_codes.ExitCode.USAGE
    # No project has a backend for every bundled recipe.
    ready = not targets or all(verdict["ready"] for verdict in verdicts)
    return exit_codes.ExitCode.DONE if ready else exit_codes.ExitCode.CONFIGURATION


@click.command()
@click.argument("text")
@options.as_json
@options.anywhere
def route(place: options.Place, as_json: bool, text: str) -> int:
    """Show the recipe that fits the task TEXT, and the arguments found in it; exit code 2 if none fits."""
    found = place.ask(use_cases.route, text)
    terminal.show(found, as_json, formats.routing)
    return exit_codes.ExitCode.DONE if found["routable"] else exit_codes.ExitCode.USAGE


async def _examine(client: Client, target: str, dialect: str | None) -> dict[str, Any]:
    if _names_file(target):
        source = _read(Path(target))
        listed = None if dialect else await _listed(client, Path(target))
        if listed is not None:
            return _verdict(target, listed)
        answer = await client.call(
            use_cases.validate_recipe, source, dialect or _likely(target, source), Path(target).stem
        )
        return _verdict(target, answer)
    entry = next((entry for entry in await client.call(use_cases.list_recipes) if entry["recipe_id"] == target), None)
    if entry is None:
        raise errors.NotFound(f"there is no file or recipe {target!r:.200}", code="unknown_recipe")
    return _verdict(target, entry)


async def _listed(client: Client, file: Path) -> dict[str, Any] | None:
    """Return the entry of a file in the list of recipes, if it is one of them."""
    entries = await client.call(use_cases.list_recipes)
    return next((entry for entry in entries if _is_same(entry["path"], file)), None)


def _is_same(path: str, file: Path) -> bool:
    return Path(path).resolve() == file.resolve()


def _likely(target: str, source: str) -> str:
    from app.dialects import registry

    return registry.likely(Path(target).resolve(), source)


async def _examine_all(client: Client) -> list[dict[str, Any]]:
    return [_verdict(entry["recipe_id"], entry) for entry in await client.call(use_cases.list_recipes)]


def _verdict(target: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"target": target} | {name: found[name] for name in ("valid", "flaws", "ready", "lacks")}


def _names_file(target: str) -> bool:
    return bool(Path(target).suffix) or Path(target).is_file()


def _read(path: Path) -> str:
    if not path.exists():
        raise errors.NotFound(f"there is no file {path}", code="file_not_found")
    return arguments.read_text(path)
