"""Sweeps over the operations of a disk in memory: power losses, false syncs, and refusals if system calls cannot be
traced.

Only a disk that knows what was synced can lose the rest, including directory entries; the code above it is the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from app import bootstrap, clock, errors, interruption
from app.crash_lab import trial_runs, trials, workload
from app.crash_lab.experiment import Experiment
from app.crash_lab.fragile_disk import END, FragileDisk, Operation, Trouble
from app.crash_lab.process_sweeps import Bench, Sweep
from app.crash_lab.trials import Trial
from app.domain import records, states
from app.engine import ports, stores
from app.storage import layout, memory_store
from app.storage.disk import memory_disk
from app.storage.index import memory_index
from app.storage.runs import run_folders

_LIFE_SECONDS = 60.0


class _Dark(BaseException):
    """The power was lost."""


class Machine:
    """A machine with a disk in memory, which can be restarted after its power was lost.

    Args:
        left: Machine that lost its power, and whose disk and index this one takes over; None: it is new.
    """

    def __init__(
        self,
        experiment: Experiment,
        trouble: Trouble | None = None,
        at: Operation = END,
        left: Machine | None = None,
    ) -> None:
        self._lived = experiment
        self.disk: memory_disk.MemoryDisk = FragileDisk(
            trouble, at, self._go_dark, left.disk.crashed(lose_unsynced=False) if left else None
        )
        """Its disk."""
        self.promised: dict[str, bytes] = {}
        """Each run's journal, as far as its syncs succeeded before the power was lost."""
        self.told = False
        """Whether the last request reported that a file is damaged."""
        self._index: memory_index.MemoryIndex = left._index.copy() if left else memory_index.MemoryIndex()
        self._dark: asyncio.Event = asyncio.Event()

    def live(self) -> str:
        """Run the experiment until its end or the loss of power; return why it did not end, or an empty text."""
        try:
            interruption.run(asyncio.wait_for(self._live(), _LIFE_SECONDS))
        except _Dark:
            return ""
        except TimeoutError:
            return "it neither continued nor ended"
        except errors.Conflict as error:
            self.told = error.code == "plan_damaged"
            return f"{type(error).__name__}: {error}"
        except (Exception, errors.Fault) as error:  # noqa: BLE001 - what it died of is judged, not raised
            return f"{type(error).__name__}: {error}"
        return ""

    def restart(self, *, forget_rows: bool) -> None:
        """Start a new machine with what is left on the disk.

        Args:
            forget_rows: Whether the rows of the index are lost, too.
        """
        disk = self.disk
        if isinstance(disk, FragileDisk):
            disk.lose_power()
            assert disk.left is not None
            self.disk = disk.left
            self.promised = _by_run(disk.promised)
        self._index = self._index.copy()
        if forget_rows:
            interruption.run(self._index.clear())

    def journals(self) -> dict[str, bytes]:
        """Return each run's journal from the disk."""
        disk = self.disk
        paths = {run_id: f"{layout.RUNS}/{run_id}/{layout.STEPS}" for run_id in layout.run_ids(disk.names(layout.RUNS))}
        return {run_id: disk.read(path) for run_id, path in paths.items() if disk.has_file(path)}

    async def _live(self) -> None:
        self._dark = asyncio.Event()
        living = asyncio.ensure_future(trial_runs.live(self._lived, self._surroundings()))
        dark = asyncio.ensure_future(self._dark.wait())
        await asyncio.wait({living, dark}, return_when=asyncio.FIRST_COMPLETED)
        dark.cancel()
        if not self._dark.is_set():
            await living
            return
        living.cancel()
        await asyncio.wait({living})
        raise _Dark

    def _surroundings(self) -> trial_runs.Surroundings:
        return trial_runs.Surroundings(
            make_store=self._make_store,
            is_taken=self._is_taken,
            watch=lambda performer: _Powered(performer, self._dark),
            on_rest=_mended,
        )

    def _is_taken(self, name: str) -> bool:
        names = self.disk.crashed(lose_unsynced=False).names(layout.RUNS)
        return not {name, layout.new_folder(name).rpartition("/")[2]}.isdisjoint(names)

    def _make_store(
        self, _kept: object, _url: str, platform: bootstrap.Platform, adopt: run_folders.Adopt
    ) -> bootstrap.Store:
        return memory_store.MemoryStore(
            clock=platform.clock, probes=platform.probes, adopt=adopt, disk=self.disk, index=self._index
        )

    def _go_dark(self) -> None:
        # Late writes to this index have no effect.
        self._index = self._index.copy()
        self._dark.set()


