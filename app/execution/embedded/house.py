"""
The house: every run that the pool has, each loaded when it gets a seat and unloaded when it comes to rest.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Mapping

from app import errors
from app.engine import ports, runner, states, stores, views
from app.execution.embedded.changes import Changes
from app.execution.embedded.patience import Patience
from app.execution.embedded.seats import Seats, Ticket
from app.execution.embedded.stays import Seat, Stay
from app.execution.embedded.turns import Turns
from app.execution.embedded.unspoken import UNSPOKEN

RELOAD_SECONDS = 5.0
"""Wait before a run whose folder could not be read is queued again."""

_log = logging.getLogger(__name__)


class House:
    """
    Keep the stays of runs.
    """

    def __init__(
        self,
        store: stores.RunStore,
        dialects: Mapping[str, ports.Dialect],
        equipment: runner.Equipment,
        limit: int,
        left: Callable[[str, states.RunState], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._dialects = dialects
        self._equipment = equipment
        self._tell_left = left
        self._tell_died = died
        self._arrivals = itertools.count()
        self._parents: dict[str, str] = {}
        self._reloads: set[asyncio.Task[None]] = set()
        self._patience = Patience(equipment.clock)
        self.seats = Seats(limit)
        """The bounded places."""
        self.turns = Turns()
        """One decision at a time for each run."""
        self.changes = Changes()
        """Numbers for polls."""
        self.stays: dict[str, Stay] = {}
        """Runs that are queued or loaded."""
        self.parked: dict[str, views.RunView] = {}
        """Runs that a fault parked without a line in a journal, as they stood then."""
        self.stopping = False
        """Whether no step is begun any more."""

    def queue(self, *summaries: stores.RunSummary) -> None:
        """
        Queue runs for a seat, in this order; those that are here already stay as they are.
        """
        fresh = [self.admit(summary) for summary in summaries if summary.run_id not in self.stays]
        for _ in fresh:
            self._reach("pool.queued")
        self.seats.join(*(stay.ticket for stay in fresh))

    def admit(self, summary: stores.RunSummary) -> Stay:
        """
        Begin a run's stay, neither queued nor loaded.
        """
        self.know_parent(summary)
        stay = Stay(run_id=summary.run_id, ticket=self._ticket(summary), left=_unknown())
        stay.ticket.granted = lambda: self._begin(stay)
        self.stays[stay.run_id] = stay
        self.parked.pop(stay.run_id, None)
        self.changes.note(stay.run_id)
        return stay

    def know_parent(self, summary: stores.RunSummary) -> None:
        """
        Remember who started a run, for as long as it is unfinished.
        """
        if summary.parent_run_id is not None:
            self._parents[summary.run_id] = summary.parent_run_id

    def hold_workspace(self, summary: stores.RunSummary) -> None:
        """
        Give a run that was found begun its workspace, if it holds one alone.
        """
        workspace = _workspace(summary)
        if workspace is not None:
            self.seats.hold(workspace, summary.run_id)

    def state(self, run_id: str) -> states.RunState:
        """
        Tell where a run in the house stands.
        """
        stay = self.stays[run_id]
        if stay.runner is not None:
            return stay.runner.view().status
        return states.RunState.PENDING if stay.task is None else states.RunState.RUNNING

    async def take_up(self, stay: Stay) -> stores.RunLog:
        """
        Load a run if it is not loaded, out of the queue, so that something can be decided about it in its turn.

        Raises:
            errors.NotFound, errors.JournalCorrupt, errors.Conflict, errors.StorageFault: it cannot be loaded.
        """
        if stay.task is not None:
            await stay.opened.wait()
        elif stay.log is None:
            await self._load_unseated(stay)
        if stay.failure is not None:
            raise stay.failure
        assert stay.log is not None
        return stay.log

    def go_on(self, stay: Stay) -> None:
        """
        Run a loaded run that has no task yet; its runner sees by itself whether it must settle, rest or go on.
        """
        if stay.task is None:
            stay.task = asyncio.create_task(self._live(stay), name=f"run {stay.run_id}")
            stay.task.add_done_callback(self._watch)

    async def close(self, grace_seconds: float) -> None:
        """
        Let every loaded run come to rest: no new steps, a grace for those in flight, then an interruption.
        """
        self.stopping = True
        self.seats.close()
        for reload in self._reloads:
            reload.cancel()
        for stay in [stay for stay in self.stays.values() if stay.task is None]:
            self._leave(stay, states.RunState.PENDING)
        for running in self._runners():
            running.stop()
        resting = asyncio.create_task(self._all_left())
        self._patience.limit(grace_seconds)
        await self._patience.wait_for(resting)
        for running in self._runners():
            running.interrupt()
        await resting
        self.changes.wake_all()

    def hurry(self, grace_seconds: float) -> None:
        """
        Cut the grace of a stop short.
        """
        self._patience.limit(grace_seconds)

    # -- a run's life: begin, load, run, leave

    def _begin(self, stay: Stay) -> None:
        self._reach("pool.granted")
        self.changes.note(stay.run_id)
        self.go_on(stay)

    async def _live(self, stay: Stay) -> None:
        loaded = stay.log is not None or await self._load_seated(stay)
        while loaded and await self._runs_on(stay):
            loaded = await self._load_seated(stay)

    def _watch(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell_died(error)

    async def _load_seated(self, stay: Stay) -> bool:
        try:
            await self._load(stay)
        except errors.StorageFault as fault:
            _log.warning("not loaded now: %s", fault.message, extra={"run_id": stay.run_id, "code": fault.code})
            self._leave(stay, states.RunState.PENDING, keeps_workspace=True)
            self._reload_later(stay.run_id)
            return False
        except errors.ControlRoomError as error:
            _log.error("not loaded: %s", error.message, extra={"run_id": stay.run_id, "code": error.code})
            self._leave(stay, _unloadable(error))
            return False
        return True

    async def _load_unseated(self, stay: Stay) -> None:
        queued = self.seats.is_queued(stay.run_id)
        self.seats.withdraw(stay.run_id)
        try:
            await self._load(stay)
        except errors.StorageFault:
            self._leave(stay, states.RunState.PENDING, keeps_workspace=True)
            if queued:
                self._reload_later(stay.run_id)
            raise
        except errors.ControlRoomError as error:
            self._leave(stay, _unloadable(error))
            raise

    async def _load(self, stay: Stay) -> None:
        try:
            stay.log = await self._store.open(stay.run_id)
            self._equip(stay)
        except (errors.ControlRoomError, errors.StorageFault) as failure:
            stay.failure = failure
            raise
        except Exception as error:
            _log.exception("loading broke", extra={"run_id": stay.run_id})
            stay.failure = errors.ControlRoomError(f"{type(error).__name__}: {error}", code="internal_error")
            raise stay.failure from error
        finally:
            stay.opened.set()

    def _equip(self, stay: Stay) -> None:
        assert stay.log is not None
        run_id = stay.run_id
        dialect = self._dialects.get(stay.log.loaded.start.dialect, UNSPOKEN)
        seat = Seat(self.seats, stay.ticket, lambda: next(self._arrivals))
        stay.sent_on = False
        stay.runner = runner.Runner(stay.log, dialect, self._equipment, seat, lambda: self.changes.note(run_id))
        if self.stopping:
            stay.runner.stop()

    async def _runs_on(self, stay: Stay) -> bool:
        assert stay.log is not None
        assert stay.runner is not None
        state = await self._run(stay.runner, stay.run_id)
        self.seats.free(stay.run_id)
        async with self.turns.of(stay.run_id):
            decisions, on = stay.log.loaded.decisions, self._is_sent_on(stay, state)
            if state is states.RunState.PAUSED and decisions.paused is None and not on:
                self.parked[stay.run_id] = stay.runner.view()
            await self._unload(stay)
            if not on:
                self._leave(stay, state, keeps_workspace=decisions.taken_since_resume and not state.finished)
        return on

    async def _run(self, running: runner.Runner, run_id: str) -> states.RunState:
        try:
            return await running.run()
        except errors.StorageFault as fault:
            _log.error("not brought to rest: %s", fault.message, extra={"run_id": run_id, "code": fault.code})
            self._reload_later(run_id)
        except (Exception, errors.Fault):  # noqa: BLE001 - one run must not take the others down
            _log.exception("the runner broke", extra={"run_id": run_id})
        return states.RunState.PAUSED

    def _is_sent_on(self, stay: Stay, state: states.RunState) -> bool:
        assert stay.log is not None
        if state.finished or not stay.sent_on:
            return False
        return not self.stopping or stay.log.loaded.decisions.cancel_requested_at is not None

    async def _unload(self, stay: Stay) -> None:
        assert stay.log is not None
        try:
            await stay.log.close()
        except errors.StorageFault as fault:
            _log.error("not closed well: %s", fault.message, extra={"run_id": stay.run_id, "code": fault.code})
        stay.opened.clear()
        stay.log = stay.runner = None

    def _leave(self, stay: Stay, state: states.RunState, *, keeps_workspace: bool = False) -> None:
        del self.stays[stay.run_id]
        self.seats.withdraw(stay.run_id)
        self.seats.free(stay.run_id)
        if not keeps_workspace:
            self.seats.release(stay.run_id)
        if state.finished:
            self._parents.pop(stay.run_id, None)
        stay.left.set_result(state)
        self.changes.note(stay.run_id)
        self._tell_left(stay.run_id, state)

    def _reload_later(self, run_id: str) -> None:
        reload = asyncio.create_task(self._reload(run_id), name=f"reload {run_id}")
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)

    async def _reload(self, run_id: str) -> None:
        while True:
            await self._equipment.clock.sleep(RELOAD_SECONDS)
            try:
                self.queue(await self._store.summary(run_id))
            except errors.NotFound:
                return
            except errors.StorageFault as fault:
                _log.warning("not queued now: %s", fault.message, extra={"run_id": run_id, "code": fault.code})
            else:
                return

    # -- small change

    def _ticket(self, summary: stores.RunSummary) -> Ticket:
        return Ticket(
            run_id=summary.run_id,
            priority=summary.priority,
            arrival=next(self._arrivals),
            workspace=_workspace(summary),
            ancestors=self._ancestors(summary.run_id),
            granted=lambda: None,
        )

    def _ancestors(self, run_id: str) -> frozenset[str]:
        above: set[str] = set()
        while (parent := self._parents.get(run_id)) is not None and parent not in above:
            above.add(parent)
            run_id = parent
        return frozenset(above)

    def _runners(self) -> list[runner.Runner]:
        return [stay.runner for stay in self.stays.values() if stay.runner is not None]

    async def _all_left(self) -> None:
        while tasks := [stay.task for stay in self.stays.values() if stay.task is not None and not stay.task.done()]:
            await asyncio.wait(tasks)

    def _reach(self, point: str) -> None:
        self._equipment.probes.reach(point)


def _unknown() -> asyncio.Future[states.RunState]:
    return asyncio.get_running_loop().create_future()


def _workspace(summary: stores.RunSummary) -> str | None:
    return os.path.normpath(summary.working_dir) if summary.exclusive_workspace else None


def _unloadable(error: errors.ControlRoomError) -> states.RunState:
    corrupt = isinstance(error, errors.JournalCorrupt)
    return states.RunState.FAILED if corrupt else states.RunState.PENDING
