"""
The commands that execute: `run`, and following a run to its rest.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli import arguments, endings, formats, options, terminal
from app.cli.progress import Progress

if TYPE_CHECKING:
    from app.cli import client
    from app.control import requests

_OVER = ("done", "failed", "cancelled")
_AT_REST = (*_OVER, "paused", "waiting")


@click.command()
@click.argument("recipe")
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
@click.option("--args-file", type=click.Path(path_type=Path), metavar="FILE", help="JSON object of arguments.")
@click.option("--description", metavar="TEXT", help="The task, as text.  [default: the recipe's label]")
@click.option("--working-dir", metavar="DIR", help="Folder that tools and agents work in.  [default: the project]")
@click.option("--session", "session_id", metavar="ID", help="Work session that the run belongs to.")
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="A label to find the run by; repeatable.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, help="Higher goes first.")
@click.option("--idempotency-key", metavar="KEY", help="A repetition with the same key finds the same run.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the steps; start nothing.")
@click.option("--detach", is_flag=True, help="With --server: do not wait for the end.")
@options.as_json
@options.anywhere
def run(place: options.Place, as_json: bool, dry_run: bool, detach: bool, **given: Any) -> int:
    """
    Run RECIPE and show its progress.

    Without --server the run executes in this process. Ctrl-C stops it so that `runs resume` can continue it; a second
    one does not wait for the step in flight.
    """
    request = _request(**given)
    if dry_run:
        return _plan(place, request, as_json)
    if detach and place.server is None:
        raise click.UsageError("--detach needs --server: without a service nobody would go on with the run.")
    if detach:
        return _detach(place, request, as_json)

    async def work(connected: client.Client) -> int:
        started = await connected.start(request)
        return await follow(connected, started["run_id"], Output.DETAIL if as_json else Output.TEXT)

    return place.ask(work, options.Access.START)


class Output(Enum):
    """
    How a run that is followed is shown.
    """

    TEXT = "text"
    """Step by step, for people."""
    DETAIL = "detail"
    """The run as one JSON object, at its rest."""
    EVENTS = "events"
    """One event a line, as JSON."""


async def follow(connected: client.Client, run_id: str, output: Output, after: int = 0) -> int:
    """
    Show a run until it rests; return the exit code that tells how it stands.
    """
    progress = Progress(live=terminal.is_live())
    try:
        while True:
            async for event in connected.follow(run_id, after):
                after = event["seq"]
                if output is Output.TEXT:
                    progress.show(event)
                elif output is Output.EVENTS:
                    terminal.say_json(event, one_line=True)
            detail = await connected.detail(run_id)
            if connected.executes or detail["status"] in _AT_REST:
                break
    finally:
        progress.finish()
    _tell_rest(detail, output)
    return endings.of_status(detail["status"])


def _tell_rest(detail: dict[str, Any], output: Output) -> None:
    if output is Output.DETAIL:
        terminal.say_json(detail)
    elif output is Output.TEXT and detail["status"] not in _OVER:
        terminal.say(f"run {detail['run_id']} {detail['status']}: {detail.get('reason') or 'at rest'}")
    if detail.get("error"):
        terminal.warn(f"{detail['status']}: {formats.error(detail['error'])}")


def _request(
    recipe: str, given: tuple[str, ...], args_file: Path | None, labels: tuple[str, ...], **plain: Any
) -> requests.StartRequest:
    from app.control import requests

    return requests.StartRequest(
        recipe_id=recipe,
        args=arguments.collect(given, args_file),
        labels=arguments.labels(labels),
        parent_run_id=os.environ.get("CONTROL_ROOM_RUN_ID") or None,
        **plain,
    )


def _plan(place: options.Place, request: requests.StartRequest, as_json: bool) -> int:
    plan = place.ask(lambda connected: connected.plan(request))
    if as_json:
        terminal.say_json(plan)
    else:
        terminal.say(formats.plan(plan))
    return endings.ExitCode.DONE


def _detach(place: options.Place, request: requests.StartRequest, as_json: bool) -> int:
    started = place.ask(lambda connected: connected.start(request), options.Access.START)
    if as_json:
        terminal.say_json(started)
    else:
        terminal.say(f"run {started['run_id']} {started['status']}")
    return endings.ExitCode.DONE