class _Powered:
    """A performer that blocks when the power is lost."""

    def __init__(self, inner: ports.Performer, dark: asyncio.Event) -> None:
        self._inner = inner
        self._dark = dark

    async def perform(self, call: ports.Call) -> records.Result:
        if self._dark.is_set():
            await asyncio.Event().wait()
        return await self._inner.perform(call)


_NAMES = (*trial_runs.RUN_IDS, clock.INTERNAL_PREFIX)


class _Heard(logging.Handler):
    """Records whether an error that names a run, or the plan, is logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told = False

    def emit(self, record: logging.LogRecord) -> None:
        named = (record.getMessage(), str(getattr(record, "run_id", "")))
        self.told = self.told or any(name in text for text in named for name in _NAMES)

    def __enter__(self) -> _Heard:
        logging.getLogger("app").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("app").removeHandler(self)


def _by_run(files: Mapping[str, bytes]) -> dict[str, bytes]:
    names = (path.split("/") for path in files)
    return {run_id: files[f"{folder}/{run_id}/{name}"] for folder, run_id, name in names}


async def _mended(application: bootstrap.Application) -> None:
    # As a person does with a run that is parked for its damaged journal: keep the prefix, and continue the run.
    for shown in await application.store.list_runs(stores.RunQuery()):
        if shown.error_code != errors.JournalCorrupt.default_code:
            continue
        await application.store.maintenance.repair(shown.run_id)
        if (await application.store.summary(shown.run_id)).status == states.RunState.PAUSED.value:
            await application.runs.unpause(shown.run_id)
            await workload.run_rests(application, shown.run_id)


def undisturbed(bench: Bench) -> tuple[trials.Seen, list[Operation]]:
    """Run the workload once on a disk in memory; return what it left, and every operation of the disk."""
    experiment = bench.experiment("undisturbed-in-memory")
    machine = Machine(experiment)
    why = machine.live()
    if why:
        raise errors.ControlRoomError(f"the undisturbed run did not come to rest: {why}", code="undisturbed_failed")
    assert isinstance(machine.disk, FragileDisk)
    return trials.look(experiment, machine.journals()), machine.disk.story


def by_operations(
    bench: Bench, name: str, trouble: Trouble, story: Sequence[Operation], expected: trials.Seen
) -> Sweep:
    """Cause the trouble once at each operation, or at each sync, and judge the state after a restart."""
    found = [operation for operation in story if operation.is_sync or trouble is not Trouble.LIE]
    found += [END] if trouble is Trouble.POWER_LOSS else []
    chosen = bench.sampled(found, lambda operation: operation.kind)
    tried = []
    for number, operation in enumerate(chosen):
        experiment = bench.experiment(f"{name}-{number}")
        try:
            tried.append(_tried(experiment, trouble, operation, expected))
        finally:
            bench.drop(experiment)
    return Sweep(name=name, points=len(found), trials=tuple(tried), may_lose=trouble is Trouble.LIE)


def _tried(experiment: Experiment, trouble: Trouble, operation: Operation, expected: trials.Seen) -> Trial:
    machine = Machine(experiment, trouble, operation)
    why = machine.live()
    assert isinstance(machine.disk, FragileDisk)
    if operation not in (END, *machine.disk.story):
        return Trial(point=str(operation), reached=False)
    if trouble in (Trouble.EIO, Trouble.ENOSPC):
        return _after_refusal(machine, experiment, operation, expected, died=bool(why))
    machine.restart(forget_rows=trouble is Trouble.POWER_LOSS and operation.nth % 2 == 0)
    cut = trials.look(experiment, machine.promised)
    return _after_restart(machine, experiment, operation, expected, cut)


def _after_refusal(
    machine: Machine, experiment: Experiment, operation: Operation, expected: trials.Seen, *, died: bool
) -> Trial:
    cut = trials.look(experiment, machine.journals())
    if died:
        return _after_restart(machine, experiment, operation, expected, cut)
    return trials.judge(str(operation), expected, cut, cut, restarted=False)


def _after_restart(
    machine: Machine, experiment: Experiment, operation: Operation, expected: trials.Seen, cut: trials.Seen
) -> Trial:
    experiment.outcome.unlink(missing_ok=True)
    with _Heard() as heard:
        why = machine.live()
    after = trials.look(experiment, machine.journals())
    return trials.judge(str(operation), expected, cut, after, why=why, logged=heard.told or machine.told)
