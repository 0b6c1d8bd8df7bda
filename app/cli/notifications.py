"""The commands under `notifications`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app import printable
from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, JsonObject, use_case
from app.cli.plain_commands import removed, shown
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.services.notifications import requests

KINDS = ("waits", "failed", "done", "stalled", "budget", "refused")
"""Kinds of messages; a test compares them with the engine's."""

_NO_LETTERS = "no dead letters; `notifications failing` lists messages that are tried again"


@use_case("GET /api/notifications/endpoints", answers=list)
async def list_endpoints(folder: FolderClient) -> list[JsonObject]:
    """Return all endpoints, newest first."""
    return [endpoint.to_json() for endpoint in await folder.application.unattended.endpoints.list_endpoints()]


@use_case("POST /api/notifications/endpoints", Access.CHANGE)
async def add_endpoint(folder: FolderClient, new: requests.NewEndpoint) -> JsonObject:
    """Add an endpoint."""
    return (await folder.application.unattended.endpoints.add(new, authors.LOCAL))[0].to_json()


@use_case("PATCH /api/notifications/endpoints/{endpoint_id}", Access.CHANGE, body=lambda _, changes: changes)
async def edit_endpoint(folder: FolderClient, endpoint_id: str, changes: Mapping[str, Any]) -> JsonObject:
    """Change an endpoint."""
    from app.services.notifications import requests

    edit = requests.EndpointEdit(changes=changes)
    return (await folder.application.unattended.endpoints.edit(endpoint_id, edit, authors.LOCAL)).to_json()


@use_case("DELETE /api/notifications/endpoints/{endpoint_id}", Access.CHANGE, answers=None)
async def remove_endpoint(folder: FolderClient, endpoint_id: str) -> None:
    """Remove an endpoint."""
    await folder.application.unattended.endpoints.remove(endpoint_id, authors.LOCAL)


@use_case("POST /api/notifications/endpoints/{endpoint_id}/test", Access.CHANGE)
async def try_endpoint(folder: FolderClient, endpoint_id: str) -> JsonObject:
    """Send a test message."""
    return (await folder.application.unattended.endpoints.test(endpoint_id)).to_json()


@use_case("GET /api/notifications/endpoints/{endpoint_id}/dead", answers=list)
async def list_dead(folder: FolderClient, endpoint_id: str) -> list[JsonObject]:
    """Return the messages that were given up."""
    return [letter.to_json() for letter in await folder.application.unattended.endpoints.list_dead(endpoint_id)]


@use_case("POST /api/notifications/endpoints/{endpoint_id}/replay", Access.CHANGE)
async def replay_letters(folder: FolderClient, endpoint_id: str, message_id: str | None) -> JsonObject:
    """Deliver dead letters again when the service runs."""
    return {"replayed": await folder.application.unattended.endpoints.replay(endpoint_id, message_id, authors.LOCAL)}


@use_case("GET /api/notifications/endpoints/{endpoint_id}/failing", answers=list)
async def list_failing(folder: FolderClient, endpoint_id: str) -> list[JsonObject]:
    """Return the messages that are being retried."""
    return [each.to_json() for each in await folder.application.unattended.endpoints.list_failing(endpoint_id)]


@use_case("POST /api/notifications/endpoints/{endpoint_id}/give-up", Access.CHANGE)
async def give_up_messages(folder: FolderClient, endpoint_id: str, message_id: str | None) -> JsonObject:
    """Give up messages."""
    return {"given_up": await folder.application.unattended.endpoints.give_up(endpoint_id, message_id, authors.LOCAL)}


@click.group()
def notifications() -> None:
    """Notify people and programs about runs."""


@notifications.command()
@click.option("--webhook", "url", metavar="URL", help="Address to post messages to, signed as Standard Webhooks.")
@click.option(
    "--signing-secret-file", type=click.Path(path_type=Path), metavar="FILE", help="File with the signing secret."
)
@click.option("--email", "to", multiple=True, metavar="ADDRESS", help="E-mail address to send messages to; repeatable.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only messages of this kind; repeatable."
)
@click.option("--recipe", "recipe_id", metavar="ID", help="Only runs of this recipe.")
@click.option("--label", metavar="NAME=TEXT", help="Only runs with this label.")
@click.option("--name", metavar="TEXT", help="Display name.")
@arguments.repeatable("Repeating the command returns the same endpoint.")
@click.argument("argv", nargs=-1, metavar="[-- PROGRAM [ARGUMENT]...]")
@options.as_json
@options.anywhere
def add(place: options.Place, as_json: bool, signing_secret_file: Path | None, **given: Any) -> int:
    """Add an endpoint: --webhook, --email, or a program that reads the message as JSON on standard input.

    The secret of a webhook is shown now, and never again.
    """
    from app.services.notifications import requests

    if sum(bool(given[name]) for name in ("url", "to", "argv")) != 1:
        raise click.UsageError("Give exactly one of --webhook URL, --email ADDRESS and -- PROGRAM.")
    if given["label"]:
        given["label"] = arguments.label(given["label"])
    secret = None if signing_secret_file is None else arguments.read_text(signing_secret_file).strip()
    new = requests.NewEndpoint(signing_secret=secret, **given)
    return exit_codes.shown(place.ask(add_endpoint, new), as_json, _one)


