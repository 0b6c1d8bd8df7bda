"""The command `control-room` itself, and its subcommands, each imported at its first use."""

from __future__ import annotations

from collections.abc import Sequence

import click

from app import __version__
from app.cli import boundary, exit_codes
from app.cli.lazy_commands import LazyCommands

_MODULES = {
    "serve": "serving",
    "worker": "working",
    "run": "running",
    "top": "top.command",
    "confer": "confer",
    "runs": "runs",
    "stats": "statistics",
    "usage": "statistics",
    "gates": "gates",
    "issues": "issues",
    "triggers": "triggers",
    "notifications": "notifications",
    "retention": "project_documents",
    "backup": "backups",
    "restore": "backups",
    "plan": "plans",
    "receipts": "receipts",
    "audit": "audit",
    "keys": "keys",
    "budgets": "budgets",
    "prices": "project_documents",
    "policies": "project_documents",
    "recipes": "recipes",
    "route": "recipes",
    "agents": "project",
    "config": "project",
    "index": "project",
    "init": "project",
    "openapi": "project",
    "crashtest": "crashing",
    "dev-cluster": "dev_cluster.command",
    "demo": "demo.command",
}
"""Module of each command; its function has the command's name."""


@click.group(
    commands=LazyCommands(_MODULES), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="control-room", message="%(prog)s %(version)s")
def control_room() -> None:
    """Run agent recipes durably.

    Exit codes: 0 done, 1 failed, paused or waiting, 2 usage or validation, 3 cancelled, 4 not found, 5 configuration
    or server, 130 interrupted and resumable, 141 if the reader of the output is gone.
    """


PROGRAM = boundary.Program(
    name="control-room", command=control_room, usage=exit_codes.ExitCode.USAGE, of_error=exit_codes.of_error
)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Execute a command line and return its exit code; errors are reported on stderr, one a line."""
    return boundary.execute(PROGRAM, arguments)
