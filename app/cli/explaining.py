"""The command `runs why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from app.cli import exit_codes, formats, options
from app.cli.client import Answer, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


@use_case("GET /api/runs/{run_id}/why")
async def explain_run(folder: FolderClient, run_id: str) -> Answer:
    """Return why a run does not move."""
    return (await folder.application.explanations.why(run_id)).to_json()


@click.command()
@click.argument("run_id")
@options.as_json
@options.anywhere
def why(place: options.Place, as_json: bool, run_id: str) -> int:
    """Explain why a run does not move, and what sends it on."""
    return exit_codes.shown(place.ask(explain_run, run_id), as_json, formats.explanation)
