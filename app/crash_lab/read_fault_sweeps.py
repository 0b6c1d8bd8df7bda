"""Sweeps over reads: files that cannot be read for a while, in a new run and after a crash.

While a file cannot be read, list and detail must agree, no order may call the run damaged or unknown, and a repair
must change no file; once the file can be read, the run must end like the undisturbed one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from app import bootstrap, errors
from app.crash_lab import trial_runs, trials
from app.crash_lab.disk_sweeps import Machine
from app.crash_lab.experiment import Experiment
from app.crash_lab.fragile_disk import END, FragileDisk, Operation, Trouble
from app.crash_lab.process_sweeps import Bench, Sweep
from app.crash_lab.trials import Trial
from app.domain import states
from app.engine import stores
from app.services import requests

_TURNS = 200
_READABLE_SECONDS = 20.0
_PAUSE_SECONDS = 0.01
_Facts: TypeAlias = tuple[str, Any, str | None]  # State, unreadable file and code of the error.
_FALSE = (errors.JournalCorrupt, errors.NotFound)
_SHARE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The state in which a process with refused reads begins."""

    experiment: Experiment  # The experiment, always in the same folder: runs store the path of their workspace.
    kept: Path  # Copy of its folder at the beginning.
    machine: Machine | None  # The machine that lost its power; None for a new run.
    looks: tuple[Operation, ...] = ()  # The reads of an undisturbed process from this state.

    def restored(self) -> Experiment:
        """Return the experiment in its state at the beginning."""
        shutil.rmtree(self.experiment.place, ignore_errors=True)
        shutil.copytree(self.kept, self.experiment.place, symlinks=True)
        return self.experiment


@dataclass(frozen=True, slots=True)
class _Point:
    beginning: Beginning
    operation: Operation

    def __str__(self) -> str:
        return f"{self.operation}{'' if self.beginning.machine is None else ', after a restart'}"

    @property
    def kind(self) -> str:
        return f"{self.operation.kind} {self.beginning.machine is None}"


def started_listeners(bench: Bench, story: Sequence[Operation]) -> tuple[Beginning, Beginning]:
    """Return the beginning of a new run, and that of a service whose power was lost during the run.

    Args:
        story: Operations of the undisturbed run.
    """
    experiment = bench.experiment("cut-off-to-read")
    machine = Machine(experiment, Trouble.POWER_LOSS, story[int(len(story) * _SHARE)])
    machine.live()
    machine.restart(forget_rows=False)
    return _counted(bench.experiment("to-read"), None), _counted(experiment, machine)


def by_reads(bench: Bench, trouble: Trouble, begun: Sequence[Beginning], expected: trials.Seen) -> Sweep:
    """Refuse reads from each read on, inspect the shown state meanwhile, and let the run end."""
    found = [_Point(beginning, operation) for beginning in begun for operation in beginning.looks]
    chosen = bench.sampled(found, lambda point: point.kind)
    return Sweep(
        name=trouble.value, points=len(found), trials=tuple(_tried(point, trouble, expected) for point in chosen)
    )


