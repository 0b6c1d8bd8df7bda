"""The worker pool: the engine that executes runs in this process."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from app import errors
from app.domain import authors, gates, operations, records, runs, states, views
from app.domain.inputs import Delivery
from app.domain.limits import RunLimits
from app.engine import aio, open_steps, ports, run_engine, run_equipment, stores, superseding
from app.worker import inputs, orphans, recovery, resting, stall_watch
from app.worker.active_run import RunHooks
from app.worker.active_runs import ActiveRuns
from app.worker.deliveries import Deliveries
from app.worker.eviction import KEPT_LOADED
from app.worker.run_commands import LEAVING_SECONDS, RunCommands
from app.worker.time_limits import TimeLimits
from app.worker.waiting_performers import ChildRuns, StartChild, Timers
from app.worker.workspace_holds import LockWorkspace

DEFAULT_LIMIT = 8  # Most runs that execute at a time.
DEFAULT_GRACE_SECONDS = 10.0  # Grace period of open steps at a stop.

_log = logging.getLogger(__name__)


class Pool:
    """Executes runs on one event loop: `run_engine.RunEngine` over any run store."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        start_child: StartChild,
        limit: int = DEFAULT_LIMIT,
        stop_grace_seconds: float = DEFAULT_GRACE_SECONDS,
        kept_loaded: int = KEPT_LOADED,
    ) -> None:
        self._store = store
        self._grace_seconds = stop_grace_seconds
        self._inputs = inputs.InputRegister(equipment.clock, equipment.sources)
        self._children = ChildRuns(
            start_child, self.ended, lambda runs: self._commands.cancel_all(runs), store, drivers, equipment.clock
        )
        equipment = self._equipped(equipment)
        self._clock = equipment.clock
        self.spending = equipment.spending
        """Keeps calls of agents within limits and budgets."""
        hooks = RunHooks(
            left=self._run_left,
            died=self._died,
            noted=lambda run: self._time_limits.note(run),
            rest=lambda loaded, evicted: self._resting.rest(loaded, evicted),
        )
        self._active = ActiveRuns(store, drivers, equipment, limit, kept_loaded, hooks)
        self._resting = resting.Resting(self._inputs, store, drivers, equipment, self._active)
        self._commands = RunCommands(store, drivers, equipment, self._active)
        self._deliveries = Deliveries(self._inputs, store, self._active)
        self._helpers = aio.BackgroundTasks(self._died)
        self._time_limits = TimeLimits(self._active, self._clock, self._helpers)
        self._stalled_after_seconds = equipment.stalled_after_seconds
        self._stall_watch: stall_watch.StallWatch | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._stop: asyncio.Task[None] | None = None
        self._death: BaseException | None = None
        self._found = 0
        self._over = asyncio.Event()

    # -- start and stop

    def start(self, *, recover: bool = True, lock: LockWorkspace | None = None) -> None:
        """Begin to grant capacity and to queue unfinished runs; return at once. A second call changes nothing.

        Args:
            recover: Whether this process is the service of its data directory, which continues unfinished runs.
            lock: Locks workspaces that runs hold alone against other processes; None: the caller locks them.
        """
        if self._recovery is None:
            if lock is not None:
                self._active.guard(lock)
            self._recovery = self._helpers.begin(self._recover(recover), "recovery")
            self._stall_watch = stall_watch.begun(
                self._active, self._clock, self._stalled_after_seconds, self._helpers.begin
            )

    async def recovered(self) -> int:
        assert self._recovery is not None
        await asyncio.wait({self._recovery})
        return self._found

    async def wait_idle(self) -> None:
        """Wait until the recovered runs that only wait are waiting again."""
        await self.recovered()
        if self._asking is not None:
            await asyncio.wait({self._asking})

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stop the pool and wait until it has stopped; all runs can continue later.

        It begins no step, gives open steps a grace period, and then interrupts them.

        Args:
            grace_seconds: The grace period; None: the pool's own. A second call may shorten it.
        """
        self._begin_to_stop(grace_seconds)
        assert self._stop is not None
        await asyncio.shield(self._stop)

    async def watch(self) -> None:
        await self._over.wait()
        if self._death is not None:
            raise errors.ControlRoomError("the worker pool broke", code="pool_broken") from self._death

    # -- runs

    @property
    def elsewhere(self) -> bool:
        """Return False: this process executes the runs."""
        return False

    @property
    def remote(self) -> None:
        """Return None: no other process performs steps."""

    def expect(self, run_id: str) -> None:
        """Note that a run is about to be created, if recovery has not finished."""
        if self._active.expected is not None:
            self._active.expected.add(run_id)

    async def submit(self, run_id: str, fresh: stores.RunSummary | None = None) -> states.RunState:
        is_active = run_id in self._active.active_runs
        row = None if is_active or self._active.stopping else fresh or await self._store.summary(run_id)
        # A lock that is acquired while the pool stops would never be released.
        if self._active.stopping:
            return states.RunState.PENDING
        if row is not None:
            self._active.queue(row)
            self._supersede(row)
        return self._active.state(run_id)

    async def wake(self, run_id: str) -> None:
        await self._deliveries.wake(run_id)

    def obstacle(self, run_id: str) -> errors.StorageFault | None:
        return self._active.obstacle(run_id)

    async def cancel(self, run_id: str, author: authors.Author | None = None) -> states.RunState:
        return await self._commands.cancel(run_id, author)

    async def pause(
        self, run_id: str, author: authors.Author | None = None, *, interrupt: bool = False
    ) -> states.RunState:
        return await self._commands.pause(run_id, author, interrupt=interrupt)

    async def unpause(self, run_id: str, author: authors.Author | None = None) -> states.RunState:
        return await self._commands.unpause(run_id, author)

    async def limit(self, run_id: str, limits: RunLimits, author: authors.Author | None = None) -> None:
        await self._commands.limit(run_id, limits, author)

    async def resume(self, run_id: str, how: run_engine.Resume) -> states.RunState:
        return await self._commands.resume(run_id, how)

    async def mark(self, run_id: str, marks: run_engine.Marks, author: authors.Author | None = None) -> runs.RunStart:
        return await self._commands.mark(run_id, marks, author)

    async def reload(self, run_id: str) -> None:
        await self._commands.reload(run_id)

    # -- inputs

    async def deliver(
        self, run_id: str, key: str, delivery: gates.Answer | Delivery, attempt: int | None = None
    ) -> records.Record:
        if self._recovery is not None and not self._inputs.is_open(run_id, key):
            # Until recovery has finished, the pool does not know its runs.
            await self.recovered()
        return await self._deliveries.deliver(run_id, key, delivery, attempt)

    def open_gates(self, run_id: str | None = None) -> list[gates.OpenGate]:
        resting_gates, delivered = resting.open_gates(self._active.active_runs, run_id), self._inputs.is_open
        return self._inputs.open_gates(run_id) + [
            gate for gate in resting_gates if not delivered(gate.run_id, gate.key)
        ]

    # -- its visible state

    def view(self, run_id: str) -> views.RunView | None:
        return None if self._store.lags(run_id) else self._active.view(run_id)

    def executing(self) -> list[views.RunView]:
        loaded_views = (self._active.view(run_id) for run_id in tuple(self._active.capacity.holding))
        return [view for view in loaded_views if view is not None]

    def standing(self, run_id: str) -> run_engine.Standing | None:
        active_run = self._active.active_runs.get(run_id)
        # After a power cut, a run whose ending only its journal has is opened once more, although it has ended.
        if active_run is None or active_run.runner is not None or self._store.lags(run_id):
            return None
        # A run that was found waiting counts as waiting, although it has not been put back to rest yet.
        if run_id in self._active.unread:
            return None
        if (evicted := active_run.evicted) is not None:
            return run_engine.Standing(status=evicted.status, open=evicted.open(), updated_at=evicted.updated_at)
        obstacle = self._active.capacity.obstacle(run_id)
        if obstacle is None:
            return run_engine.Standing(status=self._active.state(run_id))
        return run_engine.Standing(status=states.RunState.PENDING, reason=obstacle.reason, holder=obstacle.holder)

    def waits(self, run_id: str) -> Sequence[open_steps.StepWait] | None:
        active_run = self._active.active_runs.get(run_id)
        holder = None if active_run is None else active_run.runner or active_run.evicted
        return None if holder is None else holder.waits()

    def queue_place(self, run_id: str) -> run_engine.QueuePlace | None:
        return self._active.capacity.place(run_id)

    async def changed(self, run_id: str, since: int) -> int:
        """Wait until a run's change number differs from `since`; a stop of the pool changes every number."""
        return await self._active.changes.differs(run_id, since)

    @asynccontextmanager
    async def turn(self, run_id: str) -> AsyncIterator[None]:
        for is_last in (False, True):
            async with self._active.locks.of(run_id):
                active_run = self._active.active_runs.get(run_id)
                # A run that has ended needs its turn to leave.
                if is_last or active_run is None or not self._active.state(run_id).finished:
                    yield
                    return
            await aio.wait_first(asyncio.shield(active_run.left), self._clock.sleep(LEAVING_SECONDS))

    def change_number(self, run_id: str) -> int:
        return self._active.changes.number(run_id)

    async def ended(self, run_id: str) -> states.RunState:
        """Wait until a run has ended.

        Raises:
            errors.InterruptionFault: the pool stopped before the run ended.
        """
        while True:
            # Read before the check, so that no change is missed.
            number = self.change_number(run_id)
            active_run = self._active.active_runs.get(run_id)
            state = await self._stored_state(run_id) if active_run is None else await asyncio.shield(active_run.left)
            if state.finished:
                return state
            if self._active.stopping:
                raise errors.InterruptionFault
            # Another process may execute it; its end appears as a change of the row.
            if active_run is None:
                await self.changed(run_id, number)

    async def left(self, run_id: str) -> views.RunView | None:
        active_run = self._active.active_runs.get(run_id)
        if active_run is None:
            return None
        await asyncio.shield(active_run.left)
        return active_run.last

    def status(self) -> run_engine.EngineStatus:
        capacity, visible = self._active.capacity, len(self._active.active_runs) - len(self._active.internal)
        return run_engine.EngineStatus(
            running=capacity.in_use,
            queued=(queued := capacity.queued + len(self._active.unread)),
            idle=max(0, visible - capacity.in_use - queued) + len(self._active.parked),
            limit=capacity.limit,
            stopping=self._active.stopping,
            stalled=self._stall_watch.count if self._stall_watch is not None else 0,
        )

    # -- helpers

    def _equipped(self, equipment: run_equipment.Equipment) -> run_equipment.Equipment:
        performers: dict[str, ports.Performer] = {
            operations.Timer.kind: Timers(equipment.clock),
            operations.Gate.kind: self._inputs,
            operations.Input.kind: self._inputs,
            operations.ChildRun.kind: self._children,
        }
        return dataclasses.replace(equipment, performers={**equipment.performers, **performers})

    async def _recover(self, whole: bool) -> None:
        if whole:
            unfinished = await recovery.recover(self._store, self._active, self._clock)
            self._found = len(unfinished)
            for summary in unfinished:
                self._supersede(summary, again=True)
            cancelling = orphans.cancel_all(self._store, unfinished, self._clock, self._commands.cancel_all)
            self._helpers.begin(cancelling, "children of cancelled runs")
            # In the background: thousands of waiting gates must not delay the first run.
            asking = [summary for summary in unfinished if summary.status == states.RunState.WAITING]
            self._asking = self._helpers.begin(self._let_ask(asking), "questions")
            ended = [summary for summary in unfinished if self._store.lags(summary.run_id)]
            self._helpers.begin(self._complete(ended), "runs that had ended")
        else:
            self._active.know_found()

    async def _complete(self, ended: Sequence[stores.RunSummary]) -> None:
        # Only their files lag behind: none of them needs capacity, which may be in use for hours.
        for summary in ended:
            if summary.unreadable is None and not self._active.stopping:
                await self._commands.reload(summary.run_id)

    async def _let_ask(self, asking: Sequence[stores.RunSummary]) -> None:
        await self._resting.put_back(asking)
        await self._deliveries.let_ask(summary.run_id for summary in asking)

    def _supersede(self, summary: stores.RunSummary, *, again: bool = False) -> None:
        """Cancel the earlier runs of a key as a new run's policy requires; after a crash before that, recovery does.

        Args:
            again: Whether an earlier process may already have cancelled them.
        """
        key, policy = summary.concurrency_key, summary.concurrency_policy or ""
        if key is None or not policy.startswith("cancel_"):
            return
        above = self._active.lineage.ancestors(summary.run_id)
        running = policy == "cancel_running"
        if earlier := self._active.capacity.superseded(
            key, (summary.created_at, summary.run_id), above, running=running
        ):
            self._helpers.begin(self._cancel_earlier(summary.run_id, earlier, again), f"supersede by {summary.run_id}")

    async def _cancel_earlier(self, run_id: str, earlier: set[str], again: bool) -> None:
        try:
            start = (await self._store.read(run_id)).start
            superseded = await superseding.cancelled_by(self._store, start, earlier, again=again)
        except (errors.ControlRoomError, errors.StorageFault) as error:
            _log.warning("not superseded: %s", error.message, extra={"run_id": run_id, "code": error.code})
            return
        await self._commands.supersede(superseded, start)

    def _run_left(self, run_id: str, state: states.RunState) -> None:
        self._inputs.forget(run_id)
        if not state.finished or self._active.stopping:
            return
        if unseen := self._children.pop_unfinished(run_id):
            self._helpers.begin(self._commands.cancel_all(unseen), f"cancel what {run_id} waited for")
        if state is states.RunState.CANCELLED:
            self._helpers.begin(self._commands.cancel_children(run_id), f"cancel the children of {run_id}")

    def _died(self, error: BaseException) -> None:
        _log.critical("the pool stops: a helper died", exc_info=error)
        self._death = self._death or error
        self._begin_to_stop(None)

    def _begin_to_stop(self, grace_seconds: float | None) -> None:
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        if self._stop is None:
            self._stop = asyncio.create_task(self._stop_within(grace), name="pool stop")
        else:
            self._active.shorten_grace(grace)

    async def _stop_within(self, grace_seconds: float) -> None:
        self._active.stopping = True
        self._helpers.give_up()
        try:
            await self._commands.wait_idle()
            await self._deliveries.wait_idle()
            await self._active.close(grace_seconds)
        finally:
            self._over.set()

    async def _stored_state(self, run_id: str) -> states.RunState:
        state = states.RunState((await self._store.summary(run_id)).status)
        if state.finished:
            return state
        # The row may lag behind the ending.
        end_line = (await self._store.read(run_id)).decisions.ended
        return end_line.status if end_line is not None else state
