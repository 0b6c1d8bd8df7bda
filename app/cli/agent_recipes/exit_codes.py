"""Exit codes of `agent-recipes`, as specified (agent-recipes, 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import errors
from app.cli.exit_codes import ExitCode

RECIPE = 1  # The recipe is not valid.
ORCHESTRATION = 2  # The agent reported no outcome, even after a reminder; or the run failed in another way.
GUARDRAIL = 3  # The run reached a limit of steps, visits or restarts.
BACKEND = 4  # The agent failed.
CONFIGURATION = 5
"""The run could not begin: usage, unknown recipe or backend, a missing program, arguments, a busy workspace."""


_OF_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (errors.RecipeInvalid, RECIPE),
    (errors.JournalCorrupt, ORCHESTRATION),
    (errors.StorageFault, CONFIGURATION),
    (errors.Fault, ORCHESTRATION),
    (errors.ControlRoomError, CONFIGURATION),
    (OSError, CONFIGURATION),
)

_LIMITS = ("max-step-visits-exceeded:", "max-total-steps", "max-restarts")
_UNUSABLE = frozenset({"agent_missing", "agent_refused_root", "unknown_backend", "unknown_backend_type"})
_NO_ROOM = frozenset({errors.StorageFault.default_code, errors.WriteFailed.default_code})


def of_run(detail: Mapping[str, Any]) -> int:
    """Return the exit code for the state of a run."""
    match detail["status"]:
        case "done":
            return ExitCode.DONE
        case "failed":
            return _of_failure(reason(detail) or "", code(detail))
        case "paused" | "waiting":
            return CONFIGURATION if code(detail) in _NO_ROOM else ORCHESTRATION
        case _:
            return ExitCode.INTERRUPTED


def of_error(error: BaseException) -> int:
    """Return the exit code of an error; a bug counts as an error of the orchestration."""
    return next((code for kind, code in _OF_ERROR if isinstance(error, kind)), ORCHESTRATION)


def reason(detail: Mapping[str, Any]) -> str | None:
    """Return the reason of a run's ending in one word; None if it has not ended."""
    ending = detail.get("ending") or {}
    found: str | None = ending.get("reason")
    return found


def code(detail: Mapping[str, Any]) -> str | None:
    """Return the code of a run's error; None if it has none."""
    found: str | None = (detail.get("error") or {}).get("code")
    return found


def _of_failure(why: str, code: str | None) -> int:
    if why.startswith(_LIMITS):
        return GUARDRAIL
    if why != "backend-error":
        return ORCHESTRATION
    return CONFIGURATION if code in _UNUSABLE else BACKEND
