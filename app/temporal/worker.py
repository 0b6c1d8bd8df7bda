"""The worker: one process that performs steps and drives workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from app.temporal import codec, messages
from app.temporal.activities import Activities
from app.temporal.slices import Contents
from app.temporal.workflow import RunWorkflow

BEAT = timedelta(seconds=0.5)
"""Time after which a heartbeat is sent on."""

TASK_TIMEOUT = timedelta(seconds=60)
"""Longest time of a workflow task; a long journal is replayed in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """How much one worker does at a time, and of what."""

    queue: str
    """Task queue of its data directory."""
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
    """Work for the block, then finish or cut off what is in flight."""
    performs = Worker(
        client,
        task_queue=messages.steps_queue(limits.queue),
        activities=[activities.perform],
        max_concurrent_activities=limits.steps,
        graceful_shutdown_timeout=timedelta(seconds=limits.grace_seconds),
        max_heartbeat_throttle_interval=BEAT,
        default_heartbeat_throttle_interval=BEAT,
    )
    drives = Worker(
        client,
        task_queue=limits.queue,
        workflows=[RunWorkflow],
        activities=activities.short(),
        workflow_runner=runner(),
        graceful_shutdown_timeout=timedelta(seconds=limits.grace_seconds),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        max_heartbeat_throttle_interval=BEAT,
        default_heartbeat_throttle_interval=BEAT,
    )
    async with performs, drives:
        yield


def replayer(contents: Contents) -> Replayer:
    """Return what replays histories against the present drivers and the store."""
    return Replayer(workflows=[RunWorkflow], workflow_runner=runner(), data_converter=codec.converter(contents))
