"""The fork server: runs experiments in processes forked from a warm one, so that hundreds of deaths take minutes."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import multiprocessing
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

from app import errors
from app.crash_lab import experiment_log, forks, trial_runs
from app.crash_lab.experiment import Experiment
from app.worker import crash_probes

PASSINGS = "passings.txt"  # File of an experiment with the probes that its last process passed.
FAILED = 3  # Exit code of a process that ended with an error.
STUCK = None  # Instead of the exit code, for a process that did not end.

_LIFE_SECONDS = 90.0
_LAST_SECONDS = 5.0
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = -1

_processes = multiprocessing.get_context("forkserver")

Watch = Callable[[int], AbstractContextManager[object]]
"""Context around a process, by its id; entered before the process begins its work."""


def live(experiment: Experiment, watch: Watch | None = None, crash_at: str | None = None) -> int | None:
    """Run an experiment in a process of its own; return its exit code, or None if it had to be killed.

    Args:
        watch: Attaches a tracer.
        crash_at: `point:N`: the probe at which the process kills itself; None: it only records the probes.
    """
    _processes.set_forkserver_preload([__name__, "app.crash_lab.preloaded"])
    begin, beginner = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_live, args=(experiment, begin, crash_at))
    forks.begin(process)
    assert process.pid is not None
    begin.close()
    ended = False
    try:
        with watch(process.pid) if watch else nullcontext():
            beginner.send(None)
            ended = forks.ended(process, _LIFE_SECONDS) is not None
            if not ended:
                # The tracer waits for the end of the process.
                process.kill()
    finally:
        beginner.close()
        code = forks.buried(process)
    return code if ended else STUCK


def said(code: int | None) -> str:
    """Return how the last process of an experiment ended, in words; empty if it succeeded."""
    if code == 0:
        return ""
    if code is STUCK:
        return f"it did not come to its end within {_LIFE_SECONDS:.0f} seconds"
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def log_file(experiment: Experiment) -> Path:
    """Return the log file of an experiment's processes."""
    return experiment.place / "process.log"


class Passings:
    """Probes that record the points passed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1, encoding="utf-8")

    def reach(self, point: str) -> None:
        """Record a point."""
        self._file.write(f"{point}\n")


def _live(experiment: Experiment, begin: Connection, crash_at: str | None) -> None:
    with log_file(experiment).open("ab", buffering=0) as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    # Shows where a stuck process hangs.
    faulthandler.enable()
    faulthandler.dump_traceback_later(_LIFE_SECONDS - _LAST_SECONDS)
    _allow_tracing()
    begin.recv()
    points = crash_probes.parse(crash_at) if crash_at else Passings(experiment.place / PASSINGS)
    try:
        # Signals end this process at once, as its caller expects.
        asyncio.run(trial_runs.live(experiment, trial_runs.Surroundings(probes=points)))  # noqa: TID251
    except (Exception, errors.Fault) as error:  # noqa: BLE001 - the boundary of the process
        experiment_log.ExperimentLog(experiment.experiment_log).trouble(f"{type(error).__name__}: {error}")
        sys.exit(FAILED)


def _allow_tracing() -> None:
    # The caller of this process starts the tracer, which is not a parent; some systems let only parents trace.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
