"""Crash probes: a process dies exactly at the given point."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from app.worker import crash_probes

SCRIPT = """
import sys
from app.worker import crash_probes
probes = crash_probes.parse(sys.argv[1])
for number in range(3):
    probes.reach("other")
    probes.reach("here")
    print(number, flush=True)
"""


@pytest.mark.parametrize(("told", "printed"), [("here", ""), ("here:2", "0\n"), ("here:3", "0\n1\n")])
def test_the_process_dies_at_the_nth_passing(told: str, printed: str) -> None:
    """No code runs after the point, not even a handler."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT, told], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, printed)


def test_a_process_that_passes_no_point_ends_as_usual() -> None:
    """A process that never passes the point ends as usual."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT, "elsewhere"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (0, "0\n1\n2\n")


@pytest.mark.parametrize("told", ["", ":1", "here:0", "here:-1", "here:x"])
def test_a_wrong_form_is_refused(told: str) -> None:
    """Only `point` and `point:N` with N from 1 are accepted."""
    with pytest.raises(ValueError):
        crash_probes.parse(told)
