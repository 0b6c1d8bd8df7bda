"""Tests of the flow: the step that follows a step, and the number of attempts."""

from __future__ import annotations

import pytest

from app.dialects.orchestrate import frames
from app.dialects.orchestrate.frames import Continuation, Retries
from tests.unit.dialects.orchestrate.workflow_harness import loop, step

ON = {"success": {"goto": "S"}, "failure": {"goto": "F"}, "always": {"goto": "_end"}}


def _on(*events):
    return step(on={event: ON[event] for event in events}) if events else step()


@pytest.mark.parametrize(
    ("events", "exit_code", "target"),
    [
        (("success", "failure", "always"), 0, "S"),
        (("success", "failure", "always"), 1, "F"),
        (("success", "always"), 124, "_end"),
        (("failure", "always"), 0, "_end"),
        (("failure",), 2, "F"),
        (("failure",), 0, None),
        ((), 0, None),
        (("success", "failure", "always"), None, None),
    ],
)
def test_jumps(events, exit_code, target):
    """A branch that fits the exit code overrides `always`; a skipped step does not jump; a jump handles a failure."""
    for strict in (True, False):
        for on_error in (None, "stop", "continue"):
            following = frames.continuation(_on(*events), exit_code, strict_flow=strict, on_error=on_error)

            assert following == Continuation(target=target)


@pytest.mark.parametrize(
    ("strict", "on_error", "stops"),
    [
        (True, None, True),
        (False, None, False),
        (True, "stop", True),
        (False, "stop", True),
        (True, "continue", False),
        (False, "continue", False),
    ],
)
def test_the_command_line_overrides_strict_flow(strict, on_error, stops):
    """The command line overrides `strict_flow`; a run that continues is not complete."""
    following = frames.continuation(_on("success"), 1, strict_flow=strict, on_error=on_error)

    assert following == Continuation(stops=stops, unhandled=not stops)


@pytest.mark.parametrize(
    ("given", "most", "retries"),
    [
        (step(provider="p"), 0, Retries(further=0, delay_seconds=0.5, exit_codes=(1, 124))),
        (step(provider="p"), 3, Retries(further=3, delay_seconds=0.5, exit_codes=(1, 124))),
        (step(provider="p", retries={"max": 0}), 3, Retries(further=0, delay_seconds=0, exit_codes=(1, 124))),
        (
            step(provider="p", retries={"max": 2, "delay_ms": 250}),
            0,
            Retries(further=2, delay_seconds=0.25, exit_codes=(1, 124)),
        ),
        (step(), 3, Retries(further=0, delay_seconds=0.5, exit_codes=None)),
        (step(retries={"max": 2}), 0, Retries(further=2, delay_seconds=0, exit_codes=None)),
        (
            step(wait_for={"glob": "x"}, retries={"max": 1}),
            5,
            Retries(further=1, delay_seconds=0, exit_codes=(124,)),
        ),
        (loop("A", step()), 5, Retries(further=0, delay_seconds=0.5, exit_codes=None)),
    ],
)
def test_tries(given, most, retries):
    """The command line's retries apply to providers without their own; a command is retried only if it says so."""
    assert frames.retries(given, most, 500) == retries
