"""Loading: opens a run's folder and creates its runner, and closes both when the run is at rest."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import cast

from app import clock, errors
from app.domain import runs, states, views
from app.engine import aio, dry_replay, evicted_runs, ports, run_equipment, runner, stores
from app.worker.active_run import ActiveRun, CapacityHold

RELOAD_SECONDS = 5.0  # Wait until a run whose folder could not be opened is queued again.

_log = logging.getLogger(__name__)


class ParkingDriver:
    """A driver that only parks its runs; they can still be cancelled.

    Args:
        fault: Raised by `drive` for each run; the run is parked with its code.
    """

    def __init__(self, fault: errors.Fault) -> None:
        self._fault = fault

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Refuse to execute the run.

        Raises:
            errors.Fault: the given fault.
        """
        raise self._fault


class Loader:
    """Loads and unloads active runs.

    Args:
        parked: Receives the views of runs that cannot be loaded because of an internal error.
    """

    def __init__(
        self,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        capacity_hold: Callable[[ActiveRun], CapacityHold],
        changed: Callable[[str], None],
        parked: dict[str, views.RunView],
    ) -> None:
        self._store = store
        self._drivers = drivers
        self._equipment = equipment
        self._capacity_hold = capacity_hold
        self._changed = changed
        self._parked = parked
        self.loaded: dict[str, ActiveRun] = {}
        """Active runs that are loaded."""
        self._commanded: dict[str, aio.LightEvent] = {}

    async def load(self, active_run: ActiveRun) -> None:
        """Open a run's folder and create its runner.

        Raises:
            errors.ControlRoomError, errors.StorageFault: the run cannot be loaded; `failure` contains the same error.
        """
        active_run.loading = True
        active_run.failure = None
        try:
            # Otherwise the run would appear to be locked by another process.
            while (closed := self._commanded.get(active_run.run_id)) is not None:
                await closed.wait()
            log = await self._store.open(active_run.run_id)
            try:
                fault = await self._folder_fault(active_run, log)
                active_run.runner = self._runner(active_run, log, fault)
            except BaseException:
                # A run without a runner must not keep the lock of its folder.
                await self._close(active_run, log)
                raise
            active_run.log = log
            active_run.sent_on = False
            active_run.evicted = None
            self.loaded[active_run.run_id] = active_run
            # The order to interrupt came while the folder was closed.
            if active_run.interrupts and log.loaded.decisions.paused is not None:
                active_run.runner.pause(interrupt=True)
            active_run.interrupts = False
        except (errors.ControlRoomError, errors.StorageFault) as failure:
            active_run.failure = failure
            raise
        except OSError as error:  # e.g. the process has no file descriptors left
            active_run.failure = errors.StorageFault(f"{type(error).__name__}: {error}")
            raise active_run.failure from error
        except Exception as error:  # one folder must not take the others down
            _log.exception("loading broke", extra={"run_id": active_run.run_id})
            active_run.failure = errors.ControlRoomError(
                f"the run cannot be loaded: {type(error).__name__}: {error}", code="internal_error"
            )
            await self._park(active_run.run_id, active_run.failure)
            raise active_run.failure from error
        finally:
            active_run.loading = False
            # Commands that wait for the run are also woken by a failure.
            active_run.opened.set()

    @contextlib.asynccontextmanager
    async def opened(self, run_id: str) -> AsyncIterator[stores.RunLog]:
        """Open the folder of a run that is not active, for a command; loading the run waits until it is closed."""
        closed = self._commanded[run_id] = aio.LightEvent()
        try:
            log = await self._store.open(run_id)
            try:
                yield log
            finally:
                # The decision is durable by now, so the command is valid even if snapshots cannot be written.
                await self._closed(run_id, log.close())
        finally:
            del self._commanded[run_id]
            closed.set()

    async def unload(self, active_run: ActiveRun) -> None:
        """Close a run's folder; the folder of an evicted run is set aside."""
        assert active_run.log is not None
        await self._close(active_run, active_run.log)
        active_run.opened.clear()
        if active_run.runner is not None:
            active_run.runner.storage_retry.stop_reporting()
        active_run.log = active_run.runner = None
        self.loaded.pop(active_run.run_id, None)

    async def _park(self, run_id: str, failure: errors.ControlRoomError) -> None:
        # The pool does not load the run again by itself, so the run must not appear to be about to begin.
        try:
            loaded = await self._store.read(run_id)
        except (errors.ControlRoomError, errors.StorageFault) as unread:
            _log.error("not shown as parked: %s", unread.message, extra={"run_id": run_id, "code": unread.code})
            return
        view, error = dry_replay.view_without_driver(loaded), failure.to_json()
        if not view.status.finished:
            status = states.RunState.PAUSED
            self._parked[run_id] = dataclasses.replace(
                view, status=status, reason=failure.code, error=error, replaying=True
            )

    async def _close(self, active_run: ActiveRun, log: stores.RunLog) -> None:
        await self._closed(active_run.run_id, log.close() if active_run.evicted is None else log.set_aside())

    async def _closed(self, run_id: str, closing: Awaitable[None]) -> None:
        try:
            await closing
        except errors.StorageFault as fault:
            _log.error("not closed well: %s", fault.message, extra={"run_id": run_id, "code": fault.code})

    async def _folder_fault(self, active_run: ActiveRun, log: stores.RunLog) -> errors.Fault | None:
        # Otherwise its steps would fail, and the run with them, although only the folder is wrong. A new run's folder
        # was checked when the run was created, an evicted run's when it was loaded.
        find, loaded = self._equipment.folder_fault, log.loaded
        if find is None or _known(active_run) is not None:
            return None
        fault = find(loaded.start, False)
        return await asyncio.to_thread(find, loaded.start, True) if fault is None and loaded.decisions.taken else fault

    def _runner(self, active_run: ActiveRun, log: stores.RunLog, fault: errors.Fault | None) -> runner.Runner:
        run_id = active_run.run_id
        driver: ports.Driver | ParkingDriver
        try:
            driver = ports.driver_of(self._drivers, log.loaded.start) if fault is None else ParkingDriver(fault)
        except errors.DriverFault as unknown:
            driver = ParkingDriver(unknown)
        changed = functools.partial(self._changed, run_id)
        return runner.Runner(
            log,
            cast(ports.Driver, driver),
            self._equipment,
            self._capacity_hold(active_run),
            changed,
            _known(active_run),
        )


