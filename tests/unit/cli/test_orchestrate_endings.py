"""Exit codes of `orchestrate`."""

from __future__ import annotations

import pytest

from app import errors
from app.cli.orchestrate import exit_codes


@pytest.mark.parametrize(
    ("status", "code"),
    [("done", 0), ("failed", 1), ("cancelled", 1), ("paused", 1), ("waiting", 1), ("running", 130), ("pending", 130)],
)
def test_a_run_ends_with_the_code_of_its_state(status: str, code: int):
    """A completed run ends with 0, an interrupted one that can be resumed with 130, and all others with 1."""
    assert exit_codes.of_run({"status": status}) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RecipeInvalid(), 2),
        (errors.ArgsInvalid(), 2),
        (errors.NotFound(), 2),
        (errors.WrongState(), 2),
        (errors.ConfigurationError(), 2),
        (errors.DataDirectoryBusy(), 2),
        (errors.JournalCorrupt(), 2),
        (errors.WriteFailed(), 1),
        (errors.StorageFault(), 1),
        (OSError(), 1),
        (RuntimeError(), 1),
    ],
)
def test_refusals_and_errors_have_different_exit_codes(error: BaseException, code: int):
    """A refusal has exit code 2, and any other error 1."""
    assert exit_codes.of_error(error) == code
