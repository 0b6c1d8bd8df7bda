"""The commands under `control-room runs`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app import interruption, printable
from app.cli import (
    arguments,
    exit_codes,
    formats,
    options,
    terminal,
    use_cases,
)
from app.cli.client import Client, JsonObject
from app.cli.lazy_commands import LazyCommands
from app.cli.plain_commands import removed, shown

if TYPE_CHECKING:
    from app.bootstrap import transfers

_MODULES = {
    "resume": "again",
    "unpause": "again",
    "fork": "again",
    "bulk": "bulk",
    "label": "marking",
    "pin": "marking",
    "unpin": "marking",
    "prune": "pruning",
    "collect": "pruning",
    "limits": "budgets",
    "why": "explaining",
    "request": "explaining",
    "verify": "verifying",
}
"""Module of each command that is not in this one."""


@click.group(commands=LazyCommands(_MODULES))
def runs() -> None:
    """List, show and control runs."""


@runs.command("list")
@arguments.by_state
@options.limit("runs")
@options.as_json
@options.anywhere
def list_runs(place: options.Place, as_json: bool, **filters: Any) -> int:
    """List runs, newest first."""
    query = arguments.run_query(**filters)
    found = place.ask(use_cases.list_runs, query)
    return exit_codes.shown(found, as_json, formats.runs)


@runs.command()
@click.argument("run_id")
@options.as_json
@options.anywhere
def show(place: options.Place, as_json: bool, run_id: str) -> int:
    """Show a run with its newest steps and its slots."""
    found = place.ask(use_cases.show_run, run_id)
    code = exit_codes.shown(found, as_json, formats.run)
    if place.server is None and found["status"] in ("running", "pending"):
        # Otherwise, a run of this folder that no process executes would seem to make progress.
        from app.cli import explaining

        for cause in place.ask(explaining.explain_run, run_id)["chain"]:
            if cause["kind"] == "not_executed":
                act = f"; continue with: {options.led(cause['act'])}" if cause["act"] else ""
                terminal.warn(f"{cause['text']}{act}")
    return code


runs.add_command(shown(use_cases.cancel_run, formats.moved, "Cancel an unfinished run.", "run_id", name="cancel"))
runs.add_command(
    removed(use_cases.delete_run, "Delete a finished run. Its receipts are kept.", "run_id", name="delete")
)
runs.add_command(shown(use_cases.list_steps, formats.steps, "Show the full step log.", "run_id", name="steps"))


@runs.command()
@click.argument("run_id")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this number.")
@options.as_json
@options.anywhere
def follow(place: options.Place, as_json: bool, run_id: str, after: int) -> int:
    """Stream a run's events until it stops; the exit code reports its state.

    With --json, one event per line.
    """

    from app.cli import following

    output = following.Shown.EVENTS if as_json else following.Shown.TEXT
    return place.work(lambda client: following.follow(client, run_id, output, after))


@runs.command()
@click.argument("run_id")
@click.option("--now", is_flag=True, help="Interrupt the steps in flight; they run again when the run continues.")
@options.as_json
@options.anywhere
def pause(place: options.Place, as_json: bool, run_id: str, now: bool) -> int:
    """Pause a run at its next step boundary."""
    return exit_codes.shown(place.ask(use_cases.pause_run, run_id, interrupt=now), as_json, formats.moved)


@runs.command()
@click.argument("run_id")
@options.as_json
@options.anywhere
def graph(place: options.Place, as_json: bool, run_id: str) -> int:
    """Show the graph of a run's recipe with the state of each node; `=>` marks an edge that the run took."""
    from app.cli import graph_text

    return exit_codes.shown(place.ask(use_cases.show_graph, run_id), as_json, graph_text.graph)


@runs.command()
@click.argument("run_id")
@click.argument("name", required=False)
@options.as_json
@options.anywhere
def slot(place: options.Place, as_json: bool, run_id: str, name: str | None) -> int:
    """Print the text of slot NAME, or its pointer; without NAME, list the slots."""
    if name is None:
        found = place.ask(use_cases.show_run, run_id)["cache_summary"]
        return exit_codes.shown(found, as_json, formats.slots)
    found = place.ask(use_cases.show_slot, run_id, name)
    if as_json or found.get("text") is None:
        terminal.say_json(found)
    else:
        terminal.say_exactly(found["text"])
    return exit_codes.ExitCode.DONE


