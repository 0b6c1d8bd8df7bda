"""Exit codes, one enum for all programs, and how an error is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from app import errors
from app.cli import formats, terminal


class ExitCode(IntEnum):
    """Exit codes of `control-room`; those that its siblings specify otherwise are in their own tables."""

    DONE = 0  # The command did what it was asked; a run that it followed ended as done.
    FAILED = 1
    """The run failed, is parked or waits for an answer, or the request did not fit the present state."""
    USAGE = 2  # The command line, its arguments or a recipe are not valid.
    CANCELLED = 3  # The run was cancelled.
    NOT_FOUND = 4  # There is no such run, recipe, slot or log.
    CONFIGURATION = 5  # The settings cannot work, or the service cannot be reached or refused to answer.
    INTERRUPTED = 130  # Ctrl-C, SIGTERM or SIGHUP stopped the command; a run that it executed can be continued.
    PIPE_CLOSED = 141  # The reader of the output closed it.


_OF_STATUS = {
    "done": ExitCode.DONE,
    "failed": ExitCode.FAILED,
    "paused": ExitCode.FAILED,
    "waiting": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
}

_OF_PLAN = {"done": ExitCode.DONE, "failed": ExitCode.FAILED, "paused": ExitCode.FAILED, "running": ExitCode.FAILED}

_IN_FLIGHT = ("pending", "running")

_OF_ERROR: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (errors.NotFound, ExitCode.NOT_FOUND),
    (errors.UnknownRecipe, ExitCode.NOT_FOUND),
    (errors.NotReady, ExitCode.CONFIGURATION),
    (errors.InputRefused, ExitCode.USAGE),
    (errors.ConfigurationError, ExitCode.CONFIGURATION),
    (errors.WriteFailed, ExitCode.CONFIGURATION),
    (errors.StorageFault, ExitCode.CONFIGURATION),
    (OSError, ExitCode.CONFIGURATION),
)


def shown(found: Any, as_json: bool, text: Callable[[Any], str]) -> ExitCode:
    """Show the result of a command, and return the exit code of success."""
    terminal.show(found, as_json, text)
    return ExitCode.DONE


def of_status(status: str) -> ExitCode:
    """Return the exit code for the state of a run."""
    return _OF_STATUS.get(status, ExitCode.DONE)


def of_plan(status: str) -> ExitCode:
    """Return the exit code for the state of a plan; a running plan waits for an answer."""
    return _OF_PLAN.get(status, ExitCode.DONE)


def is_interrupted(status: str) -> bool:
    """Return whether a run that has stopped executing in this process was left before it came to rest."""
    return status in _IN_FLIGHT


def of_error(error: BaseException) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kind, code in _OF_ERROR if isinstance(error, kind)), ExitCode.FAILED)


def sentences(error: errors.ControlRoomError | errors.Fault) -> list[str]:
    """Return the lines of an error: message and code, then its flaws with their positions, and what to do."""
    # A message may already contain its first flaw.
    flaws = [formats.flaw(flaw) for flaw in _flaws(error) if flaw["message"] not in error.message]
    lines = [f"{error.message} [{error.code}]", *(f"  {flaw}" for flaw in flaws if flaw != error.message)]
    if any(flaw.get("code") == "args_type" for flaw in _flaws(error)):
        lines.append("""  pass any value but a text as JSON: --arg 'NAME:=["…"]'""")
    if isinstance(error, errors.DataDirectoryBusy) and error.detail.get("url"):
        lines.append(f"  ask it with --server {error.detail['url']}; stop it for a command without that option")
    return [*lines, *(f"  {note}" for note in getattr(error, "__notes__", ()))]


def _flaws(error: errors.ControlRoomError | errors.Fault) -> list[Mapping[str, Any]]:
    if isinstance(error, errors.InputRefused):
        return [flaw.to_json() for flaw in error.flaws]
    flaws = error.detail.get("flaws")
    return flaws if isinstance(flaws, list) else []
