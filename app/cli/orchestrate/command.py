"""The command `orchestrate`, and its subcommands (workflow-dsl, CLI contract)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app import __version__, errors
from app.cli import boundary
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import cleaning, exit_codes, options, places, resuming, running, showing, workflows

WORKFLOW = click.argument("workflow", type=click.Path(path_type=Path), metavar="WORKFLOW")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="orchestrate", message="%(prog)s %(version)s")
def orchestrate() -> None:
    """Run workflows of commands and prompts in the current folder, durably.

    Runs are stored in .orchestrate/runs; `latest` is a link to the newest.

    Exit codes: 0 completed, 1 failed, 2 nothing was started (usage, an invalid or changed workflow),
    130 interrupted and resumable.
    """


@orchestrate.command()
@WORKFLOW
@options.context
@click.option("--clean-processed", is_flag=True, help="Empty the workflow's `processed_dir` before the run.")
@click.option(
    "--archive-processed",
    is_flag=False,
    flag_value="",
    metavar="[PATH]",
    help="After WORKFLOW: archive `processed_dir` once the run has completed.  [default: processed.zip "
    "in the run's folder]",
)
@click.option("--dry-run", is_flag=True, help="Validate the workflow and show what would run; start nothing.")
@options.to_run
def run(asked: running.Asked, workflow: Path, dry_run: bool, clean_processed: bool, **more: Any) -> int:
    """Run WORKFLOW from its beginning.

    Ctrl-C stops the step in flight; `resume` runs that step again.
    """
    queue = running.Queue(clean=clean_processed, archive=more["archive_processed"])
    try:
        context = options.context_of(more)
        read = workflows.read(workflow, asked.place)
        if not dry_run:
            return running.run(asked, read, context, queue)
        queue.plan(read, asked.place)
        return showing.plan(read, context, as_json=asked.output.as_json)
    except errors.ControlRoomError as error:
        return showing.refuse(error, as_json=asked.output.as_json)


@orchestrate.command()
@click.argument("run_id")
@click.option("--force-restart", is_flag=True, help="Start a new run in its place; the old run is kept unchanged.")
@click.option("--repair", is_flag=True, help="Cut a damaged run back to its intact lines, then continue.")
@options.to_run
def resume(asked: running.Asked, run_id: str, force_restart: bool, repair: bool) -> int:
    """Continue run RUN_ID, or the `latest` run, after its last finished step."""
    if force_restart and repair:
        raise click.UsageError("--force-restart starts again, --repair continues: give one of them.")
    how = resuming.How.ANEW if force_restart else resuming.How.REPAIRED if repair else resuming.How.AS_IT_IS
    try:
        return resuming.resume(asked, run_id, how)
    except errors.ControlRoomError as error:
        return showing.refuse(error, as_json=asked.output.as_json)


@orchestrate.command("run-step")
@click.argument("step")
@click.option(
    "--workflow",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Workflow that contains the step.",
)
@options.context
@options.to_run
def run_step(asked: running.Asked, step: str, workflow: Path, **more: Any) -> int:
    """Run one STEP of a workflow alone, or one loop with its items; its jumps are not followed."""
    try:
        alone = workflows.read(workflow, asked.place).only(step)
        return running.run(asked, alone, options.context_of(more), running.Queue(), {running.ONLY: step})
    except errors.ControlRoomError as error:
        return showing.refuse(error, as_json=asked.output.as_json)


@orchestrate.command()
@WORKFLOW
@options.context
@options.to_run
def watch(asked: running.Asked, workflow: Path, **more: Any) -> int:
    """Run WORKFLOW now and after each change of its file, until Ctrl-C."""
    from app import clock
    from app.cli.orchestrate import watching

    context, path = options.context_of(more), asked.place.workspace / workflow
    each = dataclasses.replace(asked, heeds_late_stops=True)

    def once() -> int:
        return running.run(each, workflows.read(workflow, asked.place), context, running.Queue())

    return watching.Watcher(path, str(workflow), once, clock.SystemClock()).watch()


@orchestrate.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="WORKFLOW...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def validate(files: tuple[Path, ...], as_json: bool) -> int:
    """Check workflows and report all flaws; exit code 2 if there are any."""
    return showing.validate(places.of(None), files, as_json=as_json)


@orchestrate.command()
@click.option(
    "--older-than",
    callback=options.age,
    metavar="AGE",
    help="Minimum time since the end of a run, e.g. 7d or 12h.  [default: ORCHESTRATE_KEEP_RUNS days]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.state_dir
def clean(older_than: Any, state_dir: Path | None, dry_run: bool, as_json: bool) -> int:
    """Remove runs that ended longer ago than AGE; unfinished, needed, pinned, damaged and copied runs are kept."""
    return cleaning.clean(places.of(state_dir), older_than, dry_run=dry_run, as_json=as_json)


PROGRAM = boundary.Program(name="orchestrate", command=orchestrate, usage=ExitCode.USAGE, of_error=exit_codes.of_error)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Execute a command line and return its exit code; errors are reported on stderr, one a line."""
    return boundary.execute(PROGRAM, arguments)
