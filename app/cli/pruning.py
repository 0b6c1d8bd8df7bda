"""The commands that remove old runs and unused objects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from app import printable
from app.cli import arguments, exit_codes, formats, options
from app.cli.client import Access, JsonObject, use_case
from app.domain import authors, retention

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient

_LEAST_AGE_SECONDS = 3600
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def size(text: str) -> int:
    """Return the bytes of an option that takes a size; the type of such options.

    Raises:
        click.BadParameter: the text is not a size.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r:.80} is not a size; write it as 500M or 10G")
    return int(found[1]) * _UNITS[found[2].upper()]


def _body(rule: retention.Rule, expected: int | None) -> dict[str, Any]:
    counted = {} if expected is None else {"expected": expected}
    return {**_rule(rule), "dry_run": expected is None, **counted}


def _rule(rule: retention.Rule) -> dict[str, Any]:
    return {name: value for name, value in rule.to_json().items() if value is not None}


@use_case("POST /api/runs/prune", Access.CHANGE, body=_body)
async def prune_runs(folder: FolderClient, rule: retention.Rule, expected: int | None) -> JsonObject:
    """Remove the runs that a rule selects; without a number, only report them."""
    report = await folder.application.unattended.retention.prune(
        rule, dry_run=expected is None, expected=expected, author=authors.LOCAL
    )
    await folder.application.store.sweep()
    return report.to_json()


@click.command()
@click.option(
    "--older-than",
    type=arguments.duration,
    metavar="DURATION",
    help="Only runs that ended longer ago than this, e.g. 30d.",
)
@click.option("--keep-size", type=size, metavar="SIZE", help="Only the oldest runs beyond this total size, e.g. 10G.")
@click.option(
    "--status", type=click.Choice(retention.FINISHED), multiple=True, help="Only runs in this state; repeatable."
)
@click.option("--recipe", "recipe_id", metavar="ID", help="Only runs of this recipe.")
@click.option("--label", "given", multiple=True, metavar="NAME=TEXT", help="Only runs with this label; repeatable.")
@click.option(
    "--expected", type=click.IntRange(0), metavar="COUNT", help="Remove the runs only if exactly COUNT match."
)
@options.as_json
@options.anywhere
def prune(
    place: options.Place,
    as_json: bool,
    older_than: int | None,
    keep_size: int | None,
    status: tuple[str, ...],
    recipe_id: str | None,
    given: tuple[str, ...],
    expected: int | None,
) -> int:
    """Remove finished runs by age or size; without --expected, only list them.

    Pinned runs, runs that an unfinished run or plan needs, and receipts are kept.
    """
    if older_than is None and keep_size is None:
        raise click.UsageError("Say which runs: --older-than, --keep-size, or both.")
    rule = retention.Rule(
        older_than_seconds=older_than,
        keep_bytes=keep_size,
        status=status or retention.FINISHED,
        recipe_id=recipe_id,
        labels=arguments.labels(given),
    )
    found = place.ask(prune_runs, rule, expected)
    exit_codes.shown(found, as_json, _report)
    return exit_codes.ExitCode.FAILED if found["refused"] else exit_codes.ExitCode.DONE


@use_case(
    "POST /api/runs/collect",
    Access.CHANGE,
    body=lambda seconds, dry_run: {"older_than_seconds": seconds, "dry_run": dry_run},
)
async def collect_objects(folder: FolderClient, older_than_seconds: int, dry_run: bool) -> JsonObject:
    """Remove objects that no run names, or count them."""
    return await folder.application.maintenance.collect(older_than_seconds, authors.LOCAL, dry_run=dry_run)


@click.command()
@click.option(
    "--older-than",
    type=arguments.duration,
    default="7d",
    metavar="DURATION",
    show_default=True,
    help="Minimum age of the objects, at least 1h.",
)
@click.option("--yes", is_flag=True, help="Remove the objects; by default they are only counted.")
@options.as_json
@options.anywhere
def collect(place: options.Place, as_json: bool, older_than: int, yes: bool) -> int:
    """Remove blobs and logs in object storage that no run references, at most 1,000 at a time.

    Objects of unfinished runs and objects younger than --older-than are kept.
    """
    if older_than < _LEAST_AGE_SECONDS:
        # A blob is stored before the journal has the line that names it.
        raise click.UsageError("A run may be about to name them: --older-than must be at least 1h.")
    found = place.ask(collect_objects, older_than, not yes)
    return exit_codes.shown(found, as_json, _collected)


def _collected(found: JsonObject) -> str:
    message = f"{found['unnamed']} of {found['objects']} objects are named by no run, {found['size_bytes']} bytes"
    more = "; more are left for another order" if found["more"] else ""
    return f"{message}{more}: {'repeat with --yes to remove them' if found['dry_run'] else 'removed'}"


def _report(found: JsonObject) -> str:
    names = ("run_id", "status", "completed_at", "size_bytes", "why")
    rows = [tuple(str(run[name]) for name in names) for run in found["runs"]]
    kept = ", ".join(f"{count} {reason}" for reason, count in found["kept"].items()) or "none"
    table = [formats.table(("run_id", "status", "ended", "bytes", "why"), rows)] if rows else []
    refused = [f"{run_id}: {why}" for run_id, why in found["refused"].items()]
    more = ["more are left for another order"] if found["more"] else []
    if found["dry_run"]:
        runs = printable.counted(found["matched"], "run")
        order = f"; repeat with --expected {found['matched']} to remove them" if found["matched"] else ""
        last = f"{runs} would be removed{order}"
    else:
        last = f"{printable.counted(found['removed'], 'run')} removed, {found['size_bytes']} bytes"
    return "\n".join([*table, *refused, f"kept in spite of the rule: {kept}", *more, last])