@runs.command()
@click.argument("run_id")
@click.argument("name", required=False)
@click.option("--follow", "is_followed", is_flag=True, help="Print the log while it grows, until the run has ended.")
@options.as_json
@options.anywhere
def logs(place: options.Place, as_json: bool, is_followed: bool, run_id: str, name: str | None) -> int:
    """Print log NAME of a run; without NAME, list the logs."""
    if is_followed and (name is None or as_json):
        raise click.UsageError("--follow needs the name of a log, and prints text.")
    if is_followed and name is not None:
        return place.work(lambda client: _followed(client, run_id, name))
    if name is None:
        found = place.ask(use_cases.list_logs, run_id)
        return exit_codes.shown(found, as_json, lambda names: printable.block(names) or "no logs")
    text = place.ask(use_cases.show_log, run_id, name)
    if as_json:
        terminal.say_json({"name": name, "text": text})
    else:
        terminal.say_exactly(text)
    return exit_codes.ExitCode.DONE


@runs.command()
@click.argument("run_id")
@click.option("--dry-run", is_flag=True, help="Only show what would be cut off (the default).")
@click.option("--yes", is_flag=True, help="Apply the repair.")
@options.as_json
@options.anywhere
def repair(place: options.Place, as_json: bool, run_id: str, dry_run: bool, yes: bool) -> int:
    """Cut a damaged run back to its intact prefix; the damaged files are kept."""
    if dry_run and yes:
        raise click.UsageError("--dry-run changes nothing, --yes does: give one of them.")
    found: JsonObject = place.ask(use_cases.repair_run if yes else use_cases.plan_repair, run_id)
    return exit_codes.shown(found, as_json, formats.repaired)


@runs.command("export")
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder to copy to.",
)
@options.as_json
@options.in_folder
def export_runs(place: options.Place, as_json: bool, run_ids: tuple[str, ...], folder: Path) -> int:
    """Copy runs, by default all, from the store to FOLDER, byte for byte; stop the service first."""
    from app import bootstrap

    return _copied(interruption.run(bootstrap.export_runs(place.settings(), run_ids, folder)), as_json)


@runs.command("import")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER")
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
@options.as_json
@options.in_folder
def import_runs(place: options.Place, as_json: bool, run_ids: tuple[str, ...], folder: Path) -> int:
    """Copy runs, by default all, from FOLDER to the store; FOLDER is an export or a data directory.

    An imported unfinished run is listed, and continues after `runs resume`.
    """
    from app import bootstrap

    return _copied(interruption.run(bootstrap.import_runs(place.settings(), run_ids, folder)), as_json)


def _copied(found: Mapping[str, bool | transfers.Refusal], as_json: bool) -> int:
    refused = {run_id: refusal for run_id, refusal in found.items() if not isinstance(refusal, bool)}
    if as_json:
        reasons = {run_id: {"error": refusal.to_json()} for run_id, refusal in refused.items()}
        terminal.say_json([{"run_id": each, "copied": found[each] is True} | reasons.get(each, {}) for each in found])
    else:
        for refusal in refused.values():
            terminal.warn(*exit_codes.sentences(refusal))
        copied = sum(each is True for each in found.values())
        there = f"{printable.counted(copied, 'run')} copied, {len(found) - copied - len(refused)} already there"
        terminal.say(f"{there}, {len(refused)} could not be copied" if refused else there)
    return next(map(exit_codes.of_error, refused.values()), exit_codes.ExitCode.DONE)


async def _followed(client: Client, run_id: str, name: str) -> int:
    is_replaced = False
    async with aclosing(client.follow_log(run_id, name)) as texts:
        async for text in texts:
            if text is not None and is_replaced:
                terminal.warn("another log replaced this one, such as that of the next attempt; it begins here")
            if text is not None:
                terminal.say_piece(text)
            is_replaced = text is None
    return exit_codes.ExitCode.DONE
