"""The commands under `receipts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from app.cli import exit_codes, formats, options, use_cases
from app.cli.plain_commands import shown


@click.group()
def receipts() -> None:
    """Read receipts of tool executions."""


@receipts.command("list")
@click.option("--run", "run_id", metavar="ID", help="Only receipts of this run.")
@click.option("--session", "session_id", metavar="ID", help="Only receipts of this work session.")
@options.limit("receipts")
@options.as_json
@options.anywhere
def list_(place: options.Place, as_json: bool, **filters: Any) -> int:
    """List receipts, session by session, oldest first."""
    from app.domain import receipts as domain_receipts

    query = domain_receipts.ReceiptQuery(**filters)
    return exit_codes.shown(place.ask(use_cases.list_receipts, query), as_json, _table)


receipts.add_command(
    shown(
        use_cases.show_receipt,
        formats.receipt,
        "Show a receipt with its arguments and payload, and whether it is unchanged.",
        "receipt_id",
    )
)


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return "no receipts"
    names = ("receipt_id", "session_id", "run_id", "tool", "completed_at", "key")
    return formats.table(names, [[receipt[name] for name in names] for receipt in found])
