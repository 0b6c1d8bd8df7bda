"""The engine on Temporal: `run_engine.RunEngine` over journals and a Temporal server."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from app import errors
from app.domain import gates, inputs, operations, plain, records, runs, states, views
from app.domain.authors import Author
from app.domain.limits import RunLimits
from app.engine import aio, open_steps, ports, run_engine, run_equipment, stores
from app.temporal import (
    codec,
    live_reports,
    messages,
    registration,
    server_watch,
    steps,
    worker,
    worker_roster,
)
from app.temporal.activities import Activities
from app.temporal.capacity import StepCapacity
from app.temporal.claims import Claims
from app.temporal.follower import POLL_SECONDS, Follower
from app.temporal.obstacles import Obstacles
from app.temporal.remote_execution import RemoteExecution
from app.temporal.replayed_runs import Superseded
from app.temporal.run_commands import RunCommands
from app.temporal.run_placement import RunPlacement
from app.temporal.runs import WorkflowRuns
from app.temporal.slices import Contents
from app.temporal.time_limits import TimeLimits
from app.temporal.workflow_recovery import WorkflowRecovery

KEPT_LINES = 200_000  # Most journal lines that a process keeps in memory.

SERVER_WAIT_SECONDS = 2.0  # Longest time that an order waits for the server; its workflow is then notified later.

_AGAIN_SECONDS = 1.0
_RPC_TIMEOUT = timedelta(seconds=5)

_log = logging.getLogger(__name__)


class TemporalEngine:
    """Executes runs on Temporal.

    With `works`, the process is a worker and also performs their steps; otherwise it starts and follows workflows.
    """

    def __init__(
        self,
        *,
        client: Client,
        store: stores.RunStore,
        drivers: Mapping[str, ports.Driver],
        equipment: run_equipment.Equipment,
        start_child: steps.StartChild,
        bounds: worker.WorkerLimits,
        works: bool,
    ) -> None:
        self._store, self._bounds, self._works = store, bounds, works
        self.spending = equipment.spending  # Keeps calls that this process makes within limits and budgets.
        self._clock = equipment.clock
        self.contents = Contents(store)  # Contents of the messages to workflows.
        self._client = _with_converter(client, codec.converter(self.contents, self._differs))
        equipment = _with_children(equipment, start_child)
        self._steps = steps.Steps(store=store, drivers=drivers, equipment=equipment, contents=self.contents)
        self._placement = RunPlacement(store, self._steps.leases, bounds.placement)
        self.live, self._server = live_reports.LiveReports(self._clock), server_watch.ServerWatch(client, self._clock)
        self._commands = RunCommands(store, self._steps, equipment.clock, self.signal_run)
        claims = Claims(store, self._client, bounds.queue, self._placement)
        self.obstacles = Obstacles(store, claims, self._commands, self._notify)
        """Keeps runs from beginning while other runs are in their way."""
        roster = worker_roster.WorkerRoster(self._client, bounds.queue, equipment.clock, bounds.services)
        self.remote = RemoteExecution(
            client=self._client, store=store, roster=roster, live=self.live, obstacles=self.obstacles
        )  # Shows what workers do.
        self._registration = registration.Registration(self._client, equipment.clock)
        self._runs = WorkflowRuns(
            steps=self._steps,
            placement=self._placement,
            obstacles=self.obstacles,
            contents=self.contents,
            registration=self._registration,
            times=TimeLimits(store, self._steps, self.signal_run),
            rested=self._run_rested,
        )
        self.rest_listeners: list[Callable[[runs.RunStart], object]] = []
        """Called when a run has come to rest in this process, or waits for an input."""
        self.workflow_recovery = WorkflowRecovery(self._client, bounds.queue, equipment.clock, store, self._notify)
        """Gives runs whose workflow is lost a new one."""
        self.follower = Follower(store, equipment.clock)  # Reports changes of runs.
        self._helpers = aio.BackgroundTasks(self._died)
        self._recovery: asyncio.Task[int] | None = None
        self._working = AsyncExitStack()
        self._death: BaseException | None = None
        self._anew: set[str] = set()
        self._stopping = False
        self._over = asyncio.Event()

    # -- start and stop

    def start(self, *, recover: bool = True, lock: Any = None) -> None:
        """Begin to work, to follow runs, and to start workflows for unfinished runs without one.

        Args:
            recover: Whether this process is a service, which continues unfinished runs.
            lock: Not used: workflows claim the workspaces that runs hold alone.
        """
        if self._recovery is None:
            self._recovery = self._helpers.begin(self._begin(recover), "recovery")
            self._helpers.begin(self.follower.poll(), "follow")
            if recover:
                self.follower.listen()
                self._helpers.begin(self._server.keep(), "watch the server")

    async def recovered(self) -> int:
        """Wait until every unfinished run has a workflow, and return the number of these runs."""
        assert self._recovery is not None
        await asyncio.wait({self._recovery})
        return 0 if self._recovery.cancelled() or self._recovery.exception() else self._recovery.result()

    async def wait_idle(self) -> None:
        """Return at once: workflows wait on the server."""

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stop working; another worker performs interrupted steps again."""
        self._stopping = True
        self._helpers.give_up()
        await self._helpers.wait_idle()
        await self.follower.stop()
        await self._working.aclose()
        self._over.set()

    async def watch(self) -> None:
        await self._over.wait()
        if self._death is not None:
            raise errors.ControlRoomError("the engine broke", code="pool_broken") from self._death

    # -- runs

    @property
    def searchable(self) -> bool:
        """Return whether the server finds runs by search attributes, as far as this process knows."""
        return self._registration.is_known

    @property
    def elsewhere(self) -> bool:
        """Return True: workers execute the runs."""
        return True

    def expect(self, run_id: str) -> None:
        """Do nothing: starting a workflow twice gives one workflow."""

    async def submit(self, run_id: str, fresh: stores.RunSummary | None = None) -> states.RunState:
        """Start the workflow of an accepted run; while the server is away, it is started later."""
        # The process that has created a run holds the run until it is opened.
        async with self._steps.leases.of(run_id):
            pass
        await self.signal_run(run_id, messages.NEW_LINES_SIGNAL, [])
        return states.RunState.PENDING

    async def wake(self, run_id: str) -> None:
        """Make sure that an unfinished run has a workflow, and let the workflow read new lines."""
        await self.submit(run_id)

    async def signal_run(self, run_id: str, signal: str, arguments: list[Any]) -> None:
        """Send a signal to the workflow of a run, which is started if there is none; later, while the server is away.

        The journal contains what the signal is about, so no caller needs to wait for it.
        """
        try:
            async with asyncio.timeout(SERVER_WAIT_SECONDS):
                await self._signal(run_id, signal, arguments)
        except (RPCError, TimeoutError) as error:
            _log.warning("the Temporal server cannot be reached: %s", error, extra={"run_id": run_id})
            self._helpers.begin(self._signal_later(run_id, signal, arguments), f"{signal} {run_id}")
        if signal == messages.CANCEL_SIGNAL:
            self._helpers.begin(self.workflow_recovery.enforce_cancel(run_id), f"enforce cancel of {run_id}")
        self.follower.note(run_id)

    async def mark(self, run_id: str, marks: run_engine.Marks, author: Author | None = None) -> runs.RunStart:
        start = await self._commands.mark(run_id, marks, author)
        await self._nudge(run_id)
        self.follower.note(run_id)
        return start

    async def limit(self, run_id: str, limits: RunLimits, author: Author | None = None) -> None:
        """Apply new limits to an unfinished run."""
        await self._commands.limit(run_id, limits, author)
        self.follower.note(run_id)

    def obstacle(self, run_id: str) -> errors.StorageFault | None:
        """Return None: what a run waits for is in the log of its worker."""
        return None

    def view(self, run_id: str) -> views.RunView | None:
        """Return None: no run is loaded here."""
        return None

    async def cancel(self, run_id: str, author: Author | None = None) -> states.RunState:
        """Request the end of a run."""
        return await self._commands.cancel(run_id, author)

    async def pause(self, run_id: str, author: Author | None = None, *, interrupt: bool = False) -> states.RunState:
        """Stop a run at its next step boundary, or at once."""
        return await self._commands.pause(run_id, author, interrupt=interrupt)

    async def unpause(self, run_id: str, author: Author | None = None) -> states.RunState:
        """Continue a paused or parked run."""
        return await self._commands.unpause(run_id, author)

    async def resume(self, run_id: str, how: run_engine.Resume) -> states.RunState:
        """Continue a failed or cancelled run."""
        return await self._commands.resume(run_id, how)

    async def reload(self, run_id: str) -> None:
        """Let a run read its journal again, because its folder was changed."""
        await self.signal_run(run_id, messages.NEW_LINES_SIGNAL, [])

    async def deliver(
        self, run_id: str, key: str, delivery: gates.Answer | inputs.Delivery, attempt: int | None = None
    ) -> records.Record:
        """Record an answer or another delivery; its line is durable before the workflow is notified."""
        order = await self._steps.key_order(run_id, key, delivery.of.kind)
        try:
            record = await self._steps.deliver(order, delivery, attempt)
        except Superseded as superseded:
            raise inputs.lapsed(delivery.of.kind, key) from superseded
        await self._notify(run_id)
        return record

    async def open_input(self, run_id: str) -> tuple[str, plain.Json] | None:
        return await self._steps.open_input(run_id)

    def open_gates(self, run_id: str | None = None) -> list[gates.OpenGate]:
        """Return an empty list: gates are read from the journals."""
        return []

    # -- its visible state

    def executing(self) -> list[views.RunView]:
        """Return an empty list: runs that workers execute are read from the journals."""
        return []

    def standing(self, run_id: str) -> run_engine.Standing | None:
        """Return None: the state of a run is read from its journal."""
        return None

    def waits(self, run_id: str) -> Sequence[open_steps.StepWait] | None:
        """Return None: what the steps of a run wait for is read from its journal."""
        return None

    def queue_place(self, run_id: str) -> run_engine.QueuePlace | None:
        """Return None: the server has the queue."""
        return None

    async def changed(self, run_id: str, since: int) -> int:
        return await self.follower.differs(run_id, since)

    def turn(self, run_id: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()  # Leases hold back the orders of all processes.

    def change_number(self, run_id: str) -> int:
        return self.follower.number(run_id)

    async def ended(self, run_id: str) -> states.RunState:
        """Wait until a run has ended.

        Raises:
            errors.InterruptionFault: the engine stopped before the run ended.
        """
        while True:
            state = states.RunState((await self._store.summary(run_id)).status)
            if state.finished:
                return state
            if self._stopping:
                raise errors.InterruptionFault
            await self._clock.sleep(POLL_SECONDS)

    async def left(self, run_id: str) -> views.RunView | None:
        """Wait until a run has ended or is paused."""
        resting = {states.RunState.PAUSED, *(state for state in states.RunState if state.finished)}
        while not self._stopping and states.RunState((await self._store.summary(run_id)).status) not in resting:
            await self._clock.sleep(POLL_SECONDS)
        return None

    def status(self) -> run_engine.EngineStatus:
        """Return the capacity of this process; the server has the numbers of the others."""
        limit = self._bounds.steps if self._works else 0
        away = self._server.away_since
        return run_engine.EngineStatus(
            running=0, queued=0, idle=0, limit=limit, stopping=self._stopping, server_away_since=away
        )

    # -- helpers

    async def _signal(self, run_id: str, signal: str, arguments: list[Any]) -> None:
        await self._client.start_workflow(
            messages.WORKFLOW,
            run_id,
            id=messages.workflow_id(run_id),
            task_queue=self._bounds.queue,
            task_timeout=worker.TASK_TIMEOUT,
            start_signal=signal,
            start_signal_args=arguments,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            rpc_timeout=_RPC_TIMEOUT,
        )

    async def _begin(self, recover: bool) -> int:
        if self._works:
            _log.info("serves %s", ", ".join(sorted(self._bounds.serves)))
            capacity = StepCapacity(self._bounds.steps)
            activities = Activities(self._steps, self._runs, self._placement, capacity, self.live)
            self._helpers.begin(self.live.keep(), "report steps")
            await self._working.enter_async_context(worker.working(self._client, activities, capacity, self._bounds))
        self._helpers.begin(self._registration.keep(), "search attributes")
        if not recover:
            return 0
        # Runs are not opened here: a damaged or busy one would keep the others from beginning.
        count = await self.workflow_recovery.recover()
        self._helpers.begin(self.workflow_recovery.keep(), "keep workflows")
        return count

    async def _notify(self, run_id: str) -> None:
        await self.signal_run(run_id, messages.NEW_LINES_SIGNAL, [])

    def _differs(self, run_id: str) -> None:
        if run_id not in self._anew:
            self._anew.add(run_id)
            self._helpers.begin(self.begin_anew(run_id), f"begin {run_id} anew")

    async def begin_anew(self, run_id: str) -> None:
        """Give a run a new workflow in place of one whose history its journal does not fit any more."""
        _log.warning("the workflow begins anew, since the journal differs from its history", extra={"run_id": run_id})
        try:
            await self._client.get_workflow_handle(messages.workflow_id(run_id)).terminate(reason="the journal differs")
        except RPCError as error:
            _log.info("no workflow to end: %s", error.message, extra={"run_id": run_id})
        self._anew.discard(run_id)
        await self._notify(run_id)

    async def _signal_later(self, run_id: str, signal: str, arguments: list[Any]) -> None:
        while True:
            await self._clock.sleep(_AGAIN_SECONDS)
            with suppress(RPCError):
                return await self._signal(run_id, signal, arguments)

    async def _run_rested(self, start: runs.RunStart, state: states.RunState) -> None:
        for listener in self.rest_listeners:
            listener(start)
        await self.obstacles.rested(start, state)
        if state.finished:
            await self._commands.cancel_children(start.run_id, is_cancelled=state is states.RunState.CANCELLED)
        if state.finished and start.parent_run_id is not None:
            await self._nudge(start.parent_run_id)

    async def _nudge(self, run_id: str) -> None:
        handle: WorkflowHandle[Any, Any] = self._client.get_workflow_handle(messages.workflow_id(run_id))
        try:
            async with asyncio.timeout(SERVER_WAIT_SECONDS):
                await handle.signal(messages.NEW_LINES_SIGNAL, rpc_timeout=_RPC_TIMEOUT)
        except (RPCError, TimeoutError) as error:
            # A run without a workflow reads its journal by itself once it gets one.
            _log.info("no workflow to signal: %s", error, extra={"run_id": run_id})

    def _died(self, error: BaseException) -> None:
        _log.critical("the engine stops: a helper died", exc_info=error)
        self._death = self._death or error
        self._stopping = True
        self._over.set()


def _with_converter(client: Client, data_converter: DataConverter) -> Client:
    config: Any = {**client.config(), "data_converter": data_converter}
    return Client(**config)


def _with_children(equipment: run_equipment.Equipment, start_child: steps.StartChild) -> run_equipment.Equipment:
    children = {operations.ChildRun.kind: steps.ChildStarts(start_child)}
    return dataclasses.replace(equipment, performers={**equipment.performers, **children})
