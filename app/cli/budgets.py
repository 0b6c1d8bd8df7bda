"""The commands under `budgets`, and `runs limits`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from app import printable
from app.cli import arguments, exit_codes, formats, options, terminal
from app.cli.client import Access, Client, JsonObject, use_case
from app.cli.plain_commands import shown
from app.domain import authors
from app.domain.limits import RANGES, RunLimits

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.domain.budgets import Budget

_ACTIVE = "Maximum time during which steps of the run are executing."
_OF_OPTIONS = {
    "cost": "cost_usd", "tokens": "tokens", "calls": "calls", "time": "wall_seconds", "active-time": "active_seconds",
}  # fmt: skip
_COLUMNS = ("name", "covers", "limit", "spent", "reserved", "left", "begins anew")


def _budget_body(name: str, budget: Budget) -> dict[str, Any]:
    return {field: value for field, value in budget.to_json().items() if field != "name" and value is not None}


def _limits_body(run_id: str, given: Mapping[str, float | None]) -> Mapping[str, Any]:
    return given


@use_case("GET /api/budgets", Access.EXAMINE, answers=list)
async def list_budgets(folder: FolderClient) -> list[JsonObject]:
    """Return all budgets, by name."""
    return [found.to_json() for found in await folder.application.budgets.list()]


@use_case("PUT /api/budgets/{name}", Access.START, body=_budget_body)
async def put_budget(folder: FolderClient, name: str, budget: Budget) -> JsonObject:
    """Create a budget, or replace the one of its name."""
    return (await folder.application.budgets.put(budget, authors.LOCAL)).to_json()


@use_case("DELETE /api/budgets/{name}", Access.START, answers=None)
async def remove_budget(folder: FolderClient, name: str) -> None:
    """Remove a budget."""
    await folder.application.budgets.remove(name, authors.LOCAL)


@use_case("PATCH /api/runs/{run_id}/limits", Access.CHANGE, body=_limits_body)
async def limit_run(folder: FolderClient, run_id: str, given: Mapping[str, float | None]) -> JsonObject:
    """Change limits of a run."""
    return (await folder.application.budgets.limit(run_id, given, authors.LOCAL)).to_json()


def run_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options with limits of a run."""
    active = click.option("--max-active-time", "active_seconds", type=arguments.duration, metavar="30m", help=_ACTIVE)
    wall = click.option(
        "--max-time",
        "wall_seconds",
        type=arguments.duration,
        metavar="2h",
        help="Maximum time since the run first started.",
    )
    return spending_limits(wall(active(command)))


def spending_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options with limits for the calls of agents."""
    calls = click.option("--max-calls", "calls", type=int, metavar="N", help="Maximum number of agent calls.")
    tokens = click.option(
        "--max-tokens", "tokens", type=int, metavar="N", help="Maximum number of tokens that agents read and write."
    )
    cost = click.option("--max-cost", "cost_usd", type=float, metavar="USD", help="Maximum cost of agent calls.")
    return cost(tokens(calls(command)))


@click.group()
def budgets() -> None:
    """List and change budgets shared by several runs."""


@budgets.command("set")
@click.argument("name")
@click.option("--recipe", "recipe_id", metavar="ID", help="Count only runs of this recipe; '' counts all.")
@click.option("--label", metavar="NAME=TEXT", help="Count only runs with this label; '' counts all.")
@click.option(
    "--session", "session_id", metavar="ID", help="Count only runs of this work session or its plans; '' counts all."
)
@click.option(
    "--per-day/--not-per-day", default=None, help="Apply the limits to each day separately, or to all spending."
)
@click.option("--time-zone", metavar="ZONE", help="Time zone in which a day begins.  [default: UTC]")
@spending_limits
@click.option("--lift", "lifted", multiple=True, metavar="LIMIT", help="Limit to remove, e.g. max-cost; repeatable.")
@options.as_json
@options.anywhere
def set_(place: options.Place, as_json: bool, name: str, lifted: tuple[str, ...], **given: Any) -> int:
    """Create the budget NAME or change it; omitted options keep their values. Paused runs that fit into it continue."""
    from app.domain import budgets as values

    lifted = _named(lifted, values.MONEY)
    if given["label"]:
        given["label"] = arguments.label(given["label"])

    async def put(client: Client) -> JsonObject:
        known = {budget["name"]: budget for budget in await client.call(list_budgets)}
        changed = _changed(name, known.get(name, {}), given, lifted)
        if not values.limits_money(changed.limits):
            raise click.UsageError("A budget needs a limit: give --max-cost, --max-tokens or --max-calls.")
        if given["time_zone"] and changed.per is None:
            raise click.UsageError("--time-zone belongs to --per-day: give that, too.")
        return await client.call(put_budget, name, changed)

    found = place.work(put, put_budget.access)
    arguments.point_out_recipes(place, [given["recipe_id"]])
    return exit_codes.shown(found, as_json, lambda shown: _table([shown]))


def _changed(name: str, known: Mapping[str, Any], given: Mapping[str, Any], lifted: Sequence[str]) -> Budget:
    from app.domain import budgets as values

    named = {each: value for each, value in given.items() if value is not None}
    amounts = {each: named.pop(each) for each in values.MONEY if each in named} | dict.fromkeys(lifted)
    kept = {each: known[each] for each in ("recipe_id", "label", "session_id", "per", "time_zone") if each in known}
    if "per_day" in named:
        kept["per"] = "day" if named.pop("per_day") else None
    if kept.get("per") is None:
        kept.pop("time_zone", None)
    limits = RunLimits.from_json(known.get("limits", {})).changed(amounts)
    return values.Budget(name=name, limits=limits, **kept | {each: value or None for each, value in named.items()})


def _named(lifted: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the limits that were named, by their own names or by those of their options."""
    found = tuple(_OF_OPTIONS.get(name.removeprefix("--").removeprefix("max-"), name) for name in lifted)
    if unknown := [name for name in found if name not in known]:
        raise click.UsageError(f"--lift {unknown[0]}: there is no such limit; there are {', '.join(known)}")
    return found


