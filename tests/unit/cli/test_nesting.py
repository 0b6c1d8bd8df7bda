"""What a command knows of the run that it was started from."""

from __future__ import annotations

import pytest

from app import errors
from app.cli import arguments


def test_outside_of_runs_nothing_is_known():
    """Without the variables, and with empty ones, there is neither parent nor depth."""
    for environ in ({}, {"CONTROL_ROOM_RUN_ID": "", "CONTROL_ROOM_DEPTH": ""}):
        assert arguments.parent_run_id(environ) is None
        assert arguments.runs_above(environ) is None


def test_within_a_run_its_depth_is_counted():
    """A run is one deeper than the run that starts it."""
    environ = {"CONTROL_ROOM_RUN_ID": "r1", "CONTROL_ROOM_DEPTH": "2"}

    assert arguments.parent_run_id(environ) == "r1"
    assert arguments.runs_above(environ) == 3


@pytest.mark.parametrize("told", ["deep", "-1", "1.5", "²", " 1"])
def test_a_depth_that_is_no_number_is_refused(told: str):
    """A depth of the wrong form is an error of the configuration, not a depth of nought."""
    with pytest.raises(errors.ConfigurationError, match="is not a number"):
        arguments.runs_above({"CONTROL_ROOM_DEPTH": told})
