"""Subjects: processes that live an experiment, forked from a warm one, so that hundreds of deaths take minutes."""

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

PASSINGS = "passings.txt"  # File of an experiment that says which probes its last process passed.
FAILED = 3  # Exit code of a life that ended with an error.
STUCK = None  # In place of the exit code of a life that did not come to an end.

_LIFE_SECONDS = 90.0
_LAST_SECONDS = 5.0
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = -1

_processes = multiprocessing.get_context("forkserver")

Watch = Callable[[int], AbstractContextManager[object]]
"""Wrappers around a process, by its id, set before it starts."""


def live(experiment: Experiment, watch: Watch | None = None, crash_at: str | None = None) -> int | None:
    """Live an experiment in a process of its own; return its exit code, or None if it had to be ended.

    Args:
        watch: Attaches a tracer.
        crash_at: `point:N`: the probe at which the process kills itself; None: it only notes what it passes.
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
                # Who watches waits for its end.
                process.kill()
    finally:
        beginner.close()
        code = forks.buried(process)
    return code if ended else STUCK


def said(code: int | None) -> str:
    """Return how the last life of an experiment ended, in words; empty if it ended well."""
    if code == 0:
        return ""
    if code is STUCK:
        return f"it did not come to its end within {_LIFE_SECONDS:.0f} seconds"
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def log_file(experiment: Experiment) -> Path:
    """Return where the processes of an experiment write what they log."""
    return experiment.place / "process.log"


class Passings:
    """Probes that record the points passed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1, encoding="utf-8")

    def reach(self, point: str) -> None:
        """Write a point down."""
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
        asyncio.run(trial_runs.live(experiment, trial_runs.Surroundings(probes=points)))
    except (Exception, errors.Fault) as error:  # noqa: BLE001 - the boundary of the process
        experiment_log.ExperimentLog(experiment.experiment_log).trouble(f"{type(error).__name__}: {error}")
        sys.exit(FAILED)


def _allow_tracing() -> None:
    # The tracer is not a parent, and some systems let only parents trace: the caller of this process starts it.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
