"""The runs in the pool: queued, loaded when they get capacity, evicted while they only wait, and unloaded at rest."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Mapping

from app import clock, errors
from app.domain import states, views
from app.engine import aio, event_feed, evicted_runs, ports, run_equipment, runner, stores
from app.worker.active_run import ActiveRun, CapacityHold, RunHooks
from app.worker.capacity import CapacityRequest, WorkerCapacity, ignored, request_of, workspace_of
from app.worker.eviction import IdleEvictor
from app.worker.lineage import NOBODY, Lineage
from app.worker.loading import Loader, Reloads, is_passing
from app.worker.workspace_holds import LockWorkspace, WorkspacePoller

_MOST_LOADS_AT_ONCE = 16

_log = logging.getLogger(__name__)


class ActiveRuns:
    """Moves runs between the queue, memory and their folders.

    This state does not survive a crash: recovery queues every unfinished run again.
    """

    def __init__(
        self,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        limit: int,
        kept_loaded: int,
        hooks: RunHooks,
    ) -> None:
        self._hooks = hooks
        self._fair_label = equipment.fair_label
        self._reach = equipment.probes.reach
        self._spending = equipment.spending
        self._arrivals = itertools.count()
        self.changes = event_feed.RunVersions()  # Change numbers of runs.
        self.capacity = WorkerCapacity(limit, self.changes.note)  # The pool's bounded capacity.
        self.locks = aio.KeyedLock()
        """A lock for each run, which serialises the commands on it."""
        self.lineage = Lineage()  # Parents of runs.
        self.active_runs: dict[str, ActiveRun] = {}  # Runs that are queued or loaded.
        self.internal: set[str] = set()  # Active runs that lists and counts do not show.
        self.parked: dict[str, views.RunView] = {}
        """Last views of runs that a fault parked without a journal line."""
        self.unread: set[str] = set()  # Runs found waiting, or to be cancelled; neither queued nor read yet.
        self.stopping = False
        """Whether the pool is stopping, so that it begins no step."""
        self.ended: set[str] | None = set()
        """Runs that ended while recovery was reading rows that may be older; None once recovery has finished."""
        self.expected: set[str] | None = set()
        """Runs that were created while recovery was reading rows; None once recovery has finished."""
        self._loader = Loader(store, drivers, equipment, self._capacity_hold, self.changes.note, self.parked)
        self.opened = self._loader.opened  # Opens the folder of a run that is not active, for a command.
        self.unload = self._loader.unload  # Closes the folder of a loaded run.
        self._evictor = IdleEvictor(equipment.clock, self._loader.loaded, kept_loaded, self._evict, hooks.died)
        self._loads_at_once = asyncio.Semaphore(_MOST_LOADS_AT_ONCE)
        self._interrupts = False
        self._abandoned = aio.BackgroundTasks()
        self._workspace_poller = WorkspacePoller(equipment.clock, self.capacity.grant_released, hooks.died)
        self.reloads = Reloads(store, equipment.clock, self.queue, self.capacity.release)
        """Queues runs again as soon as their folders can be opened."""
        self._grace = aio.GracePeriod(equipment.clock)

    # -- queue

    def queue(self, *summaries: stores.RunSummary) -> None:
        """Queue runs for capacity, in this order; a run that is already active is only woken, if it is evicted."""
        fresh = [self.admit(summary) for summary in summaries if summary.run_id not in self.active_runs]
        for summary in summaries:
            self.wake(summary.run_id)
        for _ in fresh:
            self._reach("pool.queued")
        self.capacity.join(*(active_run.request for active_run in fresh))

    def admit(self, summary: stores.RunSummary) -> ActiveRun:
        """Add a run to the active runs, neither queued nor loaded."""
        if summary.parent_run_id is not None:
            self.lineage.note(summary)
        departure: asyncio.Future[states.RunState] = asyncio.get_running_loop().create_future()
        active_run = ActiveRun(run_id=summary.run_id, request=self._request(summary), left=departure)
        active_run.request.granted = lambda: self._start_granted(active_run)
        self.active_runs[active_run.run_id] = active_run
        if clock.is_internal(active_run.run_id):
            self.internal.add(active_run.run_id)
        self.parked.pop(active_run.run_id, None)
        self.changes.note(active_run.run_id)
        return active_run

    def know_found(self) -> None:
        """Record that recovery has read all rows that earlier processes left."""
        self.capacity.know_holders()
        self.ended = self.expected = None

    def hold_workspace(self, summary: stores.RunSummary) -> None:
        """Give a run that has begun its workspace and its concurrency key, if it needs them."""
        workspace = workspace_of(summary)
        if workspace is not None:
            self.capacity.hold(workspace, summary.run_id)
        if summary.concurrency_key is not None:
            self.capacity.hold_key(summary.concurrency_key, summary.run_id, (summary.created_at, summary.run_id))

    def guard(self, lock: LockWorkspace) -> None:
        """Lock workspaces against other processes, and poll for those that another process holds."""
        self.capacity.guard(lock, self._workspace_poller.begin)

    # -- active runs

    def state(self, run_id: str) -> states.RunState:
        """Return the state of an active run."""
        view = self.view(run_id)
        if view is not None:
            return view.status
        if (evicted := self.active_runs[run_id].evicted) is not None:
            return evicted.status
        return states.RunState.PENDING if self.active_runs[run_id].task is None else states.RunState.RUNNING

    def view(self, run_id: str) -> views.RunView | None:
        """Return the view of a loaded or parked run."""
        active_run = self.active_runs.get(run_id)
        if active_run is None or active_run.runner is None:
            return self.parked.get(run_id)
        view = active_run.runner.view()
        if view.status is states.RunState.PENDING and self.capacity.has_capacity(run_id):
            # A caller that received `running` must not see `pending` until the journal records the begin.
            return dataclasses.replace(view, status=states.RunState.RUNNING)
        return view

    def obstacle(self, run_id: str) -> errors.StorageFault | None:
        """Return the fault of the data directory for whose end a run waits now, loaded or not."""
        active_run = self.active_runs.get(run_id)
        if active_run is None:
            view = self.parked.get(run_id)
            parked = view is not None and view.reason == errors.StorageFault.default_code
            return errors.StorageFault("the run is parked until its folder can be written") if parked else None
        if active_run.runner is not None:
            return active_run.runner.storage_retry.obstacle
        return active_run.failure if isinstance(active_run.failure, errors.StorageFault) else None

    async def load_now(self, active_run: ActiveRun) -> stores.RunLog:
        """Load a run if it is not loaded, ahead of the queue, so that a command can be written.

        Raises:
            errors.NotFound, errors.JournalCorrupt, errors.Conflict, errors.StorageFault: the run cannot be loaded.
        """
        if active_run.task is not None:
            await active_run.opened.wait()
        elif active_run.log is None:
            active_run.displaced = self.capacity.is_queued(active_run.run_id)
            again = active_run.displaced or active_run.run_id in self.unread
            # Loaded without capacity: a command must not wait behind runs that take hours.
            self.capacity.withdraw(active_run.run_id)
            await self._load(active_run, again=again)
        if active_run.failure is not None:
            raise active_run.failure
        assert active_run.log is not None
        return active_run.log

    def advance(self, active_run: ActiveRun) -> None:
        """Start the task of an active run that has none; its runner decides whether it comes to rest or continues."""
        if active_run.task is None:
            active_run.task = asyncio.create_task(self._load_and_run(active_run), name=f"run {active_run.run_id}")
            active_run.task.add_done_callback(self._report_death)

    def wake(self, run_id: str) -> None:
        """Load an evicted run and continue it; a run that is being loaded, or is not evicted, is unchanged."""
        active_run = self.active_runs.get(run_id)
        if active_run is not None and active_run.evicted is not None and not active_run.loading:
            active_run.evicted.want()
            self._reach("pool.woken")
            self.advance(active_run)

    # -- stop

    async def close(self, grace_seconds: float) -> None:
        """Stop every active run: begin no steps, wait a grace period for open ones, then interrupt them."""
        self.stopping = True
        self.capacity.close()
        self.reloads.give_up()
        self._evictor.give_up()
        self._workspace_poller.give_up()
        # An eviction that has begun is still writing; it ends before the runs are stopped.
        await self._evictor.wait_idle()
        for active_run in [active_run for active_run in self.active_runs.values() if active_run.task is None]:
            self._stop_unloaded(active_run)
        for running in self._runners():
            running.stop()
        resting = asyncio.create_task(self._all_left())
        self._grace.limit(grace_seconds)
        await self._grace.wait_for(resting)
        self._interrupts = True
        for running in self._runners():
            running.interrupt()
        await resting
        await self._workspace_poller.wait_idle()
        await self._abandoned.wait_idle()
        self.capacity.clear()
        self.changes.wake_all()

    def shorten_grace(self, grace_seconds: float) -> None:
        """Shorten the grace period of a stop."""
        self._grace.limit(grace_seconds)

    def _stop_unloaded(self, active_run: ActiveRun) -> None:
        if active_run.evicted is None:
            self._leave(active_run, states.RunState.PENDING)
        elif active_run.evicted.idle:
            # Steps that only wait are not interrupted, so there is no line to write.
            self._give_up(active_run.evicted)
            self._leave(active_run, active_run.evicted.status, keeps_workspace=True)
        else:
            self.advance(active_run)

    def _give_up(self, evicted: evicted_runs.Evicted) -> None:
        if tasks := evicted.give_up():
            self._abandoned.begin(asyncio.wait(tasks), "steps of an abandoned run")

    async def _all_left(self) -> None:
        while tasks := [
            active_run.task
            for active_run in self.active_runs.values()
            if active_run.task is not None and not active_run.task.done()
        ]:
            await asyncio.wait(tasks)

    def _runners(self) -> list[runner.Runner]:
        return [active_run.runner for active_run in self.active_runs.values() if active_run.runner is not None]

    # -- life cycle of a run: begin, load, run, leave

    def _start_granted(self, active_run: ActiveRun) -> None:
        self._reach("pool.granted")
        active_run.request.granted = ignored
        self.changes.note(active_run.run_id)
        self.advance(active_run)

    async def _load_and_run(self, active_run: ActiveRun) -> None:
        if active_run.log is None and active_run.evicted is not None:
            async with self._loads_at_once:
                await self._load(active_run, again=True)
        elif active_run.log is None:
            await self._load(active_run, again=True)
        while active_run.log is not None and await self._run_to_rest(active_run):
            await self._load(active_run, again=True)

    def _report_death(self, task: asyncio.Task[None]) -> None:
        if (error := aio.failure(task)) is not None:
            self._hooks.died(error)

    async def _load(self, active_run: ActiveRun, *, again: bool) -> None:
        self.unread.discard(active_run.run_id)
        # A defect of one folder concerns its run alone.
        try:
            await self._loader.load(active_run)
        except (errors.ControlRoomError, errors.StorageFault) as failure:
            _log.error("not loaded: %s", failure.message, extra={"run_id": active_run.run_id, "code": failure.code})
            self._leave_unloaded(active_run, failure, again)
        self._evictor.begin()
        if active_run.runner is not None:
            self._hooks.noted(active_run)
        # The pool may have begun to stop while the folder was opened.
        if active_run.runner is not None and self.stopping:
            active_run.runner.stop()
            if self._interrupts:
                active_run.runner.interrupt()

    def _leave_unloaded(self, active_run: ActiveRun, failure: BaseException, again: bool) -> None:
        corrupt, passing = isinstance(failure, errors.JournalCorrupt), is_passing(failure)
        # An evicted run has open steps: it is not given up because of a temporary fault.
        if active_run.evicted is not None:
            if passing and not self.stopping:
                # The results of its open steps wait until the folder can be opened again.
                active_run.task = None
                active_run.opened.clear()
                self.changes.note(active_run.run_id)
                self.reloads.begin(active_run.run_id)
                return
            self._give_up(active_run.evicted)
        state = states.RunState.FAILED if corrupt else states.RunState.PENDING
        self._leave(active_run, state, keeps_workspace=passing)
        if passing and again and not self.stopping:
            self.reloads.begin(active_run.run_id)

    async def _run_to_rest(self, active_run: ActiveRun) -> bool:
        """Execute a loaded run until it is at rest or evicted, and unload it; return whether to load it again."""
        assert active_run.log is not None
        assert active_run.runner is not None
        state = await self._run(active_run.runner, active_run.run_id)
        if active_run.evicted is not None:
            return await self._finish_eviction(active_run, active_run.evicted)
        self.capacity.free(active_run.run_id)
        # Under the lock, so that a command finds the run either loaded or gone.
        async with self.locks.of(active_run.run_id):
            decisions, continues = active_run.log.loaded.decisions, self._is_sent_on(active_run, state)
            active_run.last = active_run.runner.view()
            # The run was parked by a fault that left no line: only this view shows it.
            if state is states.RunState.PAUSED and decisions.paused is None and not continues:
                self.parked[active_run.run_id] = active_run.last
            log = active_run.log
            await self._loader.unload(active_run)
            if not continues:
                self._leave(active_run, state, keeps_workspace=decisions.taken_since_resume and not state.finished)
        if state is states.RunState.RUNNING and not (continues or self.stopping):  # a file cannot be read now
            self.reloads.begin(active_run.run_id)
        elif state.finished and log.has_pending_move:
            self.reloads.make_sure(active_run.run_id)
        return continues

    async def _evict(self, active_run: ActiveRun) -> None:
        async with self.locks.of(active_run.run_id):
            running, log = active_run.runner, active_run.log
            if running is None or log is None:
                return
            turns = running.turns
            try:
                # Data that is not written yet would be lost with the runner.
                await log.flush()
            except errors.StorageFault:
                return
            self._reach("pool.before_evict")
            self._hooks.noted(active_run)
            # The run continued while the lines were written: it may have moved, or received a command.
            if running is active_run.runner and running.turns == turns and running.may_be_evicted():
                evicted = running.evict(self.wake)
                active_run.evicted = self._hooks.rest(log.loaded, evicted) or evicted

    async def _finish_eviction(self, active_run: ActiveRun, evicted: evicted_runs.Evicted) -> bool:
        assert active_run.log is not None
        async with self.locks.of(active_run.run_id):
            decisions = active_run.log.loaded.decisions
            await self._loader.unload(active_run)
        self._reach("pool.evicted")
        # A decision made meanwhile needs a loaded run.
        if decisions.paused or decisions.cancel_requested_at or self.stopping or evicted.wanted:
            return True
        active_run.task = None
        return False

    async def _run(self, running: runner.Runner, run_id: str) -> states.RunState:
        try:
            # In a task of its own, so that each turn of the run resumes only the frames of the runner.
            return await asyncio.create_task(running.run(), name=f"runner {run_id}")
        except errors.Unreadable:
            return states.RunState.RUNNING
        except errors.StorageFault as fault:
            _log.error("not brought to rest: %s", fault.message, extra={"run_id": run_id, "code": fault.code})
            self.reloads.begin(run_id)
        except (Exception, errors.Fault):  # noqa: BLE001 - one run must not take the others down
            _log.exception("the runner broke", extra={"run_id": run_id})
        return states.RunState.PAUSED

    def _is_sent_on(self, active_run: ActiveRun, state: states.RunState) -> bool:
        assert active_run.log is not None
        if state.finished or not active_run.sent_on:
            return False
        return not self.stopping or active_run.log.loaded.decisions.cancel_requested_at is not None

    def _leave(self, active_run: ActiveRun, state: states.RunState, *, keeps_workspace: bool = False) -> None:
        del self.active_runs[active_run.run_id]
        self.internal.discard(active_run.run_id)
        self.unread.discard(active_run.run_id)
        self.capacity.withdraw(active_run.run_id)
        self.capacity.free(active_run.run_id)
        # A run that is only parked may have left its workspace half changed: no other run gets it.
        if not keeps_workspace:
            self.capacity.release(active_run.run_id)
        if state.finished:
            self.lineage.forget(active_run.run_id)
            if self._spending is not None:
                self._spending.forget(active_run.run_id)
            if self.ended is not None:
                self.ended.add(active_run.run_id)
        active_run.left.set_result(state)
        self.changes.note(active_run.run_id)
        self._hooks.left(active_run.run_id, state)

    # -- capacity

    def _request(self, summary: stores.RunSummary) -> CapacityRequest:
        ancestors = NOBODY if summary.parent_run_id is None else self.lineage.ancestors(summary.run_id)
        return request_of(summary, next(self._arrivals), ancestors, self._fair_label)

    def _capacity_hold(self, active_run: ActiveRun) -> CapacityHold:
        return CapacityHold(self.capacity, active_run.request, lambda: next(self._arrivals))
