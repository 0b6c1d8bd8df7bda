"""The commands under `audit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from app.cli import arguments, exit_codes, formats, options
from app.cli.client import JsonObject, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.domain.audit import AuditQuery


@use_case("GET /api/audit", answers=list)
async def list_audit(folder: FolderClient, query: AuditQuery) -> list[JsonObject]:
    """Return the entries of the audit log, newest first."""
    found, _ = await folder.application.store.audit.page(query)
    return [entry.to_json() for entry in found]


@click.group()
def audit() -> None:
    """Read the log of changes and their authors."""


@audit.command("list")
@click.option("--author", metavar="NAME", help="Only changes by this author.")
@click.option("--action", metavar="NOUN[.VERB]", help="Only these actions, e.g. key or run.cancelled.")
@click.option("--target", metavar="ID", help="Only changes to the object with this id or name.")
@click.option("--created-after", metavar="INSTANT", help="Only changes at or after this time.")
@click.option("--created-before", metavar="INSTANT", help="Only changes before this time.")
@options.limit("changes")
@options.as_json
@options.anywhere
def list_(place: options.Place, as_json: bool, **filters: Any) -> int:
    """List orders to runs, answers at gates, and all other changes, newest first."""
    from app.domain import audit as log

    query = log.AuditQuery(**filters | arguments.instants(filters, "created_after", "created_before"))
    return exit_codes.shown(place.ask(list_audit, query), as_json, _table)


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    names = ("at", "author", "action", "target")
    return formats.table(
        names, [[entry["at"], _name(entry), entry["action"], entry["target"]] for entry in found], none="no changes"
    )


def _name(entry: Mapping[str, Any]) -> str:
    return formats.author(entry["author"] or {"name": "Control Room", "via": "", "claimed": False})
