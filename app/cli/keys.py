"""The commands under `keys`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, JsonObject, use_case
from app.cli.plain_commands import shown
from app.domain import authors
from app.domain.access import Role

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services import keys as key_requests

ROLES = ("viewer", "runner", "approver", "admin")
"""Roles, each of which includes those before it; a test compares them with the engine's."""

_LONGEST_GRACE_SECONDS = 7 * 24 * 3600  # A test compares it with the engine's.
_SHOWN = ("name", "role", "recipes", "labels", "expires_at", "rotates_until")


@use_case("GET /api/keys", answers=list)
async def list_keys(folder: FolderClient) -> list[JsonObject]:
    """Return all keys, by name."""
    return [key.to_json() for key in folder.application.keys.list()]


@use_case("POST /api/keys", Access.START)
async def add_key(folder: FolderClient, new: key_requests.NewKey) -> JsonObject:
    """Add a key, and return it with its secret."""
    return (await folder.application.keys.add(new, authors.LOCAL)).to_json()


@use_case("POST /api/keys/{name}/rotate", Access.START)
async def rotate_key(folder: FolderClient, name: str, grace_seconds: int) -> JsonObject:
    """Give a key another secret, and return it."""
    return (await folder.application.keys.rotate(name, authors.LOCAL, grace_seconds)).to_json()


@use_case("DELETE /api/keys/{name}", Access.START, answers=None)
async def revoke_key(folder: FolderClient, name: str) -> None:
    """Remove a key."""
    await folder.application.keys.revoke(name, authors.LOCAL)


@click.group()
def keys() -> None:
    """Add, list, rotate and revoke API keys."""


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", help="Role of the key.  [default: viewer]")
@click.option(
    "--recipe", "recipes", multiple=True, metavar="ID", help="Limit the key to runs of this recipe; repeatable."
)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=TEXT", help="Limit the key to runs with this label; repeatable."
)
@click.option("--expires", "expires_at", metavar="INSTANT", help="When the key expires, e.g. 2027-02-10T00:00:00Z.")
@options.as_json
@options.anywhere
def add(place: options.Place, as_json: bool, name: str, role: str, **scope: Any) -> int:
    """Add a key and print its secret, which is shown only once."""
    from app.services import keys as key_requests

    labels = tuple(map(arguments.label, scope["labels"]))
    ends = arguments.instants(scope, "expires_at")
    new = key_requests.NewKey(
        name=name, role=Role(role), recipes=scope["recipes"], labels=labels, expires_at=ends["expires_at"]
    )
    found = place.ask(add_key, new)
    arguments.point_out_recipes(place, new.recipes)
    return exit_codes.shown(found, as_json, _secret)


def grace(text: str) -> int:
    """Return the seconds of a grace period; the type of its option.

    Raises:
        click.BadParameter: the text is not a duration, or is too long.
    """
    seconds = arguments.duration(text)
    if seconds > _LONGEST_GRACE_SECONDS:
        raise click.BadParameter("must be at most 7d")
    return seconds


@keys.command()
@click.argument("name")
@click.option(
    "--grace", "grace_seconds", type=grace, default="0", metavar="DURATION",
    help="How long the previous secret remains valid, e.g. 1h; at most 7d.  [default: 0]",
)  # fmt: skip
@options.as_json
@options.anywhere
def rotate(place: options.Place, as_json: bool, name: str, grace_seconds: int) -> int:
    """Give a key a new secret and print it."""
    return exit_codes.shown(place.ask(rotate_key, name, grace_seconds), as_json, _secret)


@keys.command()
@click.argument("name")
@options.as_json
@options.anywhere
def revoke(place: options.Place, as_json: bool, name: str) -> int:
    """Remove a key; its requests, sign-ins and streams end within a second."""
    place.ask(revoke_key, name)
    return exit_codes.shown({"name": name}, as_json, lambda found: f"{found['name']} is revoked")


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    typed = [{**key, "labels": list(map(arguments.shown_label, key["labels"]))} for key in found]
    rows = [[" ".join(value) if isinstance(value, list) else value for value in map(key.get, _SHOWN)] for key in typed]
    return formats.table(_SHOWN, rows, none="no keys")


def _secret(found: Mapping[str, Any]) -> str:
    return f"{found['name']} ({found['role']}): {found['secret']}\nKeep it: nothing can show it again."


keys.add_command(shown(list_keys, _table, "List the keys with their roles, scopes and expiry times.", name="list"))