@budgets.command()
@click.argument("name")
@options.anywhere
def remove(place: options.Place, name: str) -> int:
    """Remove the budget NAME. Runs that it paused continue."""
    place.ask(remove_budget, name)
    terminal.say(f"budget {name} removed")
    return exit_codes.ExitCode.DONE


@click.command()
@click.argument("run_id")
@run_limits
@click.option("--lift", "lifted", multiple=True, metavar="LIMIT", help="Limit to remove, e.g. max-cost; repeatable.")
@options.as_json
@options.anywhere
def limits(place: options.Place, as_json: bool, run_id: str, lifted: tuple[str, ...], **given: Any) -> int:
    """Change the limits of an unfinished run; a service continues one paused at a limit if it now fits."""
    lifted = _named(lifted, RANGES)
    changes = {name: value for name, value in given.items() if value is not None} | dict.fromkeys(lifted)
    found = place.ask(limit_run, run_id, changes)
    code = exit_codes.shown(found, as_json, _limited)
    if place.server is None and found["status"] == "paused":
        terminal.warn(f"continue it with: control-room runs unpause {run_id}{options.again()}")
    return code


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    return formats.table(_COLUMNS, [row for budget in found for row in _rows(budget)], none="no budgets")


def _rows(budget: Mapping[str, Any]) -> list[list[Any]]:
    scope = {**budget, "label": arguments.shown_label(budget["label"] or "")}
    covers = [f"{name} {scope[name]}" for name in ("recipe_id", "label", "session_id") if scope[name]]
    return [
        [budget["name"], ", ".join(covers) or "all runs", *amounts, budget["turns_at"] or "never"]
        for amounts in _amounts(budget)
    ]


def _amounts(state: Mapping[str, Any]) -> list[list[str]]:
    used, reserved, left = state["used"], state["reserved"], state["left"]
    rows = []
    for name in left:
        spent = used[name] if name != "cost_usd" else (used["cost_usd"] or 0) + (used["cost_estimated_usd"] or 0)
        limit = state["limits"][name]
        limited, *amounts = map(printable.amount, (limit, spent, reserved.get(name, 0), left[name]))
        rows.append([f"{name} {limited}", *amounts])
    return rows


def _limited(found: Mapping[str, Any]) -> str:
    rows = _amounts(found["budget"])
    state = f"run {found['run_id']} is {found['status']}"
    return f"{state}\n{formats.table(_COLUMNS[2:6], rows)}" if rows else state


budgets.add_command(shown(list_budgets, _table, "List budgets, with their spent and remaining amounts.", name="list"))
