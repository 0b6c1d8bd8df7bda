"""The commands under `prices` and `policies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from app.cli import documents, formats
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


@click.group()
def policies() -> None:
    """Show and set the limits and approvals that runs of recipes get."""


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


documents.commands(
    prices,
    documents.Document(
        show=show_prices,
        set=set_prices,
        table=_prices,
        show_help="Show the prices, in US dollars for a million tokens.",
        set_help="Replace the prices by those of FILE, a JSON object with `models`.",
    ),
)
documents.commands(
    policies,
    documents.Document(
        show=show_policies,
        set=set_policies,
        table=_policies,
        show_help="Show the policies.",
        set_help="Replace the policies by those of FILE, a JSON object with `policies`.",
    ),
)
