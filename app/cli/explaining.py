"""The commands that explain a run: why it does not move, and the request of an open step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from app.cli import exit_codes, formats, options, terminal
from app.cli.client import JsonObject, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


@use_case("GET /api/runs/{run_id}/why")
async def explain_run(folder: FolderClient, run_id: str) -> JsonObject:
    """Return why a run does not move."""
    return (await folder.application.explanations.why(run_id)).to_json()


@use_case("GET /api/runs/{run_id}/request")
async def show_request(folder: FolderClient, run_id: str, key: str) -> JsonObject:
    """Return the request of an open step."""
    return (await folder.application.explanations.request(run_id, key)).to_json()


@click.command()
@click.argument("run_id")
@options.as_json
@options.anywhere
def why(place: options.Place, as_json: bool, run_id: str) -> int:
    """Explain why a run makes no progress, and what would let it continue."""
    return exit_codes.shown(place.ask(explain_run, run_id), as_json, formats.explanation)


@click.command()
@click.argument("run_id")
@click.argument("key")
@options.as_json
@options.anywhere
def request(place: options.Place, as_json: bool, run_id: str, key: str) -> int:
    """Print the request of the open step KEY: its prompt, command or arguments, and the agent that it asks."""
    found = place.ask(show_request, run_id, key)
    if as_json:
        terminal.say_json(found)
    else:
        terminal.say_block(formats.step_request(found))
        terminal.say_block(found["text"])
    return exit_codes.ExitCode.DONE
