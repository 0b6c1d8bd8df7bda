"""Endings of `orchestrate`: which exit code says what."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from app import errors


class ExitCode(IntEnum):
    """Exit codes of `orchestrate`."""

    COMPLETED = 0
    """The run came to its end, past failures too where the workflow or `--on-error` allows that."""
    FAILED = 1
    """A step failed and ended the run, the run is parked, or the command broke."""
    INVALID = 2
    """Nothing was executed: usage, a workflow or an option that is not valid, no such run, a changed workflow."""
    INTERRUPTED = 130
    """Ctrl-C or SIGTERM stopped the run; `resume` goes on with it."""


_REFUSED = (
    errors.InputRefused, errors.NotFound, errors.Conflict, errors.ConfigurationError, errors.JournalCorrupt,
)  # fmt: skip


def of_run(detail: Mapping[str, Any]) -> ExitCode:
    """Return the exit code that tells how a run stands that is not executed any more."""
    match detail["status"]:
        case "done":
            return ExitCode.COMPLETED
        case "pending" | "running":
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.FAILED


def of_error(error: BaseException) -> ExitCode:
    """Return the exit code of an error."""
    return ExitCode.INVALID if isinstance(error, _REFUSED) else ExitCode.FAILED
