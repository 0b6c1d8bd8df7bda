"""Trial runs: one process of an experiment, from its start to the end of the run or of itself.

The process is the service without its HTTP interface, which writes no files: the same composition root, the same
lock, the same recovery.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from app import bootstrap, clock
from app.crash_lab import experiment_log, workload
from app.crash_lab.experiment import Experiment
from app.engine import ports, probes
from app.storage import data_directory, folder_store
from app.storage.index.sql import index
from app.storage.runs import run_folders

RUN_IDS = tuple(f"20260210T143000Z-crash{number}" for number in range(1, 10))
"""Ids of the first runs of every experiment, so that their files have the same names in each."""

_ADDRESS = "http://laboratory.invalid"
_HASTE = 20  # Factor by which waits are shorter than by the clock, e.g. waits for disk space.
_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts of a process that differ between experiments."""

    probes: probes.Probes = field(default_factory=probes.NoProbes)  # Named points.
    make_store: Callable[..., bootstrap.Store] | None = None
    """Creates the run store; None: run folders, with one writing thread for each kind of file."""
    is_taken: Callable[[str], bool] | None = None  # Returns whether a run exists; None: its folder decides.
    watch: Callable[[ports.Performer], ports.Performer] | None = None
    """Wraps each performer, outside of the wrapper that logs its tries."""
    beside: Callable[[bootstrap.Application], AbstractAsyncContextManager[None]] | None = None
    """Context that watches the shown state while the runs execute."""
    on_rest: Callable[[bootstrap.Application], Awaitable[None]] | None = None
    """Called when all runs rest, before the outcome is taken."""


async def live(experiment: Experiment, surroundings: Surroundings = Surroundings()) -> None:
    """Request the workload, or find it, follow it to its rest, and note its outcome."""
    notes = experiment_log.ExperimentLog(experiment.experiment_log)
    platform = _platform(experiment, surroundings, notes)
    async with bootstrap.build(experiment.settings, bootstrap.OpenMode(address=_ADDRESS), platform) as application:
        async with surroundings.beside(application) if surroundings.beside else nullcontext():
            await application.engine.recovered()
            asked = experiment.asked
            begun = await workload.begin(application, asked, _pause)
            notes.accepted(begun.name, begun.existed)
            await workload.rest(application, asked, begun.name, _pause)
        if surroundings.on_rest is not None:
            await surroundings.on_rest(application)
        outcome = await workload.outcome(application, asked, begun.name)
        experiment.outcome.write_text(json.dumps(outcome), encoding="utf-8")


class HastyClock(clock.SystemClock):
    """The machine's clock, with shorter waits."""

    async def sleep(self, seconds: float) -> None:
        """Wait for a fraction of the duration."""
        await super().sleep(seconds / _HASTE)


class FirstRunsKnown(clock.RandomIds):
    """Random identifiers, except for the first runs of a data directory."""

    def __init__(self, is_taken: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_taken = is_taken

    def run_id(self, at: datetime) -> str:
        """Return the first known id that no run has; after these, random ids."""
        return next((name for name in RUN_IDS if not self._is_taken(name)), None) or super().run_id(at)


def _platform(
    experiment: Experiment, surroundings: Surroundings, notes: experiment_log.ExperimentLog
) -> bootstrap.Platform:
    watch = surroundings.watch or _as_it_is
    return bootstrap.Platform(
        ids=FirstRunsKnown(surroundings.is_taken or (lambda name: _is_there(experiment.data_directory / "runs", name))),
        clock=HastyClock(),
        probes=surroundings.probes,
        make_store=surroundings.make_store or _in_folders,
        watch=lambda performer: watch(experiment_log.Noted(performer, notes)),
    )


def _is_there(folder: Path, name: str) -> bool:
    # A folder that was begun and could not be removed occupies its name until the next start, too.
    return (folder / name).exists() or (folder / f".new-{name}").exists()


def _as_it_is(performer: ports.Performer) -> ports.Performer:
    return performer


def _in_folders(
    kept: data_directory.DataDirectory, url: str, platform: bootstrap.Platform, adopt: run_folders.Adopt
) -> bootstrap.Store:
    # The tracer counts calls separately for each thread, so only one thread may write to each file.
    return folder_store.FolderStore(
        kept,
        index.SqlIndex(url),
        clock=platform.clock,
        probes=platform.probes,
        adopt=adopt,
        threads=folder_store.ThreadCounts(commit=1, other=1),
    )


async def _pause() -> None:
    await HastyClock().sleep(_RETRY_SECONDS)
