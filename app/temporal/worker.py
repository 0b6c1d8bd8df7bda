"""The worker: one process that performs steps and drives workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from app.temporal import codec, messages
from app.temporal.activities import Activities
from app.temporal.claim_workflow import ClaimWorkflow
from app.temporal.slices import Contents
from app.temporal.workflow import RunWorkflow

BEAT = timedelta(seconds=0.5)
"""Time after which a heartbeat is sent on."""

IDLE_BEAT = timedelta(seconds=2)
"""The same of steps that only wait; there are many of them."""

IDLE_STEPS = 200
"""Steps that one worker performs at a time of those that only wait, such as for files; they take no capacity."""

TASK_TIMEOUT = timedelta(seconds=60)
"""Longest time of a workflow task; a long journal is replayed in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """How much one worker does at a time, and of what."""

    queue: str
    """Task queue of the store: its workflows, and what they ask of journals."""
    placement: messages.Placement | None = None
    """This worker, where runs are placed on one; None: workers share their workspaces."""
    steps: int = 8
    """Steps that it performs."""
    grace_seconds: float = 10.0
    """Time that steps in flight get at a stop."""


def runner() -> SandboxedWorkflowRunner:
    """Return what executes workflows.

    Our modules come through the sandbox: import contracts keep clock, chance and I/O out of drivers, and loading all of
    them for each workflow takes longer than a workflow task may.
    """
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())


@asynccontextmanager
async def working(client: Client, activities: Activities, limits: WorkerLimits) -> AsyncIterator[None]:
    """Work for the block, then finish or cancel steps in flight."""
    shared: Any = {
        "client": client,
        "graceful_shutdown_timeout": timedelta(seconds=limits.grace_seconds),
    }
    drives = Worker(
        task_queue=limits.queue,
        workflows=[RunWorkflow, ClaimWorkflow],
        activities=activities.short(),
        workflow_runner=runner(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        **_beats(BEAT),
        **shared,
    )
    async with AsyncExitStack() as working:
        for queue, performs in _step_queues(activities, limits).items():
            performing = Worker(
                task_queue=queue,
                activities=performs,
                max_concurrent_activities=limits.steps,
                **_beats(BEAT),
                **shared,
            )
            await working.enter_async_context(performing)
        idles = Worker(
            task_queue=messages.idle_queue(_own_queue(limits)),
            activities=[activities.perform],
            max_concurrent_activities=IDLE_STEPS,
            **_beats(IDLE_BEAT),
            **shared,
        )
        await working.enter_async_context(idles)
        await working.enter_async_context(drives)
        yield


def _beats(interval: timedelta) -> dict[str, Any]:
    return {"max_heartbeat_throttle_interval": interval, "default_heartbeat_throttle_interval": interval}


def _own_queue(limits: WorkerLimits) -> str:
    if limits.placement is None:
        return messages.steps_queue(limits.queue)
    return messages.worker_queue(limits.queue, limits.placement.worker)


def _step_queues(activities: Activities, limits: WorkerLimits) -> dict[str, list[Callable[..., Any]]]:
    steps, here = messages.steps_queue(limits.queue), limits.placement
    if here is None:
        return {steps: [activities.perform]}
    return {
        steps: [activities.place],
        _own_queue(limits): [activities.perform],
        messages.presence_queue(limits.queue, here.worker): [activities.here],
    }


def replayer(contents: Contents) -> Replayer:
    """Return what replays histories against the present drivers and the store."""
    return Replayer(
        workflows=[RunWorkflow, ClaimWorkflow], workflow_runner=runner(), data_converter=codec.converter(contents)
    )
