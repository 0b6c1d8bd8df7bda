"""The command `control-room` itself, and its subcommands."""

from __future__ import annotations

from collections.abc import Sequence

import click

from app import __version__
from app.cli import (
    boundary,
    confer,
    crashing,
    exit_codes,
    gates,
    issues,
    plans,
    project,
    receipts,
    recipes,
    running,
    runs,
    serving,
)
from app.cli.demo import command as demo


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="control-room", message="%(prog)s %(version)s")
def control_room() -> None:
    """Run agent recipes durably.

    Exit codes: 0 done, 1 failed, 2 usage or validation, 3 cancelled, 4 not found, 5 configuration or server,
    130 interrupted and resumable.
    """


for command in (
    serving.serve, running.run, confer.confer, runs.runs, gates.gates, issues.issues, plans.plan,
    receipts.receipts, recipes.recipes, recipes.route,
    project.agents, project.config, project.index, project.init, project.openapi, crashing.crashtest,
    demo.demo,
):  # fmt: skip
    control_room.add_command(command)


PROGRAM = boundary.Program(
    name="control-room", command=control_room, usage=exit_codes.ExitCode.USAGE, of_error=exit_codes.of_error
)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Execute a command line and return its exit code; errors are reported on stderr, one a line."""
    return boundary.execute(PROGRAM, arguments)
