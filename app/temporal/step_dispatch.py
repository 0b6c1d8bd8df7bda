"""Step dispatch: sends the steps of one run to the workers that can perform them; part of its workflow."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from temporalio import exceptions, workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType

with workflow.unsafe.imports_passed_through():
    from app.domain import capabilities, operations
    from app.temporal import messages

_SOON = timedelta(seconds=30)
_HEARTBEAT = timedelta(seconds=5)
_A_YEAR = timedelta(days=365)
_PERSISTENT = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), backoff_coefficient=2, maximum_interval=timedelta(seconds=10)
)


class StepDispatch:
    """Chooses the task queue of each step of a run, by its placement and the capability that the step needs."""

    def __init__(
        self, run_id: str, placement: messages.Placement | None, services: Collection[str], priority: Priority
    ) -> None:
        """Args:
        placement: None: workers share their workspaces.
        services: Backends that need no workspace.
        priority: Priority of the run's steps for the server.
        """
        self._run_id = run_id
        self._placement = placement
        self._services = services
        self._priority = priority

    async def perform(self, order: messages.StepOrder, operation: operations.Operation) -> bytes:
        """Perform one attempt of a step, and return its line."""
        capability, queue = capabilities.needed(operation), workflow.info().task_queue
        steps = messages.capability_queue(messages.steps_queue(queue), capability)
        # A step that touches no folder goes to any worker with capacity.
        if self._placement is None or capabilities.is_anywhere(operation, self._services):
            steps = messages.idle_queue(steps) if operation.idle else steps
            return bytes(await ask(messages.PERFORM, order, queue=steps, at_length=True, priority=self._priority))
        if not self._placement.worker:
            placing_queue = messages.placing_queue(queue, capability)
            placed = await ask(
                messages.PLACE, self._run_id, queue=placing_queue, result_type=str, priority=self._priority
            )
            self._placement = dataclasses.replace(self._placement, worker=placed)
            if is_cut():
                raise asyncio.CancelledError
        return await self._perform_there(order, capability, self._placement, is_idle=operation.idle)

    def parking(self, key: str, error: ActivityError) -> messages.Parking:
        """Return why the run of a step that could not be performed has to wait for a person."""
        cause = error.cause
        if _has_not_begun(error) and self._placement is not None:
            message = (
                f"the worker {self._placement.worker}, which has the workspace of the run, has been away for more than "
                f"{self._placement.gone_seconds:g} s; start it again, then: control-room runs unpause {self._run_id}"
            )
            reason = messages.WORKER_GONE
            return messages.Parking(reason=reason, code=reason, message=message, key=key)
        if isinstance(cause, ApplicationError) and cause.type == messages.PARKED:
            return messages.Parking(**cause.details[0])
        reason = (cause.type if isinstance(cause, ApplicationError) else None) or "activity_failed"
        message = cause.message if isinstance(cause, ApplicationError) else str(cause)
        return messages.Parking(reason=reason, code=reason, message=message, key=key)

    async def _perform_there(
        self, order: messages.StepOrder, capability: str, placement: messages.Placement, *, is_idle: bool
    ) -> bytes:
        queue = workflow.info().task_queue
        steps = messages.capability_queue(messages.worker_queue(queue, placement.worker), capability)
        steps = messages.idle_queue(steps) if is_idle else steps
        begins_within = timedelta(seconds=placement.gone_seconds)
        while True:
            try:
                asked: Any = {"queue": steps, "at_length": True, "begins_within": begins_within}
                return bytes(await ask(messages.PERFORM, order, priority=self._priority, **asked))
            except ActivityError as error:
                if not _has_not_begun(error) or is_cut():
                    raise
            # A worker answers on this queue even if all its capacity is in use.
            presence = messages.presence_queue(queue, placement.worker)
            await ask(messages.PRESENT, queue=presence, result_type=None, begins_within=_SOON)
            if is_cut():
                raise asyncio.CancelledError


async def ask(
    name: str,
    *args: Any,
    queue: str | None = None,
    at_length: bool = False,
    begins_within: timedelta | None = None,
    result_type: Any = bytes,
    priority: Priority = Priority.default,
) -> Any:
    """Execute an activity, and repeat it for as long as it takes."""
    # Heartbeats end an activity whose worker died; the step itself limits how long it may take.
    return await workflow.execute_activity(
        name,
        args=args,
        task_queue=queue or workflow.info().task_queue,
        result_type=result_type,
        schedule_to_start_timeout=begins_within,
        # A step has a time limit of its own; short activities are bounded here.
        start_to_close_timeout=_A_YEAR if at_length else 2 * _SOON,
        heartbeat_timeout=_HEARTBEAT,
        retry_policy=_PERSISTENT,
        priority=priority,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def is_cut() -> bool:
    """Return whether this task of a workflow has to end.

    An activity that ends by itself while its cancellation is on the way swallows the cancellation; the task still
    counts the request.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_superseded(error: ActivityError) -> bool:
    """Return whether the run does not need the step any more."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == messages.SUPERSEDED


def _has_not_begun(error: ActivityError) -> bool:
    return isinstance(error.cause, exceptions.TimeoutError) and error.cause.type is TimeoutType.SCHEDULE_TO_START
