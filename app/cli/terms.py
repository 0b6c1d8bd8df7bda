"""The commands under `prices` and `policies`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, Answer, use_case
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


@use_case("GET /api/prices", Access.EXAMINE)
async def show_prices(folder: FolderClient) -> Answer:
    """Return the prices."""
    return (await folder.application.budgets.prices.show()).to_json()


@use_case("PUT /api/prices", Access.START, body=lambda document: document)
async def set_prices(folder: FolderClient, document: Mapping[str, Any]) -> Answer:
    """Replace the prices."""
    return (await folder.application.budgets.prices.replace(dict(document), authors.LOCAL)).to_json()


@use_case("GET /api/policies", Access.EXAMINE)
async def show_policies(folder: FolderClient) -> Answer:
    """Return the policies."""
    return (await folder.application.budgets.policies.show()).to_json()


@use_case("PUT /api/policies", Access.START, body=lambda document: document)
async def set_policies(folder: FolderClient, document: Mapping[str, Any]) -> Answer:
    """Replace the policies."""
    return (await folder.application.budgets.policies.replace(dict(document), authors.LOCAL)).to_json()


@click.group()
def prices() -> None:
    """Show and set what models cost."""


@prices.command("show")
@options.as_json
@options.anywhere
def show_prices_(place: options.Place, as_json: bool) -> int:
    """Show the prices, in US dollars for a million tokens."""
    return exit_codes.shown(place.ask(show_prices), as_json, _prices)


@prices.command("set")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@options.as_json
@options.anywhere
def set_prices_(place: options.Place, as_json: bool, file: Path) -> int:
    """Replace the prices by those of FILE, a JSON object with `models`."""
    return exit_codes.shown(place.ask(set_prices, arguments.read_file(file)), as_json, _prices)


@click.group()
def policies() -> None:
    """Show and set the limits and approvals that runs of recipes get."""


@policies.command("show")
@options.as_json
@options.anywhere
def show_policies_(place: options.Place, as_json: bool) -> int:
    """Show the policies."""
    return exit_codes.shown(place.ask(show_policies), as_json, _policies)


@policies.command("set")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@options.as_json
@options.anywhere
def set_policies_(place: options.Place, as_json: bool, file: Path) -> int:
    """Replace the policies by those of FILE, a JSON object with `policies`."""
    return exit_codes.shown(place.ask(set_policies, arguments.read_file(file)), as_json, _policies)


def _prices(found: Answer) -> str:
    names = ("input_per_million_usd", "output_per_million_usd", "context_tokens", "max_output_tokens")
    rows = [[model, *(price.get(name) for name in names)] for model, price in found["models"].items()]
    listed = formats.table(("model", "input", "output", *names[2:]), rows)
    return f"version {found['version']}\n{listed}" if rows else "no prices"


def _policies(found: Answer) -> str:
    rows = []
    for policy in found["policies"]:
        limits = ", ".join(f"{name} {value:g}" for name, value in policy["limits"].items())
        votes = policy["approvals"]
        needed = f"{votes['count']}{', not the starter' if votes['not_starter'] else ''}" if votes else None
        rows.append((policy["recipe_id"], limits or None, needed))
    return formats.table(("recipe", "limits", "approvals"), rows) if rows else "no policies"