class Watched(Machine):
    """A machine whose reads fail until the state shown meanwhile has been inspected."""

    def __init__(self, experiment: Experiment, trouble: Trouble | None, at: Operation, left: Machine | None) -> None:
        super().__init__(experiment, trouble, at, left)
        self.differences: list[str] = []
        """Places where list, detail, report and orders disagreed, or misjudged the run."""
        self.shown = False
        """Whether a run was shown as unreadable, or an error reported an unreadable file."""
        self.rested = 0
        """Number of reads when all work had ended; later reads belong to the inspection."""
        self._refused = asyncio.Event()

    @property
    def fragile(self) -> FragileDisk:
        """Return its disk."""
        assert isinstance(self.disk, FragileDisk)
        return self.disk

    def _go_dark(self) -> None:
        self._refused.set()

    def _surroundings(self) -> trial_runs.Surroundings:
        self._refused = asyncio.Event()
        if self.fragile.refuses:
            self._refused.set()
        return dataclasses.replace(super()._surroundings(), beside=self._looked_at, on_rest=self._readable)

    @asynccontextmanager
    async def _looked_at(self, application: bootstrap.Application) -> AsyncIterator[None]:
        looking = asyncio.ensure_future(self._look(application))
        try:
            yield
            if self.fragile.refuses:
                await looking
        finally:
            looking.cancel()

    async def _look(self, application: bootstrap.Application) -> None:
        await self._refused.wait()
        await _turns()
        try:
            for row in await _rows(application):
                await self._compare(application, row)
        except errors.Unreadable:
            self.shown = True
        finally:
            self.fragile.lift()

    async def _compare(self, application: bootstrap.Application, row: dict[str, Any]) -> None:
        run_id = row["run_id"]
        detail, after, listed, shown = await self._both(application, row)
        if shown not in listed:
            # A row is written before its detail is renewed; only a lasting contradiction counts.
            await _turns()
            detail, after, listed, shown = await self._both(application, after)
        if shown not in listed:
            self.differences.append(f"listed as {listed}, shown as {shown}")
        await self._judge("verify", application.store.maintenance.verify(run_id))
        if states.RunState.FAILED.value not in (detail["status"], after["status"]):
            # A resume would continue a failed run.
            await self._judge("resume", application.runs.resume(run_id, requests.ResumeRequest()))
        await self._judge("repair", application.store.maintenance.repair(run_id))
        await self._judge("steps", application.runs.steps(run_id))

    async def _both(
        self, application: bootstrap.Application, row: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], list[_Facts], _Facts]:
        """Return the detail of a run, its later row, and the facts of rows and detail."""
        run_id = row["run_id"]
        detail = json.loads((await application.runs.reader.ready(run_id)).body)
        # Progress between two reads is not a difference.
        after = next((later for later in await _rows(application) if later["run_id"] == run_id), row)
        self.shown = self.shown or detail["unreadable"] is not None
        shown = _facts(detail["status"], detail["unreadable"], (detail["error"] or {}).get("code"))
        return (
            detail,
            after,
            [_facts(each["status"], each["unreadable"], each["error_code"]) for each in (row, after)],
            shown,
        )

    async def _judge(self, order: str, given: Awaitable[Any]) -> None:
        try:
            answered = await given
        except _FALSE as error:
            self.differences.append(f"{order} answers {error.code}")
        except (errors.ControlRoomError, errors.Fault):
            return
        else:
            states = [file.get("state") for file in answered["files"]] if order == "verify" else []
            if "corrupt" in states or (order == "repair" and answered["changed"]):
                self.differences.append(f"{order} answers {answered}")

    async def _readable(self, application: bootstrap.Application) -> None:
        self.rested = len(self.fragile.looks)
        async with asyncio.timeout(_READABLE_SECONDS):
            shown = [row["run_id"] for row in await _rows(application)]
            for run_id in {*shown, *(run.run_id for run in await application.store.list_unfinished())}:
                await application.store.until_readable(run_id)
            # A run that has ended according to its journal is completed when its folder is opened next.
            while any(map(application.store.lags, shown)):  # noqa: ASYNC110 - the store does not announce it
                await asyncio.sleep(_PAUSE_SECONDS)


def _tried(point: _Point, trouble: Trouble, expected: trials.Seen) -> Trial:
    beginning, experiment = point.beginning, point.beginning.restored()
    machine = Watched(experiment, trouble, point.operation, beginning.machine)
    cut = trials.look(experiment, beginning.machine.journals() if beginning.machine else {})
    why = machine.live()
    if point.operation not in machine.fragile.looks:
        return Trial(point=str(point), reached=False)
    machine.fragile.lift()

    earlier = None
    if died := bool(why):
        earlier, cut = cut, trials.look(experiment, machine.journals())
        experiment.outcome.unlink(missing_ok=True)
        why = machine.live()
    after = trials.look(experiment, machine.journals())
    if beginning.machine is None and not died:
        cut = after
    trial = trials.judge(
        str(point), expected, cut, after, earlier=earlier, restarted=died, why=why, logged=machine.shown
    )
    different = "; ".join(machine.differences)
    return dataclasses.replace(trial, hidden=different or trial.hidden, note=trial.note or different)


def _counted(experiment: Experiment, machine: Machine | None) -> Beginning:
    kept = experiment.place.with_name(f"{experiment.place.name}-kept")
    shutil.copytree(experiment.place, kept, symlinks=True)
    watched = Watched(experiment, None, END, machine)
    if why := watched.live():
        raise errors.ControlRoomError(f"the run whose reads are counted did not rest: {why}", code="undisturbed_failed")
    return Beginning(
        experiment=experiment,
        kept=kept,
        machine=machine,
        looks=tuple(dict.fromkeys(watched.fragile.looks[: watched.rested])),
    )


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _facts(status: str, unreadable: dict[str, Any] | None, error_code: str | None) -> _Facts:
    return status, (unreadable or {}).get("file"), error_code


async def _rows(application: bootstrap.Application) -> list[dict[str, Any]]:
    found, _ = await application.runs.page(stores.RunQuery(limit=1000))
    return [run.to_json() for run in found]
