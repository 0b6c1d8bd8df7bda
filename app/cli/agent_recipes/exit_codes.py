"""Exit codes of `agent-recipes`, as its specification has them (agent-recipes, 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import errors
from app.cli.exit_codes import ExitCode

RECIPE = 1  # The recipe is not valid.
ORCHESTRATION = 2  # The agent reported no outcome, even when asked again; or the run broke in another way.
GUARDRAIL = 3  # A limit of steps, visits or restarts was reached.
BACKEND = 4  # The agent failed.
CONFIGURATION = 5
"""Nothing could begin: usage, unknown recipe or backend, a missing program, arguments, a workspace that is held."""


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
_NO_ROOM = frozenset({errors.StorageFault.default_code, errors.DiskFull.default_code})


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
    """Return the exit code of an error; a bug is one of the orchestration."""
    return next((code for kind, code in _OF_ERROR if isinstance(error, kind)), ORCHESTRATION)


def reason(detail: Mapping[str, Any]) -> str | None:
    """Return why a run ended, in a word; None if it has not."""
    ending = detail.get("ending") or {}
    found: str | None = ending.get("reason")
    return found


def code(detail: Mapping[str, Any]) -> str | None:
    """Return the code of a run's error; None if it has none."""
    found: str | None = (detail.get("error") or {}).get("code")
    return found


def _of_failure(why: str, told: str | None) -> int:
    if why.startswith(_LIMITS):
        return GUARDRAIL
    if why != "backend-error":
        return ORCHESTRATION
    return CONFIGURATION if told in _UNUSABLE else BACKEND