def _known(active_run: ActiveRun) -> evicted_runs.Evicted | None:
    """Return what remained in memory of an evicted run that this process has executed."""
    return active_run.evicted if active_run.evicted is not None and active_run.evicted.taken else None


class Reloads:
    """Queues runs again whose folders could not be opened.

    Args:
        release: Releases the workspace of a run that this pool does not continue.
    """

    def __init__(
        self,
        store: stores.RunStore,
        time: clock.Clock,
        queue: Callable[[stores.RunSummary], None],
        release: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = time
        self._queue = queue
        self._release = release
        self._background_tasks = aio.BackgroundTasks()

    def begin(self, run_id: str) -> None:
        """Queue a run again after a pause, until its folder can be opened."""
        self._background_tasks.begin(self._reload(run_id), f"reload {run_id}")

    def make_sure(self, run_id: str) -> None:
        """Queue an ended run again if its row does not show the ending, e.g. because the index was unavailable."""
        self._background_tasks.begin(self._check_ending(run_id), f"ending of {run_id}")

    def give_up(self) -> None:
        """Stop queueing runs."""
        self._background_tasks.give_up()

    async def _check_ending(self, run_id: str) -> None:
        if not await self._try(run_id, lambda _: self.begin(run_id)):
            self.begin(run_id)

    async def _reload(self, run_id: str) -> None:
        await self._pause(run_id)
        while not await self._try(run_id, self._queue):
            await self._pause(run_id)

    async def _pause(self, run_id: str) -> None:
        if self._store.unreadable(run_id) is None:
            await self._clock.sleep(RELOAD_SECONDS)
        else:
            await self._store.until_readable(run_id)

    async def _try(self, run_id: str, act: Callable[[stores.RunSummary], None]) -> bool:
        try:
            summary = await self._store.summary(run_id)
        except errors.NotFound:
            self._release(run_id)
            return True
        except errors.StorageFault as fault:
            _log.warning("not queued now: %s", fault.message, extra={"run_id": run_id, "code": fault.code})
            return False
        # A row may show that the run has ended before its files do.
        over = states.RunState(summary.status).finished and not self._store.lags(run_id)
        if not over and summary.owner == "service":
            act(summary)
        else:
            self._release(run_id)
        return True


def is_passing(failure: BaseException) -> bool:
    """Return whether a folder that could not be opened may be free or readable later."""
    return isinstance(failure, errors.StorageFault) or getattr(failure, "code", None) == "run_busy"
