"""The commands `retention`: the rules by which a service removes old runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from app import errors
from app.cli import documents, formats
from app.cli.client import Access, Answer, use_case
from app.domain import authors
from app.domain import retention as rules

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


@use_case("GET /api/retention", Access.CHANGE)
async def show_policy(folder: FolderClient) -> Answer:
    """Return the policy."""
    return (await folder.application.unattended.retention.policy()).to_json()


@use_case("PUT /api/retention", Access.CHANGE, body=lambda policy: policy)
async def set_policy(folder: FolderClient, policy: Mapping[str, Any]) -> Answer:
    """Put a policy in place of the present one."""
    try:
        read = rules.Policy.of(policy)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise errors.RequestInvalid(f"the file is not a retention policy: {error}") from error
    return (await folder.application.unattended.retention.set_policy(read, authors.LOCAL)).to_json()


@click.group()
def retention() -> None:
    """Show or set the rules by which a service removes old runs, once an hour."""


def _policy(found: Answer) -> str:
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
    return formats.table(("older than", "keep bytes", "status", "recipe", "labels"), rows) if rows else "no rules"


documents.commands(
    retention,
    documents.Document(
        show=show_policy,
        set=set_policy,
        table=_policy,
        show_help="Show the rules.",
        set_help="Replace the rules by those of FILE, a JSON object with `rules`.",
    ),
)
