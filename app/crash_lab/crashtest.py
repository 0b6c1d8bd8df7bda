"""The crash test: run every sweep over one recipe, conference or plan, and check whether all promises hold."""

# Why: docs/decisions/0040.

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import settings
from app.crash_lab import (
    disk_sweeps,
    experiment,
    process_sweeps,
    read_fault_sweeps,
    tracing,
    trials,
    unattended,
    workload,
)
from app.crash_lab.fragile_disk import Operation, Trouble
from app.crash_lab.process_sweeps import Bench, Sweep

Say = Callable[[str], None]
InMemory = tuple[trials.Seen, list[Operation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The extent of a crash test."""

    sample: int | None = None  # Points tried in each sweep; None: all.
    seed: int = 0  # Seed that selects the points.
    workers: int = 2  # Processes that run at the same time.
    replies: Path | None = None  # Script of the agents; None: the same reply to every step.
    traced: bool = True
    """Whether system calls are disturbed, if a tracer exists; otherwise, probes and a disk in memory are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a crash test."""

    recipe_id: str  # Recipe that was run, or the name of the other workload.
    extent: Extent  # The extent of the test.
    sweeps: tuple[Sweep, ...]  # The results of each kind of disturbance.

    @property
    def holds(self) -> bool:
        """Return whether all promises hold, and each kind of disturbance had an effect at least once."""
        return all(sweep.reached and not sweep.broken for sweep in self.sweeps)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each sweep."""
        return [_row(sweep) for sweep in self.sweeps]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON, with the trials that broke a promise."""
        broken = [{"sweep": sweep.name} | trial.to_json() for sweep in self.sweeps for trial in sweep.broken]
        facts = {"recipe_id": self.recipe_id, "sample": self.extent.sample, "seed": self.extent.seed}
        return facts | {"holds": self.holds, "sweeps": self.rows(), "broken": broken}


def crashtest(config: settings.Settings, asked: workload.Asked, extent: Extent, say: Say) -> Report:
    """Run a workload undisturbed, then disturb it at one write after the other, on private copies of the project.

    Args:
        say: Called with a line of progress.

    Raises:
        errors.ControlRoomError: the recipe does not end even without a disturbance, or cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="crashtest-") as folder:
        root = Path(folder).resolve()
        original = experiment.template(root / "template", config, asked, extent.replies)
        bench = Bench(root, original, workers=extent.workers, sample=extent.sample, seed=extent.seed)
        in_memory = disk_sweeps.undisturbed(bench)
        traced = extent.traced and tracing.available()
        done = _by_calls(bench, say) if traced else _by_probes(bench, in_memory, say)
        outside, by_itself = [("power loss", Trouble.POWER_LOSS)], isinstance(asked, unattended.Unattended)
        if not by_itself:
            # The files of triggers and endpoints are in no hash chain: the loss of one cannot be detected.
            outside.append(("one sync lies", Trouble.LIE))
        done += _by_operations(bench, outside, in_memory, say)
        done += _by_reads(bench, in_memory, say, also_after_restart=not by_itself)
        return Report(recipe_id=workload.title(asked), extent=extent, sweeps=tuple(done))


def _by_calls(bench: Bench, say: Say) -> list[Sweep]:
    expected, found = process_sweeps.undisturbed(bench)
    say(f"the undisturbed run made {len(found)} writes")
    done = []
    for name, how in (("kill", process_sweeps.KILL), ("EIO", "error=EIO"), ("ENOSPC", "error=ENOSPC")):
        done.append(process_sweeps.by_calls(bench, name, how, found, expected))
        say(_summary(done[-1]))
    return done


def _by_probes(bench: Bench, in_memory: InMemory, say: Say) -> list[Sweep]:
    done = process_sweeps.by_probes(bench, "kill", in_memory[0])
    say(_summary(done))
    return [done, *_by_operations(bench, (("EIO", Trouble.EIO), ("ENOSPC", Trouble.ENOSPC)), in_memory, say)]


def _by_operations(
    bench: Bench, disturbances: Sequence[tuple[str, Trouble]], in_memory: InMemory, say: Say
) -> list[Sweep]:
    expected, story = in_memory
    done = []
    for name, trouble in disturbances:
        done.append(disk_sweeps.by_operations(bench, name, trouble, story, expected))
        say(_summary(done[-1]))
    return done


def _by_reads(bench: Bench, in_memory: InMemory, say: Say, *, also_after_restart: bool) -> list[Sweep]:
    expected, story = in_memory
    # A run that had ended may lack events that were lost with the power; this is logged while its file cannot be read.
    done, begun = [], read_fault_sweeps.started_listeners(bench, story)[: 2 if also_after_restart else 1]
    for trouble in (Trouble.READ_EIO, Trouble.READ_EMFILE):
        done.append(read_fault_sweeps.by_reads(bench, trouble, begun, expected))
        say(_summary(done[-1]))
    return done


def _row(sweep: Sweep) -> dict[str, Any]:
    reached = sweep.reached
    return {
        "sweep": sweep.name,
        "points": sweep.points,
        "tried": len(reached),
        "same": sum(trial.same for trial in reached),
        "restarted": sum(trial.restarted for trial in reached),
        "lost": sum(len(trial.lost) for trial in reached),
        "twice": sum(len(trial.twice) for trial in reached),
        "told": sum(trial.told and not trial.same for trial in reached),
        "hidden": sum(bool(trial.hidden) for trial in reached),
        "broken": len(sweep.broken),
    }


def _summary(sweep: Sweep) -> str:
    return f"{sweep.name}: {len(sweep.reached)} of {sweep.points} points tried, {len(sweep.broken)} broken promises"
