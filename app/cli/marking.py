"""The commands that label and pin runs, whatever their state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from app import printable
from app.cli import arguments, exit_codes, options
from app.cli.client import Access, JsonObject, use_case
from app.domain import authors

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient


def _body(run_id: str, labels: Mapping[str, str | None], pinned: bool | None) -> dict[str, Any]:
    return {"labels": dict(labels), "pinned": pinned}


@use_case("PATCH /api/runs/{run_id}", Access.CHANGE, body=_body)
async def mark_run(
    folder: FolderClient, run_id: str, labels: Mapping[str, str | None], pinned: bool | None
) -> JsonObject:
    """Change a run's labels or its pin."""
    from app.engine import run_engine

    marks = run_engine.Marks(labels=labels, pinned=pinned)
    return (await folder.application.runs.mark(run_id, marks, authors.LOCAL)).to_json()


@click.command()
@click.argument("run_id")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=TEXT|NAME-...")
@options.as_json
@options.anywhere
def label(place: options.Place, as_json: bool, run_id: str, changes: tuple[str, ...]) -> int:
    """Set labels of a run (NAME=TEXT) or remove them (NAME-); also works for ended runs."""
    found = place.ask(mark_run, run_id, arguments.label_changes(changes), None)
    return exit_codes.shown(found, as_json, _shown)


def _pinning(name: str, meaning: str, *, pinned: bool) -> click.Command:
    @click.command(name, help=meaning)
    @click.argument("run_id")
    @options.as_json
    @options.anywhere
    def pinning(place: options.Place, as_json: bool, run_id: str) -> int:
        return exit_codes.shown(place.ask(mark_run, run_id, {}, pinned), as_json, _shown)

    return pinning


pin = _pinning("pin", "Keep a run regardless of its age: retention does not remove it.", pinned=True)
unpin = _pinning("unpin", "Let retention remove a run again.", pinned=False)


def _shown(found: JsonObject) -> str:
    labels = ", ".join(f"{name}={text}" for name, text in sorted(found["labels"].items())) or "no labels"
    return printable.one_line(f"run {found['run_id']}{' (pinned)' if found['pinned'] else ''}: {labels}")