@notifications.command()
@click.argument("endpoint_id")
@click.option("--webhook", "url", metavar="URL", help="New address of a webhook.")
@click.option(
    "--signing-secret-file", type=click.Path(path_type=Path), metavar="FILE", help="File with the new signing secret."
)
@click.option("--new-secret", is_flag=True, help="Generate a new secret and show it.")
@click.option("--email", "to", multiple=True, metavar="ADDRESS", help="New e-mail address; repeatable.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice((*KINDS, "all")), help="Only messages of this kind; repeatable."
)
@click.option("--recipe", "recipe_id", metavar="ID", help="Only runs of this recipe; '' means all.")
@click.option("--label", metavar="NAME=TEXT", help="Only runs with this label; '' means all.")
@click.option("--name", metavar="TEXT", help="Display name.")
@click.argument("argv", nargs=-1, metavar="[-- PROGRAM [ARGUMENT]...]")
@options.as_json
@options.anywhere
def edit(
    place: options.Place,
    as_json: bool,
    endpoint_id: str,
    signing_secret_file: Path | None,
    new_secret: bool,
    **given: Any,
) -> int:
    """Change an endpoint; omitted options keep their values."""
    changes = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value}
    changes |= {name: None for name in ("recipe_id", "label") if given[name] == ""}
    if given["label"]:
        changes["label"] = arguments.label(given["label"])
    if "all" in given["kinds"]:
        changes["kinds"] = []
    if signing_secret_file is not None:
        changes["signing_secret"] = arguments.read_text(signing_secret_file).strip()
    elif new_secret:
        changes["signing_secret"] = None
    return exit_codes.shown(place.ask(edit_endpoint, endpoint_id, changes), as_json, _one)


@notifications.command()
@click.argument("endpoint_id")
@options.as_json
@options.anywhere
def test(place: options.Place, as_json: bool, endpoint_id: str) -> int:
    """Send a test message now; exit code 1 if it is not delivered."""
    found = place.ask(try_endpoint, endpoint_id)
    exit_codes.shown(found, as_json, _tried)
    return exit_codes.ExitCode.DONE if found["delivered"] else exit_codes.ExitCode.FAILED


@notifications.command()
@click.argument("endpoint_id")
@click.argument("message_id", required=False)
@options.as_json
@options.anywhere
def replay(place: options.Place, as_json: bool, endpoint_id: str, message_id: str | None) -> int:
    """Deliver a message, or without MESSAGE_ID all dead letters, again as soon as the service runs."""
    found = place.ask(replay_letters, endpoint_id, message_id)
    return exit_codes.shown(found, as_json, lambda answer: f"{_messages(answer['replayed'])} will be delivered again")


@notifications.command("give-up")
@click.argument("endpoint_id")
@click.argument("message_id", required=False)
@options.as_json
@options.anywhere
def give_up(place: options.Place, as_json: bool, endpoint_id: str, message_id: str | None) -> int:
    """Give up a message, or without MESSAGE_ID all failing messages; they become dead letters."""
    found = place.ask(give_up_messages, endpoint_id, message_id)
    return exit_codes.shown(found, as_json, lambda answer: f"{_messages(answer['given_up'])} will not be tried again")


def _messages(count: int) -> str:
    return printable.counted(count, "message")


def _rows(found: Sequence[Mapping[str, Any]]) -> str:
    names = ("endpoint_id", "name", "channel", "receives", "waiting", "dead", "attempts", "next_try_at", "last_error")
    rows = [[_received(one) if name == "receives" else one[name] for name in names] for one in found]
    return formats.table(names, rows, none="no endpoints", whole=True)


def _one(found: Mapping[str, Any]) -> str:
    secret = f"\nsigning secret: {found['signing_secret']}" if found.get("signing_secret") else ""
    warning = found.get("warning")
    lacks = f"\nwarning: {warning}; without that, the service delivers nothing to it" if warning else ""
    return f"endpoint {found['endpoint_id']} receives {_received(found)} by {found['channel']}{secret}{lacks}"


def _received(one: Mapping[str, Any]) -> str:
    recipe = f" of {one['recipe_id']}" if one["recipe_id"] else ""
    label = f" with {one['label'].replace(':', '=', 1)}" if one["label"] else ""
    return f"{', '.join(one['kinds']) or 'everything'}{recipe}{label}"


def _tried(found: Mapping[str, Any]) -> str:
    return f"{'delivered' if found['delivered'] else 'not delivered'}: {found['detail']}"


def _letters(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (one["message"]["message_id"], one["message"]["run_id"], one["message"]["kind"], one["attempts"], one["error"])
        for one in found
    ]
    return formats.table(("message_id", "run_id", "kind", "attempts", "error"), rows, none=_NO_LETTERS, whole=True)


notifications.add_command(
    shown(list_endpoints, _rows, "List endpoints and the messages that they receive.", name="list")
)


def _failing(found: Sequence[Mapping[str, Any]]) -> str:
    names = ("message_id", "run_id", "kind", "behind", "attempts", "next_try_at", "error")
    rows = [[one[name] for name in names] for one in found]
    return formats.table(names, rows, none="no message is tried again", whole=True)


notifications.add_command(
    shown(list_failing, _failing, "List the messages that are being retried.", "endpoint_id", name="failing")
)
notifications.add_command(
    shown(
        list_dead,
        _letters,
        "List the messages that could not be delivered.",
        "endpoint_id",
        name="dead",
    )
)
notifications.add_command(removed(remove_endpoint, "Remove an endpoint with its dead letters.", "endpoint_id"))
