"""The command that gives one order to many runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from app import errors
from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, JsonObject, use_case

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.engine import stores
    from app.services import bulk as orders


def _filter(query: stores.RunQuery) -> dict[str, Any]:
    given = {item.name: getattr(query, item.name) for item in dataclasses.fields(query)}
    changed = {name: value for name, value in given.items() if value not in (None, False) and name != "limit"}
    if query.label is not None:
        changed["label"] = ":".join(query.label)
    return changed


def _bulk_body(order: orders.BulkOrder) -> dict[str, Any]:
    chosen = {} if order.filter is None else {"filter": _filter(order.filter)}
    named = {} if order.run_ids is None else {"run_ids": list(order.run_ids)}
    counted = {} if order.expected is None else {"expected": order.expected}
    given = {"labels": dict(order.marks.labels), "pinned": order.marks.pinned}
    marks = {name: value for name, value in given.items() if value not in (None, {})}
    return {"action": order.action, "dry_run": order.dry_run, **chosen, **named, **counted, **marks}


@use_case("POST /api/runs/bulk", Access.CHANGE, body=_bulk_body)
async def give_order(folder: FolderClient, order: orders.BulkOrder) -> JsonObject:
    """Give one order to many runs; only a service can continue runs in its own pool."""
    raise errors.RequestInvalid("an order to many runs needs the service: add --server", code="server_only")


@click.command()
@click.argument("action", type=click.Choice(("cancel", "pause", "unpause", "resume", "label", "delete")))
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
@arguments.by_state
@click.option("--expected", type=click.IntRange(0), metavar="COUNT", help="Expected number of runs.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=TEXT|NAME-", help="With `label`: label to set or remove."
)
@click.option("--pin/--unpin", "pinned", default=None, help="With `label`: whether retention keeps the runs.")
@options.as_json
@options.anywhere
def bulk(
    place: options.Place,
    as_json: bool,
    action: orders.Action,
    run_ids: tuple[str, ...],
    expected: int | None,
    changes: tuple[str, ...],
    pinned: bool | None,
    **filters: Any,
) -> int:
    """Give one order to many runs of a service, by id or by filter.

    A filter without --expected only counts the runs.
    """
    from app.engine import run_engine
    from app.services import bulk as orders

    wanted = any(filters.values())
    if wanted == bool(run_ids):
        raise errors.RequestInvalid("name the runs, or select them by an option such as --status, but not both")
    if (action == "label") != bool(changes or pinned is not None):
        raise errors.RequestInvalid("`label`, and no other action, needs --set, --pin or --unpin")
    order = orders.BulkOrder(
        action=action,
        run_ids=run_ids or None,
        filter=arguments.run_query(**filters) if wanted else None,
        expected=expected,
        # Only count at first: an order by filter needs the number of runs that the caller has seen.
        dry_run=wanted and expected is None,
        marks=run_engine.Marks(labels=arguments.label_changes(changes), pinned=pinned),
    )
    found = place.ask(give_order, order)
    exit_codes.shown(found, as_json, lambda answer: formats.bulk(answer, counted=order.dry_run))
    return exit_codes.ExitCode.FAILED if found["refused"] else exit_codes.ExitCode.DONE
