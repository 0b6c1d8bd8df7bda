"""Sweeps over the writes of a real process: kill it at each write, or refuse each write once."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from app import errors
from app.crash_lab import experiment, fork_server, tracing, trials
from app.crash_lab.experiment import Experiment
from app.crash_lab.trials import Trial

KILL = "signal=SIGKILL"  # Injection that kills a process at a call.

_LOG_CHARACTERS = 6_000

Point = TypeVar("Point")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The results of one kind of disturbance at many points."""

    name: str  # The disturbance.
    points: int  # Number of points.
    trials: tuple[Trial, ...] = field(default=())  # Results for the points that were tried.
    may_lose: bool = False
    """Whether the disk faked a sync, so that steps may be lost if this is reported."""

    @property
    def reached(self) -> list[Trial]:
        """Return the trials in which the disturbance took effect."""
        return [trial for trial in self.trials if trial.reached]

    @property
    def broken(self) -> list[Trial]:
        """Return the trials that show a broken promise."""
        return [trial for trial in self.reached if not self._holds(trial)]

    def _holds(self, trial: Trial) -> bool:
        if self.may_lose:
            return not trial.hidden
        return trial.same and not (trial.lost or trial.twice or trial.hidden)


class Bench:
    """A project prepared for experiments, with settings for the trials."""

    def __init__(self, folder: Path, original: Experiment, *, workers: int, sample: int | None, seed: int) -> None:
        self.folder = folder
        self.original = original
        self._workers = workers
        self._sample = sample
        self._seed = seed

    def experiment(self, name: str) -> Experiment:
        """Return a fresh copy of the original experiment."""
        return experiment.copied(self.original, self.folder / name)

    def drop(self, experiment: Experiment) -> None:
        """Remove an experiment that was judged."""
        shutil.rmtree(experiment.place, ignore_errors=True)

    def sampled(self, points: Sequence[Point], kind: Callable[[Point], str]) -> list[Point]:
        """Choose points: all, or a sample of as many kinds as possible; the same seed chooses the same points."""
        if self._sample is None or len(points) <= self._sample:
            return list(points)
        ranked = sorted(points, key=lambda point: hashlib.sha256(f"{self._seed} {point}".encode()).digest())
        kinds: dict[str, list[Point]] = defaultdict(list)
        for point in ranked:
            kinds[kind(point)].append(point)
        rounds = [of_kind[turn] for turn in range(len(points)) for of_kind in kinds.values() if turn < len(of_kind)]
        return rounds[: self._sample]

    def side_by_side(self, points: Sequence[Point], work: Callable[[int, Point], Trial]) -> tuple[Trial, ...]:
        """Try points, several at the same time."""
        with ThreadPoolExecutor(self._workers) as threads:
            return tuple(threads.map(work, range(len(points)), points))


def undisturbed(bench: Bench) -> tuple[trials.Seen, list[tracing.WritePoint]]:
    """Run the workload once, undisturbed; return what it left, and its writes.

    Raises:
        errors.ControlRoomError: `undisturbed_failed`, the run does not end even without a disturbance.
    """
    experiment = bench.experiment("undisturbed")
    output = experiment.place / "trace"
    code = fork_server.live(experiment, lambda pid: tracing.traced(pid, output))
    seen = trials.look(experiment)
    if code != 0 or seen.outcome is None:
        message = "; ".join(seen.told.trouble) or f"its process ended with {code}"
        raise errors.ControlRoomError(f"the undisturbed run did not come to rest: {message}", code="undisturbed_failed")
    return seen, tracing.points(output, experiment.data_directory)


def by_calls(bench: Bench, name: str, how: str, found: Sequence[tracing.WritePoint], expected: trials.Seen) -> Sweep:
    """Disturb the run once at each writing call, restart it if it died, and judge the result."""
    chosen = bench.sampled(found, lambda point: point.kind)

    def work(number: int, point: tracing.WritePoint) -> Trial:
        experiment = bench.experiment(f"{name}-{number}")
        try:
            return _tried(experiment, point, how, expected)
        finally:
            bench.drop(experiment)

    return Sweep(name=name, points=len(found), trials=bench.side_by_side(chosen, work))


def _tried(experiment: Experiment, point: tracing.WritePoint, how: str, expected: trials.Seen) -> Trial:
    output = experiment.place / "trace"
    code = fork_server.live(experiment, lambda pid: tracing.faulted(pid, experiment.data_directory, point, how, output))
    if how == KILL and code != -signal.SIGKILL:
        return Trial(point=str(point), reached=False, note=f"its process ended with {code}")
    if how != KILL and not tracing.was_disturbed(output):
        return Trial(point=str(point), reached=False)
    cut = trials.look(experiment)
    if code is fork_server.STUCK:
        return _with_log(
            experiment, Trial(point=str(point), note=fork_server.said(code), hidden="stuck", restarted=False)
        )
    return reopened(experiment, str(point), cut, expected, died=code != 0)


def reopened(experiment: Experiment, point: str, cut: trials.Seen, expected: trials.Seen, *, died: bool) -> Trial:
    """Run a disturbed experiment once more, undisturbed, and judge the result.

    Args:
        cut: State at the end of the disturbed process.
        died: Whether the process ended before the run did.
    """
    first = None if died else trials.judge(point, expected, cut, cut, restarted=False)
    experiment.outcome.unlink(missing_ok=True)
    code = fork_server.live(experiment)
    after = trials.look(experiment)
    last = [fork_server.said(code), *after.told.trouble[len(cut.told.trouble) :]]
    why = "" if code == 0 else f"after the restart: {'; '.join(last)}"
    second = trials.judge(point, expected, cut, after, restarted=died, why=why)
    if code != 0:
        second = _with_log(experiment, second)
    # A process that survived must have shown the same result before its folder was read anew.
    return first if first is not None and not first.same else second


def _with_log(experiment: Experiment, trial: Trial) -> Trial:
    log = fork_server.log_file(experiment).read_text(encoding="utf-8", errors="replace")
    return dataclasses.replace(trial, log=log[-_LOG_CHARACTERS:])


def by_probes(bench: Bench, name: str, expected: trials.Seen) -> Sweep:
    """Kill the run once at each passed probe of the storage, if system calls cannot be traced."""
    experiment = bench.experiment("passings")
    fork_server.live(experiment)
    story = (experiment.place / fork_server.PASSINGS).read_text(encoding="utf-8").split()
    passed = [point for point in story if point.startswith("storage.")]
    found = [f"{point}:{passed[: number + 1].count(point)}" for number, point in enumerate(passed)]
    chosen = bench.sampled(found, lambda point: point.partition(":")[0])

    def work(number: int, point: str) -> Trial:
        experiment = bench.experiment(f"{name}-{number}")
        try:
            code = fork_server.live(experiment, crash_at=point)
            if code != -signal.SIGKILL:
                return Trial(point=point, reached=False, note=f"its process ended with {code}")
            return reopened(experiment, point, trials.look(experiment), expected, died=True)
        finally:
            bench.drop(experiment)

    return Sweep(name=name, points=len(found), trials=bench.side_by_side(chosen, work))
