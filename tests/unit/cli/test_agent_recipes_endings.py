"""Exit codes of `agent-recipes`."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.cli.agent_recipes import exit_codes


@pytest.mark.parametrize(
    ("status", "reason", "code", "expected"),
    [
        ("done", "changes-committed", None, 0),
        ("done", "orchestration-error", None, 0),
        ("failed", "orchestration-error", "orchestration_error", 2),
        ("failed", "max-total-steps", "max_total_steps", 3),
        ("failed", "max-step-visits-exceeded:fix", "max_step_visits_exceeded", 3),
        ("failed", "max-restarts", "max_restarts", 3),
        ("failed", "backend-error", "agent_timeout", 4),
        ("failed", "backend-error", "agent_missing", 5),
        ("failed", "backend-error", "agent_refused_root", 5),
        ("failed", "backend-error", "unknown_backend", 5),
        ("failed", "driver_fault", "driver_fault", 2),
        ("failed", None, "journal_corrupt", 2),
        ("paused", None, "storage_error", 5),
        ("paused", None, "nondeterminism", 2),
        ("paused", None, None, 2),
        ("running", None, None, 130),
        ("pending", None, None, 130),
        ("cancelled", "cancelled", None, 130),
    ],
)
def test_a_run_has_its_exit_code(status: str, reason: str | None, code: str | None, expected: int):
    """State, reason and error code of a run decide the exit code."""
    detail: dict[str, Any] = {
        "status": status,
        "ending": reason and {"reason": reason},
        "error": code and {"code": code},
    }

    assert exit_codes.of_run(detail) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.RecipeInvalid(), 1),
        (errors.UnknownRecipe(), 5),
        (errors.ArgsInvalid(), 5),
        (errors.ConfigurationError(), 5),
        (errors.Conflict(), 5),
        (errors.WriteFailed(), 5),
        (errors.NotFound(), 5),
        (errors.StorageFault(), 5),
        (errors.JournalCorrupt(), 2),
        (errors.NondeterminismFault(), 2),
        (OSError(), 5),
        (ValueError(), 2),
    ],
)
def test_an_error_has_its_exit_code(error: BaseException, expected: int):
    """An error before the run begins is a configuration error, except a broken recipe; a bug is orchestration."""
    assert exit_codes.of_error(error) == expected
