"""The house: every run that the pool has, each loaded when it gets a seat and unloaded when it comes to rest."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import os
from collections.abc import Callable, Mapping

from app import errors
from app.domain import states, views
from app.engine import evicted_runs, ports, runner, stores
from app.worker.active_run import ActiveRun, Reservation
from app.worker.background_tasks import BackgroundTasks
from app.worker.capacity import CapacityRequest, WorkerCapacity, nobody
from app.worker.eviction import IdleEvictor
from app.worker.grace_period import GracePeriod
from app.worker.keyed_lock import KeyedLock
from app.worker.lineage import Lineage
from app.worker.loading import Loader, Reloads, is_passing
from app.worker.run_versions import RunVersions
from app.worker.workspace_reservations import LockWorkspace

_MOST_WOKEN = 16
_VISIT_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ActiveRuns:
    """Keep the stays of runs."""

    def __init__(
        self,
        store: stores.RunStore,
        dialects: Mapping[str, ports.Driver],
        equipment: runner.Equipment,
        limit: int,
        kept_loaded: int,
        left: Callable[[str, states.RunState], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._tell_left = left
        self._tell_died = died
        self._clock = equipment.clock
        self._reach = equipment.probes.reach
        self._arrivals = itertools.count()
        self.changes = RunVersions()
        """Numbers for polls."""
        self.seats = WorkerCapacity(limit, self.changes.note)
        """The bounded places."""
        self.turns = KeyedLock()
        """One decision at a time for each run."""
        self.lineage = Lineage()
        """Who started whom."""
        self.stays: dict[str, ActiveRun] = {}
        """Runs that are queued or loaded."""
        self.parked: dict[str, views.RunView] = {}
        """Runs that a fault parked without a line in a journal, as they stood then."""
        self.stopping = False
        """Whether no step is begun any more."""
        self.ended: set[str] | None = set()
        """Runs that have ended here while rows were read that may not show it; None once nobody reads such rows."""
        self.expected: set[str] | None = set()
        """Runs that were made here while rows were read; None once nobody reads such rows."""
        self._loader = Loader(store, dialects, equipment, self._seat, self.changes.note)
        self._walks = IdleEvictor(equipment.clock, self._loader.loaded, kept_loaded, self._put_to_sleep, died)
        self._doors = asyncio.Semaphore(_MOST_WOKEN)
        self._interrupts = False
        self._farewells = BackgroundTasks()
        self._visits = BackgroundTasks(died)
        self._visiting = False
        self.reloads = Reloads(store, equipment.clock, self.queue, self.seats.release)
        """Runs that are queued as soon as their folder can be taken."""
        self._patience = GracePeriod(equipment.clock)

    # -- coming in

    def queue(self, *summaries: stores.RunSummary) -> None:
        """Queue runs for a seat, in this order; those that are here already stay as they are."""
        fresh = [self.admit(summary) for summary in summaries if summary.run_id not in self.stays]
        for summary in summaries:
            self.wake(summary.run_id)
        for _ in fresh:
            self._reach("pool.queued")
        self.seats.join(*(stay.ticket for stay in fresh))

    def admit(self, summary: stores.RunSummary) -> ActiveRun:
        """Begin a run's stay, neither queued nor loaded."""
        self.lineage.note(summary)
        left: asyncio.Future[states.RunState] = asyncio.get_running_loop().create_future()
        stay = ActiveRun(run_id=summary.run_id, ticket=self._ticket(summary), left=left)
        stay.ticket.granted = lambda: self._begin(stay)
        self.stays[stay.run_id] = stay
        self.parked.pop(stay.run_id, None)
        self.changes.note(stay.run_id)
        return stay

    def know_found(self) -> None:
        """Take note that all rows have been read that tell what earlier processes left."""
        self.seats.know_workspaces()
        self.ended = self.expected = None

    def hold_workspace(self, summary: stores.RunSummary) -> None:
        """Give a run that was found begun its workspace, if it holds one alone."""
        workspace = _workspace(summary)
        if workspace is not None:
            self.seats.hold(workspace, summary.run_id)

    def guard(self, lock: LockWorkspace) -> None:
        """Lock workspaces against other processes, and ask again for those that one has."""
        self.seats.guard(lock, self._wait_for_others)

    # -- while it is here

    def state(self, run_id: str) -> states.RunState:
        """Tell where a run in the house stands."""
        view = self.view(run_id)
        if view is not None:
            return view.status
        if (asleep := self.stays[run_id].asleep) is not None:
            return asleep.status
        return states.RunState.PENDING if self.stays[run_id].task is None else states.RunState.RUNNING

    def view(self, run_id: str) -> views.RunView | None:
        """Return a loaded run, or one that a fault parked, as it stands."""
        stay = self.stays.get(run_id)
        if stay is None or stay.runner is None:
            return self.parked.get(run_id)
        view = stay.runner.view()
        if view.status is states.RunState.PENDING and self.seats.is_seated(run_id):
            # Whoever was told that it runs must not hear otherwise until its journal says so too.
            return dataclasses.replace(view, status=states.RunState.RUNNING)
        return view

    async def take_up(self, stay: ActiveRun) -> stores.RunLog:
        """Load a run if it is not loaded, out of the queue, so that something can be decided about it in its turn.

        Raises:
            errors.NotFound, errors.JournalCorrupt, errors.Conflict, errors.StorageFault: it cannot be loaded.
        """
        if stay.task is not None:
            await stay.opened.given()
        elif stay.log is None:
            queued = self.seats.is_queued(stay.run_id)
            self.seats.withdraw(stay.run_id)
            await self._load(stay, again=queued)
        if stay.failure is not None:
            raise stay.failure
        assert stay.log is not None
        return stay.log

    def go_on(self, stay: ActiveRun) -> None:
        """Run a loaded run that has no task yet; its runner sees by itself whether it must settle, rest or go on."""
        if stay.task is None:
            stay.task = asyncio.create_task(self._live(stay), name=f"run {stay.run_id}")
            stay.task.add_done_callback(self._watch)

    def wake(self, run_id: str) -> None:
        """Load a run that is asleep and let it go on; nothing if it is being loaded, or is not asleep."""
        stay = self.stays.get(run_id)
        if stay is not None and stay.asleep is not None and not stay.loading:
            self._reach("pool.woken")
            self.go_on(stay)

    # -- the end of the house

    async def close(self, grace_seconds: float) -> None:
        """Let every loaded run come to rest: no new steps, a grace for those in flight, then an interruption."""
        self.stopping = True
        self.seats.close()
        self.reloads.give_up()
        self._walks.give_up()
        await self._walks.settled()
        for stay in [stay for stay in self.stays.values() if stay.task is None]:
            self._send_home(stay)
        for running in self._runners():
            running.stop()
        resting = asyncio.create_task(self._all_left())
        self._patience.limit(grace_seconds)
        await self._patience.wait_for(resting)
        self._interrupts = True
        for running in self._runners():
            running.interrupt()
        await resting
        self._visits.give_up()
        await self._visits.settled()
        await self._farewells.settled()
        self.seats.clear()
        self.changes.wake_all()

    def hurry(self, grace_seconds: float) -> None:
        """Cut the grace of a stop short."""
        self._patience.limit(grace_seconds)

    def _send_home(self, stay: ActiveRun) -> None:
        if stay.asleep is None:
            self._leave(stay, states.RunState.PENDING)
        elif stay.asleep.idle:
            # What only waits is not interrupted, so that nothing about it need be written down.
            self._give_up(stay.asleep)
            self._leave(stay, stay.asleep.status, keeps_workspace=True)
        else:
            self.go_on(stay)

    def _give_up(self, asleep: evicted_runs.EvictedRun) -> None:
        self._farewells.begin(asyncio.wait(asleep.give_up()), "farewell")

    async def _all_left(self) -> None:
        while tasks := [stay.task for stay in self.stays.values() if stay.task is not None and not stay.task.done()]:
            await asyncio.wait(tasks)

    def _runners(self) -> list[runner.Runner]:
        return [stay.runner for stay in self.stays.values() if stay.runner is not None]

    # -- a run's life: begin, load, run, leave

    def _begin(self, stay: ActiveRun) -> None:
        self._reach("pool.granted")
        stay.ticket.granted = nobody
        self.changes.note(stay.run_id)
        self.go_on(stay)

    async def _live(self, stay: ActiveRun) -> None:
        if stay.log is None and stay.asleep is not None:
            async with self._doors:
                await self._load(stay, again=True)
        elif stay.log is None:
            await self._load(stay, again=True)
        while stay.log is not None and await self._runs_on(stay):
            await self._load(stay, again=True)

    def _watch(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell_died(error)

    async def _load(self, stay: ActiveRun, *, again: bool) -> None:
        try:
            await self._loader.load(stay)
        except (errors.ControlRoomError, errors.StorageFault) as failure:
            _log.error("not loaded: %s", failure.message, extra={"run_id": stay.run_id, "code": failure.code})
            self._leave_unloaded(stay, failure, again)
        self._walks.begin()
        if stay.runner is not None and self.stopping:
            stay.runner.stop()
            if self._interrupts:
                stay.runner.interrupt()

    def _leave_unloaded(self, stay: ActiveRun, failure: BaseException, again: bool) -> None:
        corrupt, passing = isinstance(failure, errors.JournalCorrupt), is_passing(failure)
        if stay.asleep is not None:
            if passing and not self.stopping:
                # Its steps are under way, and what comes of them waits until the folder can be taken again.
                stay.task = None
                stay.opened.take_back()
                self.reloads.begin(stay.run_id)
                return
            self._give_up(stay.asleep)
        state = states.RunState.FAILED if corrupt else states.RunState.PENDING
        self._leave(stay, state, keeps_workspace=passing)
        if passing and again and not self.stopping:
            self.reloads.begin(stay.run_id)

    async def _runs_on(self, stay: ActiveRun) -> bool:
        assert stay.log is not None
        assert stay.runner is not None
        state = await self._run(stay.runner, stay.run_id)
        if stay.asleep is not None:
            return await self._lies_down(stay, stay.asleep)
        self.seats.free(stay.run_id)
        async with self.turns.of(stay.run_id):
            decisions, on = stay.log.loaded.decisions, self._is_sent_on(stay, state)
            stay.last = stay.runner.view()
            if state is states.RunState.PAUSED and decisions.paused is None and not on:
                self.parked[stay.run_id] = stay.last
            log = stay.log
            await self._loader.unload(stay)
            if not on:
                self._leave(stay, state, keeps_workspace=decisions.taken_since_resume and not state.finished)
        if state is states.RunState.RUNNING and not (on or self.stopping):  # a file of it cannot be read now
            self.reloads.begin(stay.run_id)
        elif state.finished and log.owes_move:
            self.reloads.make_sure(stay.run_id)
        return on

    async def _put_to_sleep(self, stay: ActiveRun) -> None:
        async with self.turns.of(stay.run_id):
            running, log = stay.runner, stay.log
            if running is None or log is None:
                return
            turns = running.turns
            try:
                await log.rest()
            except errors.StorageFault:
                return
            self._reach("pool.before_sleep")
            if running is stay.runner and running.turns == turns and running.may_sleep():
                stay.asleep = running.sleep(self.wake)

    async def _lies_down(self, stay: ActiveRun, asleep: evicted_runs.EvictedRun) -> bool:
        assert stay.log is not None
        async with self.turns.of(stay.run_id):
            decisions = stay.log.loaded.decisions
            await self._loader.unload(stay)
        self._reach("pool.asleep")
        if decisions.paused or decisions.cancel_requested_at or self.stopping or asleep.stepper.home.wanted:
            return True
        stay.task = None
        return False

    async def _run(self, running: runner.Runner, run_id: str) -> states.RunState:
        try:
            return await running.run()
        except errors.Unreadable:
            return states.RunState.RUNNING
        except errors.StorageFault as fault:
            _log.error("not brought to rest: %s", fault.message, extra={"run_id": run_id, "code": fault.code})
            self.reloads.begin(run_id)
        except (Exception, errors.Fault):  # noqa: BLE001 - one run must not take the others down
            _log.exception("the runner broke", extra={"run_id": run_id})
        return states.RunState.PAUSED

    def _is_sent_on(self, stay: ActiveRun, state: states.RunState) -> bool:
        assert stay.log is not None
        if state.finished or not stay.sent_on:
            return False
        return not self.stopping or stay.log.loaded.decisions.cancel_requested_at is not None

    def _leave(self, stay: ActiveRun, state: states.RunState, *, keeps_workspace: bool = False) -> None:
        del self.stays[stay.run_id]
        self.seats.withdraw(stay.run_id)
        self.seats.free(stay.run_id)
        if not keeps_workspace:
            self.seats.release(stay.run_id)
        if state.finished:
            self.lineage.forget(stay.run_id)
            if self.ended is not None:
                self.ended.add(stay.run_id)
        stay.left.set_result(state)
        self.changes.note(stay.run_id)
        self._tell_left(stay.run_id, state)

    # -- other processes

    def _wait_for_others(self) -> None:
        if not self._visiting:
            self._visiting = True
            self._visits.begin(self._visit(), "visit")

    async def _visit(self) -> None:
        waits = True
        while waits and not self.stopping:
            await self._clock.sleep(_VISIT_SECONDS)
            waits = self.seats.look_again()
        self._visiting = False

    def _ticket(self, summary: stores.RunSummary) -> CapacityRequest:
        return CapacityRequest(
            run_id=summary.run_id,
            priority=summary.priority,
            arrival=next(self._arrivals),
            workspace=_workspace(summary),
            ancestors=self.lineage.ancestors(summary.run_id),
            granted=nobody,
        )

    def _seat(self, stay: ActiveRun) -> Reservation:
        return Reservation(self.seats, stay.ticket, lambda: next(self._arrivals))


def _workspace(summary: stores.RunSummary) -> str | None:
    return os.path.normpath(summary.working_dir) if summary.exclusive_workspace else None
