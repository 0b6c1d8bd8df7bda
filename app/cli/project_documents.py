"""The commands under `prices`, `policies` and `retention`: `show` and `set FILE` for one JSON document each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from app import printable
from app.cli import formats
from app.cli.client import Access, JsonObject, use_case
from app.cli.plain_commands import replaced, shown
from app.domain import authors
from app.domain import retention as rules

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


@use_case("GET /api/prices", Access.EXAMINE)
async def show_prices(folder: FolderClient) -> JsonObject:
    """Return the prices."""
    return (await folder.application.budgets.prices.show()).to_json()


@use_case("PUT /api/prices", Access.START, body=lambda document: document)
async def set_prices(folder: FolderClient, document: Mapping[str, Any]) -> JsonObject:
    """Replace the prices."""
    return (await folder.application.budgets.prices.replace(dict(document), authors.LOCAL)).to_json()


@use_case("GET /api/policies", Access.EXAMINE)
async def show_policies(folder: FolderClient) -> JsonObject:
    """Return the policies."""
    return (await folder.application.budgets.policies.show()).to_json()


@use_case("PUT /api/policies", Access.START, body=lambda document: document)
async def set_policies(folder: FolderClient, document: Mapping[str, Any]) -> JsonObject:
    """Replace the policies."""
    return (await folder.application.budgets.policies.replace(dict(document), authors.LOCAL)).to_json()


@use_case("GET /api/retention", Access.CHANGE)
async def show_retention(folder: FolderClient) -> JsonObject:
    """Return the rules of retention."""
    return (await folder.application.unattended.retention.policy()).to_json()


@use_case("PUT /api/retention", Access.CHANGE, body=lambda policy: policy)
async def set_retention(folder: FolderClient, policy: Mapping[str, Any]) -> JsonObject:
    """Replace the rules of retention."""
    read = rules.Policy.of(policy)
    return (await folder.application.unattended.retention.set_policy(read, authors.LOCAL)).to_json()


@click.group()
def prices() -> None:
    """Show and set the prices of models."""


@click.group()
def policies() -> None:
    """Show and set the limits and approvals of runs by recipe."""


@click.group()
def retention() -> None:
    """Show or set the rules by which a service removes old runs, once an hour."""


def _prices(found: JsonObject) -> str:
    names = ("input_per_million_usd", "output_per_million_usd", "context_tokens", "max_output_tokens")
    rows = [[model, *(price.get(name) for name in names)] for model, price in found["models"].items()]
    listed = formats.table(("model", "input", "output", *names[2:]), rows)
    return f"version {found['version']}\n{listed}" if rows else "no prices"


def _policies(found: JsonObject) -> str:
    rows = []
    for policy in found["policies"]:
        limits = ", ".join(f"{name} {printable.amount(value)}" for name, value in policy["limits"].items())
        votes = policy["approvals"]
        needed = f"{votes['count']}{', not the starter' if votes['not_starter'] else ''}" if votes else None
        rows.append((policy["recipe_id"], limits or None, needed))
    return formats.table(("recipe", "limits", "approvals"), rows, none="no policies")


def _rules(found: JsonObject) -> str:
    rows = [
        (
            "" if rule["older_than_seconds"] is None else f"{rule['older_than_seconds']} s",
            "" if rule["keep_bytes"] is None else str(rule["keep_bytes"]),
            ", ".join(rule["status"]),
            rule["recipe_id"] or "",
            ", ".join(f"{name}={text}" for name, text in rule["labels"].items()),
        )
        for rule in found["rules"]
    ]
    return formats.table(("older than", "keep bytes", "status", "recipe", "labels"), rows, none="no rules")


prices.add_command(shown(show_prices, _prices, "Show the prices, in US dollars per million tokens."))
prices.add_command(replaced(set_prices, _prices, "Replace the prices with those in FILE, a JSON object with `models`."))
policies.add_command(shown(show_policies, _policies, "Show the policies."))
policies.add_command(
    replaced(
        set_policies,
        _policies,
        "Replace the policies with those in FILE, a JSON object with `policies`.",
        lambda found: [policy["recipe_id"] for policy in found["policies"]],
    )
)
retention.add_command(shown(show_retention, _rules, "Show the rules."))
retention.add_command(
    replaced(
        set_retention,
        _rules,
        "Replace the rules with those in FILE, a JSON object with `rules`.",
        lambda found: [rule["recipe_id"] for rule in found["rules"]],
    )
)
