"""Claims of workspaces that runs hold alone: one workflow for each path on a worker or a shared mount.

The journals record which runs have begun and not ended, so a claim that is lost with the server is made again.
"""

from __future__ import annotations

import asyncio
import logging
import os

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from app import errors
from app.domain import runs, states
from app.engine import stores
from app.temporal import messages
from app.temporal.run_placement import RunPlacement

_ANSWER_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Claims:
    """Holds workspaces for runs, from their start to their end, through pauses."""

    def __init__(self, store: stores.RunStore, client: Client, queue: str, placement: RunPlacement) -> None:
        self._store = store
        self._client = client
        self._queue = queue
        self._placement = placement

    async def claim(self, run_id: str) -> str | None:
        """Claim the workspace of a run that needs it alone, and return the other run that holds it, or None.

        A waiting run is signalled when it gets the workspace.
        """
        row = await self._store.summary(run_id)
        if not row.exclusive_workspace:
            return None
        loaded = await self._store.read(run_id)
        start, decided = loaded.start, loaded.decisions
        if decided.is_halted or await self._is_held_above(start):
            return None
        place = await self._placement.place(run_id) if self._placement.places else None
        claim_id = self._id(start, place)
        holder = await self._holder(claim_id)
        # A claim without a workflow has no holder; a run that has begun in the workspace gets the claim.
        if holder is None:
            holder = await self._hold(claim_id, await self._begun(start, place) or run_id)
        if holder == run_id:
            return None
        # The release of the holder was lost, so it is sent again.
        if await self._has_ended(holder):
            await self._signal(claim_id, messages.RELEASE_SIGNAL, holder)
        await self._signal(claim_id, messages.WAIT_SIGNAL, run_id)
        return holder

    async def holder(self, run_id: str) -> str | None:
        """Return the other run that holds the workspace for which a run waits, if another run does."""
        loaded = await self._store.read(run_id)
        if not loaded.start.exclusive_workspace:
            return None
        place = loaded.decisions.placed if self._placement.places else None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                holder = await self._holder(self._id(loaded.start, place))
        except (RPCError, TimeoutError) as error:
            _log.info("not known who holds the workspace: %s", error, extra={"run_id": run_id})
            return None
        return None if holder == run_id else holder

    async def release(self, start: runs.RunStart) -> None:
        """Pass the workspace of a run that has ended to the next run."""
        if not start.exclusive_workspace:
            return
        place = (await self._store.read(start.run_id)).decisions.placed if self._placement.places else None
        try:
            await self._signal(self._id(start, place), messages.RELEASE_SIGNAL, start.run_id)
        except RPCError as error:
            # The next run that asks finds that the holder has ended.
            _log.info("claim not released: %s", error.message, extra={"run_id": start.run_id})

    def _id(self, start: runs.RunStart, place: str | None) -> str:
        return messages.claim_id(self._queue, place, _path(start.working_dir))

    async def _is_held_above(self, start: runs.RunStart) -> bool:
        workspace = _path(start.working_dir)
        while start.parent_run_id is not None:
            try:
                start = (await self._store.read(start.parent_run_id)).start
            except errors.NotFound:
                return False
            if start.exclusive_workspace and _path(start.working_dir) == workspace:
                return True
        return False

    async def _begun(self, start: runs.RunStart, place: str | None) -> str | None:
        workspace = _path(start.working_dir)
        for row in await self._store.list_unfinished():
            if row.exclusive_workspace and _path(row.working_dir) == workspace:
                try:
                    decided = (await self._store.read(row.run_id)).decisions
                except (errors.NotFound, errors.JournalCorrupt) as error:
                    # A damaged run writes nothing, so it holds nothing.
                    _log.error("it holds no workspace: %s", error.message, extra={"run_id": row.run_id})
                    continue
                if decided.taken_since_resume and decided.ended is None and decided.placed == place:
                    return row.run_id
        return None

    async def _hold(self, claim: str, holder: str) -> str | None:
        try:
            await self._client.start_workflow(
                messages.CLAIM,
                args=[holder],
                id=claim,
                task_queue=self._queue,
                memo={messages.HOLDER: holder},
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:
            return await self._holder(claim)
        return holder

    async def _holder(self, claim: str) -> str | None:
        try:
            description = await self._client.get_workflow_handle(claim).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return None
        return str((await description.memo())[messages.HOLDER])

    async def _has_ended(self, run_id: str | None) -> bool:
        try:
            return run_id is not None and states.RunState((await self._store.summary(run_id)).status).finished
        except errors.NotFound:
            return True

    async def _signal(self, claim: str, signal: str, run_id: str | None) -> None:
        try:
            await self._client.get_workflow_handle(claim).signal(signal, run_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


def _path(workspace: str) -> str:
    return os.path.normpath(workspace)
