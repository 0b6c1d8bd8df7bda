"""The commands under `issues`."""

from __future__ import annotations

from typing import Any

import click

from app.cli import arguments, exit_codes, formats, options, use_cases
from app.cli.plain_commands import shown

SEVERITIES = ("error", "warning", "hint")  # Severities of issues; a test compares them with the engine's.

_note = click.option("--note", metavar="TEXT", help="Note to add to the issue.")
_revision = click.option(
    "--revision", type=click.IntRange(1), metavar="N", help="Reject the change if the issue's revision is newer."
)


@click.group()
def issues() -> None:
    """List, create, change and close issues."""


@issues.command("list")
@click.option(
    "--status",
    type=click.Choice(["open", "closed", "all"]),
    default="open",
    show_default=True,
    help="Only issues with this status.",
)
@click.option("--run", "run_id", metavar="ID", help="Only issues of this run.")
@click.option("--session", "session_id", metavar="ID", help="Only issues of this work session.")
@click.option("--kind", metavar="WORD", help="Only issues of this kind, e.g. dod or finding.")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only issues of this severity.")
@click.option("--recipe", "recipe_id", metavar="ID", help="Only issues that checks of this recipe found.")
@options.limit("issues")
@options.as_json
@options.anywhere
def list_(place: options.Place, as_json: bool, status: str, **filters: Any) -> int:
    """List issues, newest first; open ones by default."""
    from app.domain import issues as domain_issues

    query = domain_issues.IssueQuery(status=None if status == "all" else status, **filters)
    return exit_codes.shown(place.ask(use_cases.list_issues, query), as_json, formats.issues)


issues.add_command(shown(use_cases.show_issue, formats.issue, "Show an issue in full, with its notes.", "issue_id"))


@issues.command("open")
@click.argument("title")
@click.option("--body", default="", metavar="TEXT", help="Text of the issue.")
@click.option("--kind", default="note", metavar="WORD", help="Kind of issue.  [default: note]")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Severity of the issue.")
@click.option("--run", "run_id", metavar="ID", help="Run that the issue is about.")
@click.option("--session", "session_id", metavar="ID", help="Work session of the issue.")
@click.option("--receipt", "receipts", multiple=True, metavar="ID", help="Receipt that serves as evidence; repeatable.")
@arguments.repeatable("Repeating the command with the same key returns the same issue.")
@options.as_json
@options.anywhere
def open_(place: options.Place, as_json: bool, **fields: Any) -> int:
    """Create an issue."""
    from app.services import issues as issue_services

    new = issue_services.NewIssue(**fields)
    return exit_codes.shown(place.ask(use_cases.open_issue, new), as_json, formats.issue)


@issues.command()
@click.argument("issue_id")
@_note
@_revision
@options.as_json
@options.anywhere
def close(place: options.Place, as_json: bool, issue_id: str, **edit: Any) -> int:
    """Close an issue."""
    return _edited(place, as_json, issue_id, status="closed", **edit)


@issues.command()
@click.argument("issue_id")
@_note
@_revision
@options.as_json
@options.anywhere
def reopen(place: options.Place, as_json: bool, issue_id: str, **edit: Any) -> int:
    """Reopen a closed issue."""
    return _edited(place, as_json, issue_id, status="open", **edit)


@issues.command("edit")
@click.argument("issue_id")
@click.option("--title", metavar="TEXT", help="New title.")
@click.option("--body", metavar="TEXT", help="New body.")
@click.option("--severity", type=click.Choice(SEVERITIES), help="New severity.")
@_note
@_revision
@options.as_json
@options.anywhere
def edit_(place: options.Place, as_json: bool, issue_id: str, **edit: Any) -> int:
    """Change the title, body or severity of an issue, or add a note."""
    return _edited(place, as_json, issue_id, **edit)


def _edited(place: options.Place, as_json: bool, issue_id: str, **fields: Any) -> int:
    from app.services import issues as issue_services

    wanted = issue_services.Edit(**fields)
    changed = place.ask(use_cases.edit_issue, issue_id, wanted)
    return exit_codes.shown(changed, as_json, formats.issue)
