"""Workflow recovery: starts a new workflow for each unfinished run that has lost its own; journals hold all state.

It also replaces the workflow of a cancelled run whose task a frozen worker has.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from app import clock, errors
from app.domain import states
from app.engine import outages, stores
from app.temporal import messages

KEEP_SECONDS = 10.0
"""Time between two checks whether the server has lost its database, and shortest time between two rounds."""

ACT_SECONDS = 5.0  # Longest time of a workflow task after a cancel; then the workflow is replaced.

PAGE = 1000  # Most workflows in one answer of the server.

_SHARE = 20
"""Ratio of the pause after a round to the round, so that rounds take at most a twentieth of the time."""

_log = logging.getLogger(__name__)


class WorkflowRecovery:
    """Compares unfinished runs with the workflows of the server.

    A round requests the workflows by pages. A server that has lost its database has another id for the namespace: then
    the next round begins at once, however long the last one took.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        time: clock.Clock,
        store: stores.RunStore,
        begin: Callable[[str], Awaitable[None]],
    ) -> None:
        """Args:
        queue: Task queue of the workflows.
        begin: Gives a run a workflow, whatever the state of its journal.
        """
        self._client = client
        self._queue = queue
        self._clock = time
        self._store = store
        self._begin = begin

    async def recover(self) -> int:
        """Start the workflows of all unfinished runs, once these can be listed, and return their number."""
        while True:
            try:
                # Including paused ones: an order may have been written before a kill without its signal.
                unfinished = await self._unfinished(paused=True)
                break
            except (errors.StorageFault, errors.ControlRoomError) as error:
                _log.error("unfinished runs not listed, they wait: %s", error)
            await self._clock.sleep(KEEP_SECONDS)
        for run_id in unfinished:
            await self._begin(run_id)
        return len(unfinished)

    async def keep(self) -> None:
        """Make rounds, forever."""
        known, next_round = "", self._clock.monotonic()
        outage = outages.Outage(_log, "not looked for lost workflows: %s", "lost workflows are looked for again")
        while True:
            await self._clock.sleep(KEEP_SECONDS)
            try:
                namespace = await self._namespace()
                begun = self._clock.monotonic()
                if namespace == known and begun < next_round:
                    outage.worked()
                    continue
                await self.round()
                known, next_round = namespace, begun + _SHARE * (self._clock.monotonic() - begun)
                outage.worked()
            except (errors.StorageFault, errors.ControlRoomError, RPCError) as error:
                outage.failed(error)

    async def round(self) -> list[str]:
        """Start the workflows that are lost, and return their runs."""
        # Runs are listed first, so that a run that starts meanwhile does not count as lost.
        unfinished = await self._unfinished()
        running = await self._running()
        # The server's list lags behind its workflows, so each workflow missing from it is requested.
        candidates = [run_id for run_id in unfinished if messages.workflow_id(run_id) not in running]
        lost = [run_id for run_id in candidates if not await self._has_workflow(run_id)]
        for run_id in lost:
            _log.warning("the workflow is lost and begins again", extra={"run_id": run_id})
            await self._begin(run_id)
        return lost

    async def enforce_cancel(self, run_id: str) -> None:
        """Replace the workflow of a cancelled run while a worker keeps its task, until the run has ended.

        The server sends the task to the worker that had the last one. If that worker is frozen, only the task's
        time-out, which has to suffice for long journals, would give it to another worker.
        """
        before: object = None
        while True:
            await self._clock.sleep(ACT_SECONDS)
            try:
                description = await self._client.get_workflow_handle(messages.workflow_id(run_id)).describe()
                if description.status is not WorkflowExecutionStatus.RUNNING:
                    return
                # Resumed meanwhile, the run is not cancelled any more.
                if (await self._store.read(run_id)).decisions.cancel_requested_at is None:
                    return
                task = description.raw_description.pending_workflow_task
                now = (description.run_id, task.attempt, task.started_time.ToNanoseconds())
                if now == before and task.HasField("started_time"):
                    _log.warning("the workflow is replaced, since its worker does not act", extra={"run_id": run_id})
                    stuck = self._client.get_workflow_handle(messages.workflow_id(run_id), run_id=description.run_id)
                    await stuck.terminate(reason="its worker does not act on a cancel")
                    await self._begin(run_id)
                before = now
            except (errors.NotFound, errors.JournalCorrupt):
                return
            except (errors.StorageFault, errors.ControlRoomError, RPCError) as error:
                _log.info("not known whether the run ends: %s", error, extra={"run_id": run_id})

    async def _unfinished(self, *, paused: bool = False) -> list[str]:
        rows = await self._store.list_unfinished()
        return [row.run_id for row in rows if paused or row.status != states.RunState.PAUSED]

    async def _running(self) -> set[str]:
        query = f"WorkflowType = '{messages.WORKFLOW}' AND TaskQueue = '{self._queue}' AND ExecutionStatus = 'Running'"
        return {found.id async for found in self._client.list_workflows(query, page_size=PAGE)}

    async def _namespace(self) -> str:
        description = await self._client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=self._client.namespace)
        )
        return description.namespace_info.id

    async def _has_workflow(self, run_id: str) -> bool:
        try:
            description = await self._client.get_workflow_handle(messages.workflow_id(run_id)).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return description.status is WorkflowExecutionStatus.RUNNING
