"""Options of several subcommands (workflow-dsl, extended CLI options)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from app.cli import arguments
from app.cli.orchestrate import cleaning, places
from app.cli.orchestrate.running import Asked
from app.cli.terminal import OutputOptions

Command = TypeVar("Command", bound=Callable[..., Any])

LEVELS = ("debug", "info", "warn", "error")
KEEP = "ORCHESTRATE_KEEP_RUNS"  # Default number of days to keep runs; an option of `clean` overrides it.

_INTERACTIVE = (
    "--on-error interactive is not supported: use stop, look at the run, and continue it with `orchestrate resume`."
)

state_dir = click.option(
    "--state-dir", type=click.Path(path_type=Path), envvar=places.STATE_DIR, metavar="DIR",
    help="Folder for runs instead of .orchestrate/runs; also ORCHESTRATE_STATE_DIR.",
)  # fmt: skip

_OPTIONS = (
    click.option("--debug", is_flag=True, envvar="ORCHESTRATE_DEBUG",
                 help="Keep debug logs, prompts and backups; also ORCHESTRATE_DEBUG=1."),
    click.option("--progress", is_flag=True, help="Draw progress on stderr."),
    click.option("--trace", is_flag=True, help="Add trace ids to the log."),
    state_dir,
    click.option("--backup-state", is_flag=True, help="Copy the state before each step; the last three are kept."),
    click.option("--on-error", type=click.Choice(("stop", "continue", "interactive")),
                 help="What to do after a failure that the workflow does not handle.  [default: by `strict_flow`]"),
    click.option("--max-retries", type=click.IntRange(0, 100), metavar="N",
                 help="Number of retries for providers without `retries` of their own.  [default: 0]"),
    click.option("--retry-delay", type=click.FloatRange(0, 86_400_000), metavar="MS",
                 help="Milliseconds before each of these retries."),
    click.option("--quiet", is_flag=True, help="Print the run's id only."),
    click.option("--verbose", is_flag=True, help="Also print the log on stderr."),
    click.option("--json", "as_json", is_flag=True, help="Print only the run as JSON when it stops."),
    click.option("--log-level", type=click.Choice(LEVELS), envvar="ORCHESTRATE_LOG_LEVEL",
                 help="Lowest level to log; also ORCHESTRATE_LOG_LEVEL.  [default: info]"),
)  # fmt: skip

_CONTEXT = (
    click.option("--context", "context", multiple=True, metavar="KEY=VALUE",
                 help="A value for ${context.KEY}, as text; repeatable."),
    click.option("--context-file", type=click.Path(path_type=Path), metavar="FILE",
                 help="JSON object of such values; --context overrides it."),
)  # fmt: skip


def context(command: Command) -> Command:
    """Give a command the options for values of the context; `context_of` reads them."""
    return _with(command, _CONTEXT)


def context_of(more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the context.

    Raises:
        errors.ArgsInvalid: naming every one that cannot be read.
    """
    return arguments.texts(more["context"], more["context_file"], "--context")


def to_run(command: Command) -> Command:
    """Give a command the options of everything that executes runs; it gets their values as `asked`."""

    @functools.wraps(command)
    def asking(**given: Any) -> Any:
        names = {option: given.pop(option) for option in _NAMES}
        return command(asked=_asked(**names), **given)

    return _with(asking, _OPTIONS)  # type: ignore[return-value]


def age(context: click.Context, option: click.Parameter, text: str | None) -> timedelta:
    """Read the age of the runs to remove, from the option or the environment."""
    days = os.environ.get(KEEP)
    if not text and not days:
        raise click.UsageError(f"Give the age of the runs: --older-than 7d, or {KEEP}=30 (days).")
    try:
        return cleaning.age(text or f"{days}d")
    except ValueError as error:
        if text:
            raise click.BadParameter(str(error)) from error
        raise click.UsageError(f"{KEEP} must be a number of days, such as 30, not {days!r:.40}.") from error


_NAMES = (
    "debug", "progress", "trace", "state_dir", "backup_state", "on_error", "max_retries", "retry_delay", "quiet",
    "verbose", "as_json", "log_level",
)  # fmt: skip


def _with(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def _asked(
    *, debug: bool, state_dir: Path | None, backup_state: bool, log_level: str | None, quiet: bool, verbose: bool,
    as_json: bool, progress: bool, trace: bool, **given: Any,
) -> Asked:  # fmt: skip
    if given["on_error"] == "interactive":
        raise click.UsageError(_INTERACTIVE)
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose contradict each other.")
    options = {
        "on_error": given["on_error"], "max_retries": given["max_retries"], "retry_delay_ms": given["retry_delay"],
        "debug": debug or None,
    }  # fmt: skip
    output = OutputOptions(
        quiet=quiet, verbose=verbose, as_json=as_json, progress=progress, trace=trace,
        level=log_level or ("debug" if debug else "info"),
    )  # fmt: skip
    return Asked(
        place=places.of(state_dir),
        output=output,
        options={name: value for name, value in options.items() if value is not None},
        backup=backup_state or debug,
    )
