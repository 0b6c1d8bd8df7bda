"""The parent run and depth of a command that a run starts."""

from __future__ import annotations

import pytest

from app import errors, settings
from app.cli import arguments


def test_outside_of_runs_nothing_is_known(monkeypatch: pytest.MonkeyPatch):
    """Without the variables, or with empty ones, a command has neither parent nor depth."""
    for name in (settings.RUN_ID, settings.DEPTH):
        monkeypatch.delenv(name, raising=False)
    assert (arguments.parent_run_id(), arguments.runs_above()) == (None, None)

    for name in (settings.RUN_ID, settings.DEPTH):
        monkeypatch.setenv(name, "")
    assert (arguments.parent_run_id(), arguments.runs_above()) == (None, None)


def test_within_a_run_its_depth_is_counted(monkeypatch: pytest.MonkeyPatch):
    """A run is one deeper than the run that starts it."""
    monkeypatch.setenv("CONTROL_ROOM_RUN_ID", "r1")
    monkeypatch.setenv("CONTROL_ROOM_DEPTH", "2")

    assert arguments.parent_run_id() == "r1"
    assert arguments.runs_above() == 3


@pytest.mark.parametrize("told", ["deep", "-1", "1.5", "²", " 1"])
def test_an_invalid_depth_is_refused(told: str, monkeypatch: pytest.MonkeyPatch):
    """A depth that is not a number is a configuration error."""
    monkeypatch.setenv("CONTROL_ROOM_DEPTH", told)
    with pytest.raises(errors.ConfigurationError, match="is not a number"):
        arguments.runs_above()
