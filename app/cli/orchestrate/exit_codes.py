"""Exit codes of `orchestrate`: 0 completed, 1 failed, 2 nothing was executed, 130 interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import errors
from app.cli.exit_codes import ExitCode

_REFUSED = (
    errors.InputRefused, errors.NotFound, errors.Conflict, errors.ConfigurationError, errors.JournalCorrupt,
)  # fmt: skip


def of_run(detail: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for the state of a run that has stopped executing."""
    match detail["status"]:
        case "done":
            return ExitCode.DONE
        case "pending" | "running":
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.FAILED


def of_error(error: BaseException) -> ExitCode:
    """Return the exit code of an error."""
    return ExitCode.USAGE if isinstance(error, _REFUSED) else ExitCode.FAILED
