"""The command `crashtest`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from app import printable
from app.cli import arguments, exit_codes, formats, options, terminal

COLUMNS = ("sweep", "points", "tried", "same", "restarted", "lost", "twice", "told", "hidden")
_SWEEPS = {
    "kill": "The process is killed at a write and started again.",
    "EIO, ENOSPC": "One write fails with this error.",
    "power loss": "Everything that was not synced is gone, names in folders included.",
    "one sync lies": "One sync reports success without being made; the power fails before the next sync of that file.",
    "read EIO, read EMFILE": "One file, or every file, cannot be read for a while, during the run or after a restart. "
    "Meanwhile list, detail, report and commands must agree.",
}
"""The disturbance of each sweep at every point."""
_MEANINGS = {
    "points": "Places in the undisturbed run at which the sweep can disturb it.",
    "tried": "Points that were disturbed, each in a run of its own.",
    "same": "Runs that ended exactly as the undisturbed run.",
    "restarted": "Runs whose process had to be started again.",
    "lost": "Steps, and answers to requests, that were durable and are missing afterwards.",
    "twice": "Steps that ran again although their record was durable, or more often than one interruption explains.",
    "told": "Runs that ended differently and report it: in an event, an error, a further attempt or the log.",
    "hidden": "Runs that ended differently, lost steps or showed contradictory states, and report nothing: undetected "
    "damage. It must be 0.",
}
"""The meaning of each column."""
_LYING = "Steps may be lost or run again only where a sync lied."


@click.command()
@click.argument("recipe", required=False)
@click.option("--confer", metavar="MESSAGE", help="Test a conference instead of a recipe.")
@click.option("--intent", metavar="TEXT", help="Test a session plan made from this intent instead of a recipe.")
@click.option(
    "--unattended",
    is_flag=True,
    help="Let a webhook, a file and a schedule start RECIPE, under a budget and with notifications.",
)
@click.option("--arg", "given", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="One argument; repeatable.")
@click.option("--args-file", type=click.Path(path_type=Path), metavar="FILE", help="JSON object of arguments.")
@click.option("--description", metavar="TEXT", help="The task, as text.  [default: the recipe's label]")
@click.option(
    "--replies", type=click.Path(path_type=Path, exists=True), metavar="FILE", help="Script with the agents' replies."
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help="Number of points to try in each sweep.  [default: all]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed that selects the points of a sample.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Number of parallel processes."
)
@click.option("--untraced", is_flag=True, help="Use probes and an in-memory disk even if a tracer is available.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the report to this file.",
)
@options.as_json
@options.in_folder
def crashtest(place: options.Place, as_json: bool, output: Path | None, **given: Any) -> int:
    """Crash RECIPE at every write and compare the endings; exit code 0 if nothing is lost, repeated or hidden.

    It works on private copies of the project, with scripted agents.
    """
    from app.crash_lab import crashtest as laboratory

    extent = laboratory.Extent(
        sample=given["sample"],
        seed=given["seed"],
        workers=given["workers"],
        replies=given["replies"],
        traced=not given["untraced"],
    )
    report = laboratory.crashtest(place.settings(), _asked(given), extent, terminal.warn)
    result = report.to_json()
    if output is not None:
        output.write_text(markdown(result), encoding="utf-8")
    if as_json:
        terminal.say_json(result)
    else:
        terminal.say_block(table(result))
    return exit_codes.ExitCode.DONE if report.holds else exit_codes.ExitCode.FAILED


def _asked(given: Mapping[str, Any]) -> Any:
    from app.services import conferences, requests
    from app.services.plans import requests as plan_requests

    named = [name for name in ("recipe", "confer", "intent") if given[name] is not None]
    if len(named) != 1:
        raise click.UsageError("Name a RECIPE, or give --confer or --intent.")
    if given["unattended"] and given["recipe"] is None:
        raise click.UsageError("--unattended belongs to a RECIPE.")
    if given["confer"] is not None:
        return conferences.NewConference(message=given["confer"])
    if given["intent"] is not None:
        # In the laboratory, no person answers the gate of a review.
        return plan_requests.NewPlan(intent=given["intent"], review="off")
    args = arguments.collect(given["given"], given["args_file"])
    asked = requests.StartRequest(recipe_id=given["recipe"], args=args, description=given["description"])
    if not given["unattended"]:
        return asked
    from app.crash_lab import unattended

    return unattended.Unattended(request=asked)


def table(result: Mapping[str, Any]) -> str:
    """Return a report as text."""
    shown = formats.table(COLUMNS, [[row[name] for name in COLUMNS] for row in result["sweeps"]])
    broken = [f"{trial['sweep']} at {trial['point']}: {_why(trial)}" for trial in result["broken"]]
    verdict = (
        "every promise holds" if result["holds"] else "broken promises:" if broken else "not every sweep was tried"
    )
    return f"{shown}\n\n" + printable.block([verdict, *broken, *_logs(result)])


def markdown(result: Mapping[str, Any]) -> str:
    """Return a report as a Markdown document."""
    heading = f"# Crash laboratory: `{result['recipe_id']}`"
    extent = "every point" if result["sample"] is None else f"{result['sample']} points a sweep, seed {result['seed']}"
    rows = [f"| {' | '.join(str(row[name]) for name in COLUMNS)} |" for row in result["sweeps"]]
    lines = [
        heading, "", f"Made by `control-room crashtest`: {extent}.", "", f"| {' | '.join(COLUMNS)} |",
        f"| --- |{' ---: |' * (len(COLUMNS) - 1)}", *rows, "",
        *_defined("sweep", _SWEEPS), *_defined("column", _MEANINGS), _LYING, "",
        "Every promise holds." if result["holds"] else "Broken promises:",
        *(f"- {trial['sweep']}, `{trial['point']}`: {_why(trial)}" for trial in result["broken"]),
        *_logs(result),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _defined(heading: str, meanings: Mapping[str, str]) -> Iterator[str]:
    yield from (f"| {heading} | meaning |", "| --- | --- |")
    yield from (f"| {name} | {meaning} |" for name, meaning in meanings.items())
    yield ""


def _logs(result: Mapping[str, Any]) -> Iterator[str]:
    for trial in result["broken"]:
        if trial["log"]:
            yield from ("", f"What was logged, {trial['sweep']} at {trial['point']}:", "")
            yield from (f"    {line}" for line in printable.lines(trial["log"].rstrip("\n")))


def _why(trial: Mapping[str, Any]) -> str:
    parts = [
        trial["note"],
        trial["lost"] and f"lost {', '.join(trial['lost'])}",
        trial["twice"] and f"executed twice {', '.join(trial['twice'])}",
        trial["hidden"] and "not told",
    ]
    return "; ".join(part for part in parts if part)
