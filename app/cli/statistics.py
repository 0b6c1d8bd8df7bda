"""The commands that count runs and sum their cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from app import errors, printable
from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, JsonObject, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.engine import run_sums, stores

_STEP_MINUTES = 15
_MOST_MINUTES = 14 * 60
_MOST_GATES = 1000


@use_case("GET /api/stats", Access.EXAMINE)
async def show_stats(folder: FolderClient) -> JsonObject:
    """Return counts over all runs; open gates of runs of any process are read from their files."""
    from app.services import gate_inbox

    shown: JsonObject = json.loads((await folder.application.statistics.stats()).body)
    open_gates, _ = await folder.application.gates.page(gate_inbox.GateQuery(limit=_MOST_GATES))
    shown["waits"]["gates"] = len(open_gates)
    return shown


@use_case("GET /api/usage", Access.EXAMINE)
async def show_usage(
    folder: FolderClient, by: run_sums.By, label_key: str | None, utc_offset: str, query: stores.RunQuery
) -> JsonObject:
    """Return sums of usage."""
    from app.engine import run_sums

    wanted = run_sums.UsageQuery(by=by, label_key=label_key, offset_minutes=_minutes(utc_offset), runs=query)
    return (await folder.application.statistics.usage(wanted)).to_json()


@click.command()
@options.as_json
@options.anywhere
def stats(place: options.Place, as_json: bool) -> int:
    """Show the number of runs, what waits for you, and today's spending (UTC)."""
    return exit_codes.shown(place.ask(show_stats), as_json, _stats)


@click.command()
@click.option(
    "--by",
    type=click.Choice(("recipe", "agent", "model", "label", "day")),
    default="recipe",
    show_default=True,
    help="Criterion by which the sums are grouped.",
)
@click.option("--label-key", metavar="NAME", help="Label whose values group the sums, with --by label.")
@click.option("--utc-offset", metavar="+HH:MM", default="+00:00", show_default=True, help="UTC offset of local days.")
@arguments.by_place
@options.as_json
@options.anywhere
def usage(
    place: options.Place, as_json: bool, by: run_sums.By, label_key: str | None, utc_offset: str, **filters: Any
) -> int:
    """Sum up the tokens and the cost of agent calls. The cost of deleted runs is not included."""
    if (by == "label") != (label_key is not None):
        raise errors.RequestInvalid("--label-key belongs to --by label: give both, or neither")
    _minutes(utc_offset)
    query = arguments.run_query(**filters)
    found = place.ask(show_usage, by, label_key, utc_offset, query)
    return exit_codes.shown(found, as_json, _usage)


def _minutes(utc_offset: str) -> int:
    hours, _, minutes = utc_offset[1:].partition(":")
    formed = utc_offset[:1] in ("+", "-") and len(utc_offset) == 6 and (hours + minutes).isdecimal()
    total = int(hours) * 60 + int(minutes) if formed else _MOST_MINUTES + 1
    if total > _MOST_MINUTES or total % _STEP_MINUTES or int(minutes) > 59:
        raise errors.RequestInvalid(f"--utc-offset: {utc_offset!r:.20} is not an offset such as +02:00")
    return -total if utc_offset[0] == "-" else total


def _stats(found: Mapping[str, Any]) -> str:
    waits, today, pool = found["waits"], found["today"], found["pool"]
    rows = [(name, str(count)) for name, count in found["runs"].items() if count]
    rows += [(f"waiting for you: {name}", str(count)) for name, count in waits.items() if count]
    rows += [(f"failed since {found['failed']['since']}", str(found["failed"]["count"]))]
    rows += [(f"spent since {today['since']}", _spend(today))]
    rows += [("slots", f"{pool['busy']} of {pool['slots']} busy, {pool['queued']} queued")]
    rows += [("engine", _engine(found["service"]))] if "service" in found else []
    return formats.table(("what", "count"), rows)


def _engine(service: Mapping[str, Any]) -> str:
    since = service.get("temporal_away_since")
    return f"{service['engine']}{f'; its server has not answered since {since}' if since else ''}"


def _spend(amounts: Mapping[str, Any]) -> str:
    reported, estimated = amounts["cost_usd"], amounts["cost_estimated_usd"]
    parts = [f"{reported:.4f} USD"] if reported is not None else []
    parts += [f"about {estimated:.4f} USD estimated"] if estimated is not None else []
    unpriced = amounts["calls_without_price"]
    parts += [f"{printable.counted(unpriced, 'call')} unpriced"] if unpriced else []
    silent = amounts["calls_silent"]
    parts += [f"{printable.counted(silent, 'call')} that reported nothing"] if silent else []
    tokens = f"{amounts['input_tokens']} tokens in, {amounts['output_tokens']} out"
    return ", ".join([*(parts or ["nothing"]), tokens])


def _usage(found: Mapping[str, Any]) -> str:
    names = ["runs", "calls", "calls_silent", "input_tokens", "output_tokens"]
    names += ["cost_usd", "cost_estimated_usd", "calls_without_price"]
    rows = [[row["name"] or "-", *(_amount(row[name]) for name in names)] for row in found["rows"]]
    rows.append(["total", *(_amount(found["total"][name]) for name in names)])
    return formats.table((found["by"], *names), rows)


def _amount(value: float | None) -> float | None:
    # Sums of prices have the rounding errors of binary fractions.
    return round(value, 9) if isinstance(value, float) else value
